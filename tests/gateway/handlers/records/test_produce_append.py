"""A Produce gets the right answer at the right time, also when its partitions fail, reopen or are deleted
meanwhile.
"""

from __future__ import annotations

import logging
import struct
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.serial import entity_reader

from seqgate.gateway.admin.producers.command import ListProducersRequest
from seqgate.gateway.handlers.answering.api import ClientSoftware
from seqgate.gateway.handlers.records import produce
from seqgate.gateway.handlers.records.produce import PendingAnswer
from seqgate.gateway.handlers.records.produce_append import (
    CHECK_S,
    FIRST_REPEATED_VERSION,
    PREFIX_START,
    STORAGE_ERROR,
    ProduceWaits,
    RepeatedAnswer,
    check_one_batch,
    is_for_one_partition,
    prefix_end,
    records_of,
)
from seqgate.gateway.protocol.frames import MalformedRequest, parse_request_header, skip_tagged_fields
from seqgate.gateway.protocol.produce_codec import (
    ProduceRequest,
    ProduceRow,
    encode_produce_response,
    produce_reader,
)
from seqgate.gateway.runtime.partitions.flusher import FlushWaiter
from seqgate.gateway.runtime.partitions.producer_clients import ProducerClients
from seqgate.gateway.security.principals import ClientIdentity
from seqgate.gateway.server.dispatcher import Dispatcher
from seqgate.log import Appended, CorruptRecord, LogError
from seqgate.log.errors import MalformedBatch
from tests.gateway.admin.answers import answer
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import NOW_MS, FakePeer, Node, open_node
from tests.support.batches import Batch, records
from tests.support.wire import CLIENT_ID, encode


class FakePartition:
    def __init__(self, index: int) -> None:
        self.index = index
        self.high_watermark = 0
        self.log = self
        self._waiting: list[FlushWaiter] = []

    def is_persisted(self, last_offset: int) -> bool:
        return last_offset < self.high_watermark

    def when_decided(self, offset: int, then: Callable[[bool], None]) -> None:
        owner: Any = self
        self._waiting.append(FlushWaiter(owner, offset, then))

    def flush_is_over(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.resolve()


def pending_rows(partitions: list[Any]) -> tuple[PendingAnswer, list[ProduceRow]]:
    context: Any = SimpleNamespace(
        api_version=9, correlation_id=1, peer=SimpleNamespace(), services=SimpleNamespace(waits=None)
    )
    info = Appended(0, 0, -1, 0, False, 0)
    rows: list[ProduceRow] = []
    pending = PendingAnswer(context, [("orders", rows)], 30_000)
    for partition in partitions:
        rows.append(ProduceRow(partition.index, 0, info.base_offset, -1, 0))
        pending.wait(rows, len(rows) - 1, partition, info)
    return pending, rows


def test_each_partition_is_answered_after_its_own_flush() -> None:
    failed, slow = FakePartition(0), FakePartition(1)
    pending, rows = pending_rows([failed, slow])
    deferred = pending.complete()
    failed.flush_is_over()
    # the partition is reopened, and other records are flushed at the same offset
    failed.high_watermark = 5
    slow.high_watermark = 1
    assert deferred.answer is None
    slow.flush_is_over()
    assert deferred.answer is not None
    assert [row.error_code for row in rows] == [STORAGE_ERROR, 0]


def test_flushes_that_end_before_the_last_batch_is_appended_do_not_answer() -> None:
    quick = FakePartition(0)
    pending, _ = pending_rows([quick])
    quick.high_watermark = 1
    quick.flush_is_over()
    assert pending.deferred.answer is None
    assert pending.complete().answer is not None


# A wait for a bucket ends once: by the records' fate, or when its time is up.


class Clock:
    """The clock and timers of an event loop."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self.timers.append((self.now_s + delay_s, callback))

    def advance(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while self.timers and self.timers[0][0] <= end_s:
            self.now_s, callback = self.timers.pop(0)
            callback()
        self.now_s = end_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def waits(clock: Clock) -> ProduceWaits:
    loop: Any = clock
    return ProduceWaits(loop)


def add(waits: ProduceWaits, ends: list[str], timeout_ms: int, name: str = "") -> Callable[[bool], None]:
    def decided(persisted: bool) -> None:
        ends.append(f"{name}{persisted}")

    return waits.limited(timeout_ms, decided, partial(ends.append, f"{name}expired"))


@pytest.mark.parametrize("persisted", [True, False])
def test_a_decision_in_time_is_passed_on(clock: Clock, waits: ProduceWaits, persisted: bool) -> None:
    ends: list[str] = []
    decide = add(waits, ends, 5_000)
    clock.advance(4)
    decide(persisted)
    clock.advance(60)
    assert ends == [str(persisted)]
    assert not waits
    assert not clock.timers, "nothing is looked at while nothing waits"


def test_a_decision_after_the_time_changes_nothing(clock: Clock, waits: ProduceWaits) -> None:
    ends: list[str] = []
    decide = add(waits, ends, 5_000)
    clock.advance(4.9)
    assert not ends
    clock.advance(0.1 + CHECK_S)
    assert ends == ["expired"]
    assert not waits
    decide(True)
    assert ends == ["expired"]


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31)])
def test_who_gives_no_time_is_answered_at_the_next_look(
    clock: Clock, waits: ProduceWaits, timeout_ms: int
) -> None:
    ends: list[str] = []
    add(waits, ends, timeout_ms)
    assert not ends, "the caller is not called amid its call"
    clock.advance(CHECK_S)
    assert ends == ["expired"]


def test_each_wait_has_its_own_time(clock: Clock, waits: ProduceWaits) -> None:
    ends: list[str] = []
    add(waits, ends, 30_000, "patient ")
    add(waits, ends, 2_000, "hasty ")
    clock.advance(10)
    assert ends == ["hasty expired"]
    assert len(waits) == 1
    clock.advance(30)
    assert ends == ["hasty expired", "patient expired"]


# Only one sound batch joins a transaction.

TRANSACTIONAL = replace(Batch(records(1)).of(7, 0, 0), attributes=0x10)


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda raw: raw + raw, MalformedBatch),
        (lambda raw: raw[:-1], MalformedBatch),
        (lambda raw: raw[:16] + b"\1" + raw[17:], MalformedBatch),
        (lambda raw: raw[:16] + b"\3" + raw[17:], CorruptRecord),
        (lambda raw: raw[:8] + b"\0\0\0\x0d" + raw[12:], CorruptRecord),
    ],
)
def test_bytes_other_than_one_sound_batch_do_not_join_a_transaction(
    spoil: Callable[[bytes], bytes], error: type[LogError]
) -> None:
    with pytest.raises(error):
        check_one_batch(memoryview(spoil(TRANSACTIONAL.encode())))


def test_a_cut_batch_behind_a_whole_one_is_left_out() -> None:
    raw = TRANSACTIONAL.encode()
    check_one_batch(memoryview(raw))
    check_one_batch(memoryview(raw + raw[:40]))


# Repeats: the fast path gives the full decoder's result, or does not recognize a request as a repeat.

TOPIC_ID = uuid.UUID("5f0c3f0e-32f9-4bb1-9c5c-6f8b74b2f1aa")
versions = pytest.mark.parametrize("version", range(FIRST_REPEATED_VERSION, 14))
client_ids = st.none() | st.text("ab-ü", max_size=12)
names = st.text("abc._-", min_size=1, max_size=140)
contents = st.sampled_from([0, 1, 61, 126, 127, 128, 16_382, 16_383, 70_000]).map(lambda size: b"r" * size)


def request(
    version: int, name: str, *partitions: tuple[int, bytes | None], acks: int = -1, topics: int = 1
) -> bytes:
    topic: dict[str, Any] = {"topic_id": str(TOPIC_ID)} if version == 13 else {"name": name}
    topic["partition_data"] = [{"index": index, "records": records} for index, records in partitions]
    return encode("produce", version, {"acks": acks, "timeout": 30_000, "topic_data": [topic] * topics})


def with_client_id(frame: bytes, client_id: str | None) -> bytes:
    size = int.from_bytes(frame[8:10], "big", signed=True)
    raw = None if client_id is None else client_id.encode()
    head = struct.pack(">h", -1) if raw is None else struct.pack(">h", len(raw)) + raw
    return frame[:8] + head + frame[10 + max(size, 0) :]


def read_whole(frame: bytes, version: int) -> ProduceRequest:
    view = memoryview(frame)
    position = parse_request_header(view).body_position
    if version >= 9:
        position = skip_tagged_fields(view, position)
    read: ProduceRequest = produce_reader(version)(view, position)[0]
    return read


def client_id_bytes(frame: bytes) -> int:
    return int.from_bytes(frame[8:10], "big", signed=True)


def read_as_repeat(frame: bytes, version: int) -> memoryview | None:
    view = memoryview(frame)
    return records_of(view, prefix_end(view, version, client_id_bytes(frame)), version)


@versions
@settings(max_examples=40)
@given(client_id=client_ids, name=names, index=st.integers(0, 2**31 - 1), records=contents)
def test_finds_the_records_of_one_partition(
    version: int, client_id: str | None, name: str, index: int, records: bytes
) -> None:
    frame = with_client_id(request(version, name, (index, records)), client_id)
    if version < 13 and version >= 9 and len(name) > 126:
        assert not is_for_one_partition(memoryview(frame), version, client_id_bytes(frame))
        return
    assert is_for_one_partition(memoryview(frame), version, client_id_bytes(frame))
    assert read_as_repeat(frame, version) == records


@versions
def test_other_requests_are_not_for_one_partition(version: int) -> None:
    view = memoryview(request(version, "t", (0, b"r" * 80), (1, b"r" * 80)))
    assert not is_for_one_partition(view, version, client_id_bytes(bytes(view)))
    view = memoryview(request(version, "t", (0, b"r" * 80), topics=2))
    assert not is_for_one_partition(view, version, client_id_bytes(bytes(view)))


@versions
def test_null_records_are_not_taken_for_a_repeat(version: int) -> None:
    assert read_as_repeat(request(version, "t", (0, None)), version) is None


@pytest.mark.tier("all")
@versions
@settings(max_examples=200)
@given(data=st.data(), name=st.text("abc", min_size=1, max_size=4))
def test_damaged_bytes_are_no_repeat_or_decode_the_same(version: int, data: st.DataObject, name: str) -> None:
    """If damaged bytes are recognized as a repeat, the full decoder must give the same result."""
    original = request(version, name, (3, b"r" * 70))
    end = prefix_end(memoryview(original), version, client_id_bytes(original))
    damaged = bytearray(original)
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(
            st.integers(8, min(len(damaged) - 1, end + 8)) | st.integers(8, len(damaged) - 1)
        )
        damaged[position] = data.draw(st.integers(0, 255))
    frame = bytes(damaged[: data.draw(st.integers(end, len(damaged)) | st.just(len(damaged)))])
    if frame[PREFIX_START:end] != original[PREFIX_START:end]:
        return
    try:
        records = records_of(memoryview(frame), end, version)
    except MalformedRequest:
        records = None
    if records is not None:
        whole = read_whole(frame, version)
        assert whole._replace(topics=[]) == read_whole(original, version)._replace(topics=[])
        ((key, ((partition, found),)),) = whole.topics
        assert (partition, found) == (3, records)
        assert key == (TOPIC_ID.bytes if version == 13 else name)


@versions
@settings(max_examples=100)
@given(data=st.data())
def test_both_ways_agree_on_requests_for_one_partition(version: int, data: st.DataObject) -> None:
    """If the full decoder accepts bytes in the plain layout, both decoders find the same records."""
    damaged = bytearray(request(version, "abc", (3, b"r" * 70)))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(8, 48))] = data.draw(st.integers(0, 255))
    frame = bytes(damaged)
    try:
        whole = read_whole(frame, version)
    except MalformedRequest:
        return
    if len(whole.topics) != 1 or len(whole.topics[0].partitions) != 1:
        return
    if is_for_one_partition(memoryview(frame), version, client_id_bytes(frame)):
        records = read_as_repeat(frame, version)
        assert records is None or records == whole.topics[0].partitions[0].records


@versions
@given(
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    name=names,
    partition=st.integers(0, 2**31 - 1),
    base_offset=st.integers(-1, 2**63 - 1),
    log_append_time_ms=st.integers(-1, 2**40),
    log_start_offset=st.integers(-1, 2**63 - 1),
)
def test_the_packed_answer_equals_the_encoded_answer(
    version: int,
    correlation_id: int,
    name: str,
    partition: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
) -> None:
    key = TOPIC_ID.bytes if version == 13 else name
    numbers = (base_offset, log_append_time_ms, log_start_offset)
    answer = RepeatedAnswer(version, key, partition).encode(correlation_id, *numbers)
    rows = [(key, [ProduceRow(partition, 0, *numbers)])]
    assert answer == encode_produce_response(version, correlation_id, rows)


@versions
def test_agrees_with_kio(version: int) -> None:
    frame = request(version, "topic", (5, b"r" * 90))
    header = parse_request_header(memoryview(frame))
    schema: Any = load_request_schema(0, version)
    entity = entity_reader(schema)(frame, header.body_position + (1 if version >= 9 else 0))[0]
    assert entity.topic_data[0].partition_data[0].records == read_as_repeat(frame, version)


# Who sent a batch: noted with the first batch of a producer on a connection.

ORDERS = "orders"
FIRST = replace(Batch(records(2)), base_timestamp=NOW_MS).of(7, 0, 0)


class Sender:
    """A connection from this address."""

    def __init__(self, dispatcher: Dispatcher, host: str) -> None:
        self.peer = FakePeer()
        self.peer.peer_host, self.peer.principal = host, "User:ann"
        self.peer.software = ClientSoftware("librdkafka", "2.11.0")
        self.identity = ClientIdentity(CLIENT_ID, host, "User:ann", "librdkafka 2.11.0")
        self._dispatcher = dispatcher

    def send(self, batch: Batch) -> None:
        rows = [{"index": 0, "records": batch.encode()}]
        fields = {"acks": -1, "timeout": 30_000, "topic_data": [{"name": ORDERS, "partition_data": rows}]}
        self._dispatcher.begin(memoryview(encode("produce", 8, fields)), self.peer)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path) as opened:
        await create(opened, ORDERS, 1)
        yield opened


async def test_the_first_batch_of_a_connection_says_whose_the_producer_is(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = node.services.partitions.counters.clients
    noted: list[tuple[int, int]] = []

    def note(self: ProducerClients, producer_id: int, producer_epoch: int, client: ClientIdentity) -> None:
        noted.append((producer_id, producer_epoch))
        really(self, producer_id, producer_epoch, client)

    really = ProducerClients.note
    monkeypatch.setattr(ProducerClients, "note", note)
    dispatcher = Dispatcher([produce.API], node.services)
    first, other = Sender(dispatcher, "10.0.0.7"), Sender(dispatcher, "10.0.0.8")
    for sequence in (0, 2, 4):
        first.send(replace(FIRST, base_sequence=sequence))
    assert (noted, clients.find(7, 0)) == ([(7, 0)], first.identity)
    other.send(replace(FIRST, base_sequence=6))  # the same request but for its connection
    assert (noted, clients.find(7, 0)) == ([(7, 0)] * 2, other.identity)
    first.send(FIRST.of(8, 0, 0))
    first.send(FIRST.of(8, 1, 0))
    assert noted[2:] == [(8, 0), (8, 1)]


async def test_verdicts_tell_who_sent_the_batch(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    dispatcher = Dispatcher([produce.API], node.services)
    before, after = Sender(dispatcher, "10.0.0.7"), Sender(dispatcher, "10.0.0.8")
    before.send(FIRST)
    before.send(FIRST)
    after.send(FIRST.of(7, 1, 0))
    before.send(FIRST.of(7, 0, 2))
    found = node.services.partitions.counters.verdicts.newest
    assert [(verdict.outcome, verdict.client) for verdict in found] == [
        ("duplicate", before.identity),
        ("INVALID_PRODUCER_EPOCH", before.identity),
    ]
    assert caplog.messages[-1].startswith(f"refused a batch of {before.identity} for orders-0 with INVALID")
    assert caplog.messages[-1].endswith(f"; the producer belongs to {after.identity} now")
    rows = (await answer(node, ListProducersRequest())).producers
    assert [(row.producer_epoch, row.client) for row in rows] == [(1, after.identity)]
