"""Clients that read large answers slowly, or stop: they cost the gateway no memory and the others nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.batches import Batch, read_batches, records
from tests.support.gateway_process import GatewayProcess
from tests.support.wire import Wire, decode, encode

DEADLINE_S = 30.0
BATCHES = 40
RECORD_BYTES = 900_000


def create(gateway: GatewayProcess, topic: str) -> None:
    new = {"name": topic, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    with Wire(gateway.bootstrap) as wire:
        answer = wire.call("create_topics", 5, {"topics": [new], "timeout": 30_000, "validate_only": False})
    assert answer.fields["topics"][0]["error_code"] == 0


def fill(gateway: GatewayProcess, topic: str) -> None:
    create(gateway, topic)
    with Wire(gateway.bootstrap) as wire:
        for sequence in range(BATCHES):
            batch = Batch(records(1, RECORD_BYTES, prefix=f"{sequence}-")).of(9, 0, sequence)
            data = [{"index": 0, "records": batch.encode()}]
            topic_data = [{"name": topic, "partition_data": data}]
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
    """The batches of a Fetch answer for one partition; all must be whole and have the right CRC."""
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
        assert time.monotonic() < deadline, "sockets are left open"
        with Wire(filled.bootstrap) as wire:
            wire.call("api_versions", 0)


def test_a_topic_deleted_and_created_again_under_a_reader(gateway: GatewayProcess) -> None:
    """The reader gets bytes of the topic it asked for, or loses its connection; never those of the new one."""
    fill(gateway, "again")
    with slow_reader(gateway) as reader:
        reader.sendall(fetch_frame("again", 1))
        size = int.from_bytes(receive_exactly(reader, 4), "big")
        received = bytearray(receive_exactly(reader, 100_000))
        with Wire(gateway.bootstrap) as wire:
            answer = wire.call("delete_topics", 5, topic_names=["again"], timeout=30_000)
            assert answer.fields["responses"][0]["error_code"] == 0
        create(gateway, "again")
        with Wire(gateway.bootstrap) as wire:
            for _ in range(BATCHES):
                data = [{"index": 0, "records": Batch(records(1, RECORD_BYTES, prefix="new-")).encode()}]
                topic_data = [{"name": "again", "partition_data": data}]
                wire.call("produce", 9, {"acks": -1, "timeout": 30_000, "topic_data": topic_data})
        with contextlib.suppress(ConnectionResetError):
            while len(received) < size and (part := reader.recv(1 << 20)):
                received += part
        assert len(received) < size
        assert b"new-" not in received
    with Wire(gateway.bootstrap) as wire:
        wire.call("api_versions", 0)


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
