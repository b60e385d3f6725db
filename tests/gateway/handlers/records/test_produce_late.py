"""Batches of another codec than the topic's are recompressed in threads, and batches that take long are checked
there: in order, without holding others up, and never twice.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from seqgate.gateway.handlers.answering.api import CloseConnection, Deferred
from seqgate.gateway.handlers.records import produce
from seqgate.gateway.handlers.records.produce_late import AT_ONCE, OBJECTS_BYTES
from seqgate.gateway.runtime.loop.request_memory import RequestMemory
from seqgate.gateway.runtime.partitions.batch_threads import BatchThreads
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.server.dispatcher import Dispatcher
from seqgate.log.format.record_batch import HEADER_BYTES
from tests.gateway.handlers.records.held_threads import HeldMachine
from tests.gateway.handlers.requests import alter, create, delete
from tests.gateway.handlers.support import NOW_MS, FakePeer, Node, open_node
from tests.log.support import read_log
from tests.support.batches import Batch, BatchView, Record, decompress, read_batches, records
from tests.support.held_disk import HeldDisk
from tests.support.wire import decode, encode

TOPIC, TOPIC_RESOURCE = "orders", 2
VERSION = 9
ZSTD, GZIP, NONE = 4, 1, 0
THREE = replace(Batch(records(3, 50)), base_timestamp=NOW_MS)
PAGE_CACHE = {"flush.messages": str(2**63 - 1)}
OK, CORRUPT, UNKNOWN_TOPIC, TOO_LARGE, NOT_ENOUGH_REPLICAS, OUT_OF_ORDER, STORAGE = 0, 2, 3, 10, 19, 45, 56
UNSUPPORTED_COMPRESSION, INVALID_RECORD, INVALID_TXN, INVALID_TIMESTAMP = 76, 87, 48, 32
UNKNOWN_TOPIC_ID = 100


class Client:
    """Sends Produce requests on one connection, as the gateway gets them from a client."""

    def __init__(self, node: Node, peer: FakePeer | None = None) -> None:
        self._peer = peer or node.peer
        self._dispatcher = Dispatcher([produce.API], node.services)
        self._sent = 0
        self.version = VERSION
        self.topic: dict[str, Any] = {"name": TOPIC}

    def produce(self, batches: Batch | dict[int, Batch], *, acks: int = -1) -> Any:
        rows = batches if isinstance(batches, dict) else {0: batches}
        data = [{"index": index, "records": batch.encode()} for index, batch in rows.items()]
        fields = {"acks": acks, "timeout": 30_000, "topic_data": [{**self.topic, "partition_data": data}]}
        self._sent += 1
        frame = bytearray(encode("produce", self.version, fields, correlation_id=self._sent))
        begun = self._dispatcher.begin(memoryview(frame), self._peer)
        frame[:] = bytes(len(frame))  # the receive buffer is used for the next client's bytes
        return begun

    def rows(self, answer: Any) -> list[tuple[int, int]]:
        """Return (error code, base offset) of each partition of an answer that has arrived."""
        frame = answer.answer if isinstance(answer, Deferred) else answer
        assert frame
        correlation_id = int.from_bytes(frame[4:8], "big")
        fields = decode("produce", self.version, frame[4:], correlation_id=correlation_id).fields
        rows = fields["responses"][0]["partition_responses"]
        return [(row["error_code"], row["base_offset"]) for row in rows]


class Bench:
    """A node whose recompression waits for the test, and one client."""

    def __init__(self, node: Node, machine: HeldMachine, threads: int = 2) -> None:
        self.node = node
        self.machine = machine
        self._ends: list[Callable[[], object]] = []
        """The calls of the threads into the event loop, in the order in which they began their work."""
        loop: Any = SimpleNamespace(call_soon_threadsafe=lambda *call: self._ends.append(partial(*call)))
        self.threads = BatchThreads(loop, threads=threads, machine=machine)
        node.services.partitions.batch_threads = self.threads
        self.client = Client(node)

    @property
    def partition(self) -> Partition:
        found = self.node.services.partitions.registry.get(TOPIC, 0)
        assert found is not None
        return found

    async def create(self, codec: str, partitions: int = 1, **configs: str) -> None:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        created = await create(
            self.node, TOPIC, partitions, configs={"compression.type": codec, **PAGE_CACHE, **named}
        )
        assert created.error_code.value == OK, created

    async def work_on(self, *, last: bool = False) -> None:
        """End the work of the thread that has begun first; with `last`, of the one that has begun last."""
        while self.machine.held and (last or not self._ends):
            self.machine.work_on()
        self._ends.pop(-1 if last else 0)()
        await asyncio.sleep(0)

    def stored(self, index: int = 0) -> list[BatchView]:
        partition = self.node.services.partitions.registry.get(TOPIC, index)
        assert partition is not None
        log = partition.log
        return read_batches(read_log(log, 0, 1 << 24, upper_bound=log.log_end_offset))[0]


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(
        produce, "LONG_S", 3600.0
    )  # otherwise a slow machine appends several partitions in several turns
    async with open_node(tmp_path) as node:
        bench = Bench(node, HeldMachine())
        yield bench
        bench.threads.stop()


async def test_a_batch_of_another_codec_is_stored_in_the_topics(bench: Bench) -> None:
    await bench.create("zstd", compression_zstd_level="19")
    answer = bench.client.produce(THREE)
    assert isinstance(answer, Deferred)
    assert answer.answer is None
    assert bench.partition.log.log_end_offset == 0
    await bench.work_on()
    assert bench.client.rows(answer) == [(OK, 0)]
    (view,) = bench.stored()
    assert view.crc_is_right
    assert view.attributes == ZSTD
    assert (view.base_offset, view.record_count, view.base_timestamp) == (0, 3, NOW_MS)
    plain = b"".join(record.encode(index) for index, record in enumerate(THREE.records))
    assert decompress(ZSTD, view.payload) == plain


@pytest.mark.parametrize("codec", ["producer", "gzip"])
async def test_a_batch_of_the_right_codec_stays_as_it_is(bench: Bench, codec: str) -> None:
    await bench.create(codec, compression_gzip_level="1")
    sent = replace(THREE, codec="gzip")
    for number in range(3):  # the prefix cache recognizes the second request
        assert bench.client.rows(bench.client.produce(sent)) == [(OK, 3 * number)]
    assert bench.machine.held == 0
    assert [view.payload for view in bench.stored()] == [read_batches(sent.encode())[0][0].payload] * 3


async def test_later_requests_of_the_connection_wait_for_the_append_and_not_for_the_flush(
    tmp_path: Path,
) -> None:
    disk = HeldDisk()
    async with open_node(tmp_path, storage=disk) as node:
        bench = Bench(node, HeldMachine(), threads=1)
        await bench.create("gzip", flush_messages="1")
        with disk.held(TOPIC):
            answer = bench.client.produce(THREE)
            assert answer.holds_back
            begun: list[bool] = []
            answer.on_others_may_begin = lambda: begun.append(True)
            await bench.work_on()
            assert begun == [True]
            assert not answer.holds_back
            assert bench.partition.log.log_end_offset == 3
            assert answer.answer is None
        async with asyncio.timeout(60):
            while answer.answer is None:
                await asyncio.sleep(0.001)
        assert bench.client.rows(answer) == [(OK, 0)]


async def test_other_partitions_of_the_request_are_appended_at_once(bench: Bench) -> None:
    await bench.create("gzip", partitions=3)
    answer = bench.client.produce({0: THREE, 1: replace(THREE, codec="gzip"), 2: replace(THREE, codec="lz4")})
    assert [len(bench.stored(index)) for index in range(3)] == [0, 1, 0]
    await bench.work_on(last=True)
    assert [len(bench.stored(index)) for index in range(3)] == [0, 1, 1]
    assert answer.answer is None
    await bench.work_on()
    assert bench.client.rows(answer) == [(OK, 0)] * 3
    assert [view.attributes for index in range(3) for view in bench.stored(index)] == [GZIP] * 3


async def test_batches_outlive_the_receive_buffer_of_a_request_that_takes_several_turns(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce, "LONG_S", -1.0)
    await bench.create("gzip", partitions=3)
    answer = bench.client.produce(dict.fromkeys(range(3), THREE))
    deadline = asyncio.get_running_loop().time() + 20
    while answer.answer is None:
        assert asyncio.get_running_loop().time() < deadline
        if bench.machine.held:
            await bench.work_on()
        await asyncio.sleep(0)
    assert bench.client.rows(answer) == [(OK, 0)] * 3
    assert [len(bench.stored(index)) for index in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("by_id", [False, True])
async def test_the_later_turns_of_a_request_store_nothing_in_a_new_topic_of_the_name(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, by_id: bool
) -> None:
    is_created_again = asyncio.Event()

    async def held(steps: Iterator[None]) -> AsyncIterator[None]:
        await is_created_again.wait()
        for step in steps:
            yield step

    monkeypatch.setattr(produce, "LONG_S", -1.0)
    monkeypatch.setattr(produce, "in_slices", held)
    by_name = bench.node.services.partitions.registry.by_name
    await bench.create("producer", partitions=3)
    if by_id:
        bench.client.version, bench.client.topic = 13, {"topic_id": str(by_name[TOPIC].topic_id)}
    answer = bench.client.produce(dict.fromkeys(range(3), THREE))
    await delete(bench.node, TOPIC)
    await bench.create("producer", partitions=3)
    is_created_again.set()
    while answer.answer is None:
        await asyncio.sleep(0)
    gone = UNKNOWN_TOPIC_ID if by_id else UNKNOWN_TOPIC
    assert bench.client.rows(answer) == [(OK, 0), (gone, -1), (gone, -1)]
    assert [len(bench.stored(index)) for index in range(3)] == [0, 0, 0]


async def test_other_requests_run_between_the_batches_of_a_long_request(bench: Bench) -> None:
    await bench.create("gzip", partitions=AT_ONCE + 3)
    answer = bench.client.produce(dict.fromkeys(range(AT_ONCE + 3), THREE))
    assert bench.machine.held == AT_ONCE
    other = Client(bench.node)
    second = other.produce(THREE)
    for _ in range(AT_ONCE + 1):
        await bench.work_on()
    assert other.rows(second) == [(OK, 3)]
    assert answer.answer is None
    assert bench.machine.held
    while bench.machine.held:
        await bench.work_on()
    await asyncio.sleep(0)
    assert bench.client.rows(answer) == [(OK, 0)] * (AT_ONCE + 3)


async def test_other_connections_are_not_held_up(bench: Bench) -> None:
    await bench.create("gzip")
    waiting = bench.client.produce(THREE)
    other = Client(bench.node)
    assert other.rows(other.produce(replace(THREE, codec="gzip"))) == [(OK, 0)]
    await bench.work_on()
    assert bench.client.rows(waiting) == [(OK, 3)]


def connections(node: Node, count: int, address: str, login: str = "User:ANONYMOUS") -> list[Client]:
    """Return clients that each have a connection; a {} in the address makes one for each."""
    peers = [FakePeer() for _ in range(count)]
    for number, peer in enumerate(peers):
        peer.peer_host, peer.principal, peer.number = address.format(number), login, number
    return [Client(node, peer) for peer in peers]


@pytest.mark.parametrize(
    ("crowd", "honest", "most_turns"),
    [
        (("10.0.0.1",), "10.0.0.2", 2),
        (("10.1.0.{}", "User:crowd"), "10.0.0.2", 2),
        (("10.0.0.1",), "10.0.0.1", 41),
    ],
    ids=["another address", "another login", "the same address"],
)
async def test_a_crowd_delays_a_batch_by_one_turn_or_by_one_for_each_of_its_own_connections(
    bench: Bench, crowd: tuple[str, ...], honest: str, most_turns: int
) -> None:
    """The turns count the batches that threads take from a batch's arrival to its answer."""
    await bench.create("gzip", partitions=AT_ONCE)
    waiting = [
        client.produce(dict.fromkeys(range(AT_ONCE), THREE)) for client in connections(bench.node, 40, *crowd)
    ]
    client = connections(bench.node, 41, honest)[-1]
    turns = []
    for number in range(3):
        answer = client.produce(THREE.of(7, 0, 3 * number))
        turns.append(0)
        while answer.answer is None:
            await bench.work_on()
            turns[-1] += 1
    assert max(turns) <= most_turns
    assert bench.machine.held >= 40, "the crowd still waits"
    while bench.machine.held:
        await bench.work_on()
    assert all(bench.client.rows(answer)[0][0] == OK for answer in waiting)


async def test_a_retry_gets_the_offset_of_its_original_without_a_thread(bench: Bench) -> None:
    await bench.create("lz4")
    for number in range(3):
        first = bench.client.produce(THREE.of(7, 0, 3 * number))
        await bench.work_on()
        assert bench.client.rows(first) == [(OK, 3 * number)]
    for number in range(3):
        assert bench.client.rows(bench.client.produce(THREE.of(7, 0, 3 * number))) == [(OK, 3 * number)]
    assert bench.machine.held == 0
    assert bench.partition.log.log_end_offset == 9
    assert bench.node.services.partitions.counters.duplicates == 3


async def test_a_retry_that_meets_its_original_in_a_thread_is_stored_once(bench: Bench) -> None:
    await bench.create("lz4")
    original = bench.client.produce(THREE.of(7, 0, 0))
    again = Client(bench.node)
    retry = again.produce(THREE.of(7, 0, 0))
    assert bench.machine.held == 2
    await bench.work_on(last=True)
    assert again.rows(retry) == [(OK, 0)]
    await bench.work_on()
    assert bench.client.rows(original) == [(OK, 0)]
    assert len(bench.stored()) == 1


async def test_sequences_are_judged_when_the_batch_is_appended(bench: Bench) -> None:
    await bench.create("lz4")
    first = bench.client.produce(THREE.of(7, 0, 0))
    other = Client(bench.node)
    gap = other.produce(THREE.of(7, 0, 6))
    await bench.work_on()
    await bench.work_on()
    assert bench.client.rows(first) == [(OK, 0)]
    assert other.rows(gap) == [(OUT_OF_ORDER, -1)]
    assert bench.node.services.partitions.counters.rejections == 1


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (replace(THREE, crc=1), CORRUPT),
        (replace(THREE, base_offset=4), INVALID_RECORD),
        (replace(THREE, codec="gzip", payload=b"\x1f\x8bno gzip"), INVALID_RECORD),
        (replace(THREE, codec=6), UNSUPPORTED_COMPRESSION),
        (replace(THREE, attributes=0x20), INVALID_RECORD),
    ],
    ids=["crc", "base offset", "garbage", "codec 6", "control"],
)
async def test_a_batch_that_can_not_be_recompressed_is_refused(bench: Bench, sent: Batch, code: int) -> None:
    await bench.create("lz4")
    answer = bench.client.produce(sent)
    await bench.work_on()
    assert bench.client.rows(answer) == [(code, -1)]
    assert bench.partition.log.log_end_offset == 0


async def test_the_size_limit_counts_after_recompression(bench: Bench) -> None:
    await bench.create("uncompressed", max_message_bytes="1000")
    answer = bench.client.produce(replace(Batch(records(30, 100)), base_timestamp=NOW_MS, codec="gzip"))
    await bench.work_on()
    assert bench.client.rows(answer) == [(TOO_LARGE, -1)]


async def test_zstd_in_an_old_version_is_refused_without_a_thread(bench: Bench) -> None:
    await bench.create("gzip")
    bench.client.version = 6
    assert bench.client.rows(bench.client.produce(replace(THREE, codec="zstd"))) == [
        (UNSUPPORTED_COMPRESSION, -1)
    ]
    assert bench.machine.held == 0


async def test_a_transactional_batch_without_its_transaction_is_refused(bench: Bench) -> None:
    await bench.create("gzip")
    answer = bench.client.produce(replace(THREE.of(7, 0, 0), attributes=0x10))
    ((code, _),) = bench.client.rows(answer)
    assert code != OK
    assert bench.partition.log.log_end_offset == 0


async def test_nothing_is_stored_when_the_topic_was_deleted_meanwhile(bench: Bench) -> None:
    await bench.create("gzip")
    answer = bench.client.produce(THREE)
    await delete(bench.node, TOPIC)
    await bench.create("producer")
    await bench.work_on()
    assert bench.client.rows(answer) == [(UNKNOWN_TOPIC, -1)]
    assert bench.partition.log.log_end_offset == 0


async def test_a_changed_compression_type_applies_from_the_next_batch_on(bench: Bench) -> None:
    await bench.create("gzip")
    waiting = bench.client.produce(THREE)
    await alter(bench.node, TOPIC_RESOURCE, TOPIC, {"compression.type": "uncompressed"})
    assert bench.client.rows(Client(bench.node).produce(THREE)) == [(OK, 0)]
    await bench.work_on()
    assert bench.client.rows(waiting) == [(OK, 3)]
    assert [view.attributes for view in bench.stored()] == [NONE, GZIP]


async def test_the_gateways_compression_type_is_the_topics_default(bench: Bench) -> None:
    await create(bench.node, TOPIC, 1, configs=dict(PAGE_CACHE))
    assert bench.partition.compression is None
    await alter(bench.node, 4, "", {"compression.type": "zstd", "compression.zstd.level": "7"})
    assert bench.partition.compression == (ZSTD, 7)
    await alter(bench.node, TOPIC_RESOURCE, TOPIC, {"compression.type": "producer"})
    assert bench.partition.compression is None


async def test_without_room_a_batch_and_those_behind_it_are_refused_for_now(bench: Bench) -> None:
    await bench.create("gzip")
    size_bytes = len(THREE.encode()) + OBJECTS_BYTES
    room = bench.node.services.upkeep.backlog.held.room = RequestMemory(size_bytes)
    waiting = bench.client.produce(THREE.of(7, 0, 0))
    assert room.used_bytes == size_bytes
    other = Client(bench.node)
    assert other.rows(other.produce(THREE.of(8, 0, 0))) == [(NOT_ENOUGH_REPLICAS, -1)]
    await bench.work_on()
    assert bench.client.rows(waiting) == [(OK, 0)]
    assert room.used_bytes == 0
    behind = other.produce(THREE.of(8, 0, 3))
    await bench.work_on()
    assert other.rows(behind) == [(NOT_ENOUGH_REPLICAS, -1)]
    again = other.produce(THREE.of(8, 0, 0))
    await bench.work_on()
    assert other.rows(again) == [(OK, 3)]


@pytest.mark.parametrize(
    "lacking",
    [
        "tests.gateway.handlers.records.held_threads.HeldMachine.workers",
        "seqgate.gateway.handlers.records.produce_late.kept_entry",
    ],
    ids=("no thread", "no memory"),
)
async def test_a_batch_that_can_wait_nowhere_takes_no_room(
    bench: Bench, lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.create("gzip")
    room = bench.node.services.upkeep.backlog.held.room
    with monkeypatch.context() as machine:
        machine.setattr(lacking, Mock(side_effect=RuntimeError("can't start new thread")))
        with pytest.raises(CloseConnection):
            bench.client.produce(THREE)
    assert room.used_bytes == 0
    answer = bench.client.produce(THREE)
    await bench.work_on()
    assert bench.client.rows(answer) == [(OK, 0)]
    assert room.used_bytes == 0


async def test_an_abandoned_request_is_carried_out(bench: Bench) -> None:
    await bench.create("gzip")
    answer = bench.client.produce(THREE)
    answer.abandon()
    await bench.work_on()
    assert bench.partition.log.log_end_offset == 3


async def test_acks_0_gets_no_answer_and_an_error_closes_the_connection(bench: Bench) -> None:
    await bench.create("gzip")
    good = bench.client.produce(THREE, acks=0)
    await bench.work_on()
    assert (good.answer, good.failed) == (b"", False)
    bad = bench.client.produce(replace(THREE, crc=1), acks=0)
    await bench.work_on()
    assert bad.failed
    with pytest.raises(CloseConnection):
        bench.client.produce(replace(THREE, codec="gzip", crc=1), acks=0)


async def test_no_batch_is_appended_after_the_stop(bench: Bench) -> None:
    await bench.create("gzip")
    answer = bench.client.produce(THREE)
    bench.threads.stop()
    await asyncio.sleep(0)
    assert answer.answer is None
    assert bench.partition.log.log_end_offset == 0


@pytest.mark.parametrize("error", [MemoryError, RuntimeError, KeyboardInterrupt])
async def test_a_thread_that_fails_refuses_the_batch(
    bench: Bench, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> bytes:
        raise error("planted")

    monkeypatch.setattr("seqgate.gateway.runtime.partitions.batch_threads.recompressed", fail)
    await bench.create("gzip")
    answer = bench.client.produce(THREE)
    await bench.work_on()
    assert bench.client.rows(answer) == [(STORAGE, -1)]


async def test_named_and_delayed_records_are_judged_in_the_new_codec(bench: Bench) -> None:
    await bench.create("zstd", message_deduplication_enable="true")
    batch = replace(
        Batch(
            tuple(
                replace(record, headers=((b"dedup.name", b"app"), (b"dedup.sequence", b"%d" % number)))
                for number, record in enumerate(THREE.records)
            )
        ),
        base_timestamp=NOW_MS,
    )
    for _ in range(2):
        answer = bench.client.produce(batch)
        await bench.work_on()
        assert bench.client.rows(answer)[0][0] == OK
    assert [view.record_count for view in bench.stored()] == [3]


ONE = replace(THREE, records=(Record(),), codec="zstd")
TAKES_LONG = {
    "compressed bytes": replace(ONE, records=(Record(value=random.Random(5).randbytes(520 << 10)),)),
    "bytes of gzip": replace(ONE, records=(Record(value=random.Random(5).randbytes(70_000)),), codec="gzip"),
    "plain bytes": replace(ONE, records=(Record(value=bytes(2 << 20)),)),
    "records": replace(ONE, records=records(20_001), codec="none"),
    "headers": replace(ONE, records=(Record(headers=((b"h", None),) * 10),) * 10_001, codec="none"),
    "a number that the walk leaves to the exact decoding": replace(
        ONE, records=(Record(), Record(value=bytes(17_000), timestamp_delta=-(2**60))), codec="none"
    ),
}


@pytest.mark.parametrize("how", TAKES_LONG)
async def test_a_batch_that_takes_long_to_check_is_checked_in_a_thread(bench: Bench, how: str) -> None:
    await bench.create("producer")
    sent = replace(TAKES_LONG[how], max_timestamp=NOW_MS - 5)
    assert bench.client.rows(bench.client.produce(THREE)) == [(OK, 0)]
    answer = bench.client.produce(sent.of(7, 0, 0))
    assert answer.holds_back
    assert bench.partition.log.log_end_offset == 3
    await bench.work_on(last=True)
    assert bench.client.rows(answer) == [(OK, 3)]
    stored = bench.stored()[1]
    assert stored.crc_is_right
    assert stored.max_timestamp == NOW_MS, "the thread corrects what the header says"
    again = bench.client.produce(sent.of(7, 0, 0))
    assert bench.client.rows(again) == [(OK, 3)], "a duplicate needs no check"
    assert bench.machine.held == 0


async def test_a_thread_refuses_what_consumers_could_not_read(bench: Bench) -> None:
    await bench.create("producer")
    whole = TAKES_LONG["compressed bytes"].encode()
    sent = replace(TAKES_LONG["compressed bytes"], payload=whole[HEADER_BYTES:-9])
    answer = bench.client.produce(sent)
    await bench.work_on(last=True)
    assert bench.client.rows(answer) == [(INVALID_RECORD, -1)]
    assert bench.partition.log.log_end_offset == 0


async def test_a_thread_finds_out_what_is_wrong_with_a_large_batch(bench: Bench) -> None:
    await bench.create("producer")
    late = Record(value=bytes(17_000), timestamp_delta=3_600_001)
    answer = bench.client.produce(replace(ONE, records=(Record(), late), codec="none"))
    assert answer.holds_back
    await bench.work_on(last=True)
    assert bench.client.rows(answer) == [(INVALID_TIMESTAMP, -1)]
    assert bench.partition.log.log_end_offset == 0


async def test_a_thread_reads_the_sizes_of_many_records(bench: Bench) -> None:
    await bench.create("producer", max_decompressed_message_bytes="60")
    answer = bench.client.produce(replace(ONE, records=records(1_001)))
    assert answer.holds_back
    await bench.work_on(last=True)
    assert bench.client.rows(answer) == [(OK, 0)]


async def test_a_topic_that_checks_headers_only_uses_no_thread(bench: Bench) -> None:
    await bench.create("producer", message_deep_validation="false")
    sent = replace(TAKES_LONG["compressed bytes"], payload=b"\x28\xb5\x2f\xfd no zstd" * 50_000)
    assert bench.client.rows(bench.client.produce(sent)) == [(OK, 0)]


@pytest.mark.parametrize("codec", ["producer", "zstd"])
async def test_a_thread_examines_the_timestamps_that_a_topic_limits(bench: Bench, codec: str) -> None:
    await bench.create(codec, message_deep_validation="false", message_timestamp_after_max_ms="60000")
    sent = replace(ONE, records=(Record(value=bytes(17_000)), Record(timestamp_delta=60_001)), codec="none")
    answer = bench.client.produce(sent)
    assert answer.holds_back
    await bench.work_on(last=True)
    assert bench.client.rows(answer) == [(INVALID_TIMESTAMP, -1)]
    in_time = replace(sent, records=(sent.records[0], Record(timestamp_delta=60_000)))
    answer = bench.client.produce(in_time)
    await bench.work_on(last=True)
    assert bench.client.rows(answer) == [(OK, 0)]
    (stored,) = bench.stored()
    assert stored.crc_is_right
    assert stored.max_timestamp == NOW_MS + 60_000
