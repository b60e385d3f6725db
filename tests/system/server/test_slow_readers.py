"""Clients that read large answers slowly or not at all: they cost the gateway no memory, and other clients
nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.compat.differential.peer import Peer
from tests.compat.differential.share_member import member_of_its_own
from tests.support.batches import Batch, read_batches, records
from tests.support.gateway_process import GatewayProcess
from tests.support.wire import Wire, decode, encode
from tests.system.server.test_connections import eventually

DEADLINE_S = 120.0
BATCHES = 40
RECORD_BYTES = 900_000


def create(gateway: GatewayProcess, topic: str, **configs: object) -> None:
    new = {
        "name": topic,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [{"name": name.replace("_", "."), "value": str(value)} for name, value in configs.items()],
    }
    with Wire(gateway.bootstrap) as wire:
        answer = wire.call("create_topics", 5, {"topics": [new], "timeout": 30_000, "validate_only": False})
    assert answer.fields["topics"][0]["error_code"] == 0


def fill(gateway: GatewayProcess, topic: str, **configs: object) -> None:
    create(gateway, topic, **configs)
    fill_existing(gateway, topic)


def fill_existing(gateway: GatewayProcess, topic: str) -> None:
    with Wire(gateway.bootstrap) as wire:
        for sequence in range(BATCHES):
            batch = Batch(records(1, RECORD_BYTES, prefix=f"{sequence}-")).of(9, 0, sequence)
            produce(wire, topic, batch)


def produce(wire: Wire, topic: str, batch: Batch) -> None:
    topic_data = [{"name": topic, "partition_data": [{"index": 0, "records": batch.encode()}]}]
    request = {"acks": -1, "timeout": 30_000, "topic_data": topic_data}
    answer = wire.call("produce", 9, request).fields
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0


def fetch_frame(topic: str, correlation_id: int) -> bytes:
    entry = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 30}
    request = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 30,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [entry]}],
    }
    payload = encode("fetch", 11, request, correlation_id=correlation_id)
    return struct.pack(">i", len(payload)) + payload


def versions_frame(correlation_id: int) -> bytes:
    payload = encode("api_versions", 0, {}, correlation_id=correlation_id)
    return struct.pack(">i", len(payload)) + payload


def receive_exactly(reader: socket.socket, size: int, step: int = 1 << 20) -> bytes:
    received = bytearray()
    while len(received) < size:
        part = reader.recv(min(step, size - len(received)))
        assert part, f"closed {size - len(received)} bytes early"
        received += part
    return bytes(received)


def receive_answer(reader: socket.socket, step: int = 1 << 20) -> bytes:
    size = int.from_bytes(receive_exactly(reader, 4), "big")
    return receive_exactly(reader, size, step)


def sequences_in(answer: bytes, correlation_id: int) -> list[int]:
    """Return the batches of a Fetch answer for one partition; check that all are whole and have the right
    CRC.
    """
    fields = decode("fetch", 11, answer, correlation_id=correlation_id).fields
    views, rest = read_batches(fields["responses"][0]["partitions"][0]["records"])
    assert not rest
    assert all(view.crc_is_right for view in views)
    return [view.base_sequence for view in views]


def resident_bytes(gateway: GatewayProcess) -> int:
    status = Path(f"/proc/{gateway.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) << 10


@contextlib.contextmanager
def slow_reader(gateway: GatewayProcess) -> Iterator[socket.socket]:
    with socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        reader.settimeout(DEADLINE_S)
        reader.connect(("127.0.0.1", gateway.port))
        yield reader


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("slow") / "data") as gateway:
        fill(gateway, "big")
        yield gateway


def test_twenty_that_do_not_read_cost_no_memory(filled: GatewayProcess) -> None:
    with contextlib.ExitStack() as stack:
        before = resident_bytes(filled)
        readers = [stack.enter_context(slow_reader(filled)) for _ in range(20)]
        for number, reader in enumerate(readers):
            reader.sendall(fetch_frame("big", number))
        heads = [receive_exactly(reader, 8) for reader in readers]
        assert resident_bytes(filled) - before < 20 << 20, "20 answers of 36 MB must not pile up"
        assert [int.from_bytes(head[4:], "big") for head in heads] == list(range(20))


@pytest.mark.parametrize("step", [1_000, 70_000, 1 << 20])
def test_an_answer_read_slowly_is_whole_and_later_ones_follow_it(filled: GatewayProcess, step: int) -> None:
    with slow_reader(filled) as reader:
        frames = [fetch_frame("big", 1), versions_frame(2), fetch_frame("big", 3), versions_frame(4)]
        reader.sendall(b"".join(frames))
        for correlation_id in (1, 2, 3, 4):
            answer = receive_answer(reader, step)
            assert int.from_bytes(answer[:4], "big") == correlation_id
            if correlation_id % 2:
                assert sequences_in(answer, correlation_id) == list(range(BATCHES))


def test_one_that_goes_away_half_way_leaves_nothing_behind(filled: GatewayProcess) -> None:
    descriptors = Path(f"/proc/{filled.pid}/fd")
    before = len(list(descriptors.iterdir()))
    for _ in range(5):
        with slow_reader(filled) as reader:
            reader.sendall(fetch_frame("big", 1))
            receive_exactly(reader, 100_000)
    deadline = time.monotonic() + DEADLINE_S
    while len(list(descriptors.iterdir())) > before + 1:
        assert time.monotonic() < deadline, "the gateway must close its sockets"
        with Wire(filled.bootstrap) as wire:
            wire.call("api_versions", 0)


def by_delete_records(gateway: GatewayProcess, topic: str) -> None:
    with Wire(gateway.bootstrap) as wire:
        partitions = [{"partition_index": 0, "offset": -1}]
        topics = [{"name": topic, "partitions": partitions}]
        answer = wire.call("delete_records", 1, {"topics": topics, "timeout": 30_000}).fields
    assert answer["topics"][0]["partitions"][0]["low_watermark"] == BATCHES + 1


def by_retention(gateway: GatewayProcess, topic: str) -> None:
    with Wire(gateway.bootstrap) as wire:
        configs = [{"name": "retention.ms", "config_operation": 0, "value": "0"}]
        resource = {"resource_type": 2, "resource_name": topic, "configs": configs}
        request = {"resources": [resource], "validate_only": False}
        assert wire.call("incremental_alter_configs", 0, request).fields["responses"][0]["error_code"] == 0


def by_deletion(gateway: GatewayProcess, topic: str) -> None:
    """Delete the topic and create another one of the same name, whose files take the place of the old ones."""
    with Wire(gateway.bootstrap) as wire:
        answer = wire.call("delete_topics", 5, topic_names=[topic], timeout=30_000)
        assert answer.fields["responses"][0]["error_code"] == 0
    create(gateway, topic)
    with Wire(gateway.bootstrap) as wire:
        produce(wire, topic, Batch(records(1, RECORD_BYTES, prefix="new-")))


def first_segments(gateway: GatewayProcess) -> list[str]:
    """Return the large files that begin at offset 0, whatever their current names."""
    found = []
    for directory, _, names in os.walk(gateway.data_dir):  # skip files that vanish meanwhile
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                path = Path(directory, name)
                if name.startswith(f"{0:020d}.log") and path.stat().st_size > 2 * RECORD_BYTES:
                    found.append(str(path))
    return found


def deleted_but_open(gateway: GatewayProcess) -> list[str]:
    found = []
    for link in Path(f"/proc/{gateway.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if "(deleted)" in (target := str(link.readlink())):
                found.append(target)
    return found


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway that deletes segments as soon as it may."""
    settings = {"log.retention.check.interval.ms": "50", "log.segment.delete.delay.ms": "0"}
    with GatewayProcess(tmp_path_factory.mktemp("forgetful") / "data", settings=settings) as gateway:
        yield gateway


@pytest.mark.parametrize("remove", [by_delete_records, by_retention, by_deletion])
def test_records_deleted_under_a_reader_reach_it_all_the_same(
    forgetful: GatewayProcess, remove: Callable[[GatewayProcess, str], None]
) -> None:
    topic = remove.__name__
    fill(forgetful, topic, segment_bytes=BATCHES * (RECORD_BYTES + 1000), retention_ms=-1)
    with Wire(forgetful.bootstrap) as wire:  # a new segment begins, so that the first one can be deleted
        produce(wire, topic, Batch(records(1, RECORD_BYTES)))
    with slow_reader(forgetful) as reader:
        reader.sendall(fetch_frame(topic, 1))
        size = int.from_bytes(receive_exactly(reader, 4), "big")
        received = receive_exactly(reader, 100_000)
        remove(forgetful, topic)
        eventually(lambda: not first_segments(forgetful), "the deletion of the files")
        eventually(lambda: bool(deleted_but_open(forgetful)), "a file that only the reader holds")
        received += receive_exactly(reader, size - len(received))
        assert sequences_in(received, 1) == list(range(BATCHES))
    eventually(lambda: not deleted_but_open(forgetful), "the end of what only the reader held")


def test_a_reader_that_hangs_up_gives_deleted_files_back(forgetful: GatewayProcess) -> None:
    """The deleted files belong to the answer that the client was reading, and to the next one."""
    for topic in ("left-1", "left-2"):
        fill(forgetful, topic, segment_bytes=BATCHES * (RECORD_BYTES + 1000))
    with slow_reader(forgetful) as reader:
        reader.sendall(fetch_frame("left-1", 1) + fetch_frame("left-2", 2))
        receive_exactly(reader, 100_000)
        for topic in ("left-1", "left-2"):
            by_retention(forgetful, topic)
        eventually(lambda: not first_segments(forgetful), "the deletion of the files")
        eventually(lambda: bool(deleted_but_open(forgetful)), "a file that only the reader holds")
    eventually(lambda: not deleted_but_open(forgetful), "the end of what only the reader held")


@pytest.mark.parametrize("remove", [by_delete_records, by_deletion])
def test_records_deleted_under_a_member_of_a_share_group_reach_it(
    forgetful: GatewayProcess, remove: Callable[[GatewayProcess, str], None]
) -> None:
    peer = Peer(forgetful.bootstrap, f"share-{remove.__name__}-")
    member = member_of_its_own(peer)
    (topic,) = member.topics
    fill_existing(forgetful, topic.name)
    with Wire(forgetful.bootstrap) as wire:
        produce(wire, topic.name, Batch(records(1, RECORD_BYTES)))
    request = member.fetch_request(partitions={0: ()}, max_bytes=1 << 30)
    payload = encode("share_fetch", 2, request, correlation_id=7)
    with slow_reader(forgetful) as reader:
        reader.sendall(struct.pack(">i", len(payload)) + payload)
        size = int.from_bytes(receive_exactly(reader, 4), "big")
        received = receive_exactly(reader, 100_000)
        remove(forgetful, topic.name)
        received += receive_exactly(reader, size - len(received))
    peer.close()
    row = decode("share_fetch", 2, received, correlation_id=7).fields["responses"][0]["partitions"][0]
    views, rest = read_batches(row["records"])
    assert not rest
    assert all(view.crc_is_right for view in views)
    assert [view.base_sequence for view in views[:BATCHES]] == list(range(BATCHES))


def test_a_stop_gives_a_reader_time_to_finish(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "data") as gateway:
        fill(gateway, "big")
        with slow_reader(gateway) as reader:
            reader.sendall(fetch_frame("big", 1))
            size = int.from_bytes(receive_exactly(reader, 4), "big")
            os.kill(gateway.pid, signal.SIGTERM)
            answer = receive_exactly(reader, size)
            assert sequences_in(answer, 1) == list(range(BATCHES))
            assert reader.recv(1) == b""
