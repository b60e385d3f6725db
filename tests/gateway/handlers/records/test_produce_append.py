"""A Produce gets the right answer at the right time, also when its partitions fail, reopen or are deleted
meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seqgate.gateway.admin.producers import ListProducersRequest
from seqgate.gateway.handlers.answering.api import ClientSoftware
from seqgate.gateway.handlers.records import produce
from seqgate.gateway.handlers.records.produce import PendingAnswer
from seqgate.gateway.handlers.records.produce_append import (
    CHECK_S,
    STORAGE_ERROR,
    ProduceWaits,
    check_one_batch,
)
from seqgate.gateway.protocol.produce_codec import ProduceRow
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

    def note(
        self: ProducerClients, producer_id: int, producer_epoch: int, client: ClientIdentity, now_ms: int
    ) -> None:
        noted.append((producer_id, producer_epoch))
        really(self, producer_id, producer_epoch, client, now_ms)

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
