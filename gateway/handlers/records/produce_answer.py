"""Encodes the answer to a Produce, and names the leaders of partitions that other gateways lead.

Ends the wait of Produce requests for a bucket that does not answer, when the time is up that their clients
gave them.

A local disk writes or fails, so nobody waits for long. A bucket may be away for hours. Records whose wait has
ended stay in the log and become durable later; a producer that sends them again is answered with their
offsets then.
Source: Kafka's DelayedProduce.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering.api import Deferred, RequestContext
from seqgate.gateway.handlers.records.fetch_partition import name_leaders
from seqgate.gateway.handlers.records.produce_order import Refusals
from seqgate.gateway.protocol.produce_codec import ProduceRow, encode_produce_response
from seqgate.gateway.protocol.produce_codec import TopicRows as CodecTopicRows
from seqgate.gateway.runtime.backlogs.backlog import Backlog
from seqgate.gateway.runtime.coordinators.transaction_coordinator import TransactionCoordinator
from seqgate.gateway.runtime.coordinators.transactions_elsewhere import TransactionsElsewhere
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.partitions.recompressor import Recompressor
from seqgate.gateway.runtime.partitions.registry import Partitions
from seqgate.gateway.runtime.services import BatchCounters, NodeServices, Services
from seqgate.gateway.runtime.upkeep.disk_room import DiskRoom
from seqgate.log import Appended
from seqgate.seq_validator import RefusalLimit

logger = logging.getLogger(__name__)


FIRST_WITH_LEADERS: Final = 10
"""The first version whose answers name the leader that the client should ask (KIP-951)."""
_LED_ELSEWHERE: Final = frozenset((int(ErrorCode.not_leader_or_follower),))


def produce_frame(context: RequestContext[Any], topics: Sequence[CodecTopicRows]) -> bytes:
    """Return the whole frame of an answer."""
    version = context.api_version
    if version < FIRST_WITH_LEADERS or context.node.brokers.is_alone:
        return encode_produce_response(version, context.correlation_id, topics)
    topics, endpoints = name_leaders(context, topics, _LED_ELSEWHERE)
    return encode_produce_response(version, context.correlation_id, topics, endpoints)


# The services that Produce uses, as direct attributes: every batch needs them, and a longer lookup would cost
# time.


@dataclass(slots=True)
class ProduceServices:
    """The partitions, the transactions that batches take part in, the limits that may refuse a batch, and the
    threads that recompress.
    """

    node: NodeServices
    partitions: Partitions
    counters: BatchCounters
    transactions: TransactionCoordinator
    elsewhere: TransactionsElsewhere
    backlog: Backlog
    disk_room: DiskRoom
    recompressor: Recompressor
    waits: ProduceWaits | None
    """The limit of the wait for a bucket; None where records go to a local disk."""
    refusals: RefusalLimit
    """The refused batches that all connections remember."""
    append: Callable[..., Appended]
    """`Partition.append`, or now and then the same with a look at the clock."""

    @classmethod
    def of(cls, services: Services) -> ProduceServices:
        """Select these services from all services."""
        times = services.partitions.append_times
        selected = cls(
            node=services.node,
            partitions=services.partitions.registry,
            counters=services.partitions.counters,
            transactions=services.coordinators.transactions,
            elsewhere=services.coordinators.elsewhere,
            backlog=services.upkeep.backlog,
            disk_room=services.upkeep.disk_room,
            recompressor=services.partitions.recompressor,
            waits=ProduceWaits(services.node.loop) if services.partitions.flusher.unwritten else None,
            refusals=services.partitions.refusals,
            append=Partition.append,
        )
        if times is not None:
            times.follow(partial(setattr, selected, "append"))
        return selected


LOOK_S: Final = 1.0
"""The seconds between two looks at the requests that wait, so a wait may last so much longer."""


class ProduceWaits:
    """The rows of answers that wait until their records are in the bucket. Belongs to one event loop; idle
    while nothing waits.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[_Wait, None] = {}
        self._is_looking = False

    def __len__(self) -> int:
        """Return the number of rows that wait."""
        return len(self._waiting)

    def limited(
        self, timeout_ms: int, decided: Callable[[bool], None], expired: Callable[[], None]
    ) -> Callable[[bool], None]:
        """Return what to call when it is decided whether the records are durable: `decided`, unless `expired`
        was called before.
        """
        wait = _Wait(self._waiting, self._loop.time() + timeout_ms / 1000, decided, expired)
        self._waiting[wait] = None
        if not self._is_looking:
            self._look_later()
        return wait.decide

    def _look_later(self) -> None:
        self._is_looking = True
        self._loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._is_looking = False
        now_s = self._loop.time()
        for wait in [wait for wait in self._waiting if wait.deadline_s <= now_s]:
            wait.expire()
        if self._waiting:
            self._look_later()


class _Wait:
    """One row. Whichever of `decide` and `expire` comes first is passed on."""

    __slots__ = ("_decided", "_expired", "_waiting", "deadline_s")

    def __init__(
        self,
        waiting: dict[_Wait, None],
        deadline_s: float,
        decided: Callable[[bool], None],
        expired: Callable[[], None],
    ) -> None:
        self._waiting = waiting
        self.deadline_s = deadline_s
        self._decided = decided
        self._expired = expired

    def decide(self, persisted: bool) -> None:
        if self._waiting.pop(self, self) is None:
            self._decided(persisted)

    def expire(self) -> None:
        if self._waiting.pop(self, self) is None:
            self._expired()


# The answer to a Produce that waits until its records are persisted.

TopicRows = tuple[str | bytes, list[ProduceRow]]
Topics = list[TopicRows]
_UNSETTLED: Final = int(ErrorCode.not_enough_replicas_after_append)
_STORAGE_ERROR: Final = int(ErrorCode.kafka_storage_error)
_TIMED_OUT: Final = int(ErrorCode.request_timed_out)


class PendingAnswer:
    """An answer whose rows wait for flushes. The last flush to end resolves `deferred`."""

    __slots__ = ("context", "deferred", "has_state", "timeout_ms", "topics", "waiting")

    def __init__(self, context: RequestContext[ProduceServices], topics: Topics, timeout_ms: int) -> None:
        """Wait for up to `timeout_ms` where the records go to a bucket."""
        self.context = context
        self.topics = topics
        self.timeout_ms = timeout_ms
        self.deferred = Deferred()
        self.waiting = 1
        """The number of flushes to wait for, plus one until `complete`."""
        self.has_state = True
        """Whether the state of the transactions that the rows need is durable."""

    def wait(self, rows: list[ProduceRow], position: int, partition: Partition, info: Appended) -> None:
        """Delay the answer until the flush of the appended batch, whose row is at `position`."""
        self.waiting += 1
        decided: Callable[[bool], None] = partial(self._row_decided, rows, position, info)
        waits = self.context.services.waits
        if waits is not None:
            expired = partial(self._row_expired, rows, position, info)
            decided = waits.limited(self.timeout_ms, decided, expired)
        partition.when_decided(info.answer_after, decided)

    def wait_for_state(self, state: Partition, offset: int) -> None:
        """Delay the answer until the state of the transaction, which lists the rows' partitions, is durable."""
        self.waiting += 1
        decided: Callable[[bool], None] = self._state_decided
        waits = self.context.services.waits
        if waits is not None:
            decided = waits.limited(self.timeout_ms, decided, partial(self._state_decided, persisted=False))
        state.when_decided(offset, decided)

    def complete(self) -> Deferred:
        """Return the future of the answer. No row is added after this call."""
        self.waiting -= 1
        if not self.waiting:
            self._answer()
        return self.deferred

    def _row_decided(self, rows: list[ProduceRow], position: int, info: Appended, persisted: bool) -> None:
        if not persisted:
            self._refuse(rows, position, info, unflushed_row(rows[position].partition))
        self.waiting -= 1
        if not self.waiting:
            self._answer()

    def _row_expired(self, rows: list[ProduceRow], position: int, info: Appended) -> None:
        self._refuse(rows, position, info, expired_row(rows[position].partition))
        self.waiting -= 1
        if not self.waiting:
            self._answer()

    def _refuse(self, rows: list[ProduceRow], position: int, info: Appended, row: ProduceRow) -> None:
        """Refuse an appended batch. The log may lose it when it is reopened, so later batches must not be
        stored before it.
        """
        rows[position] = row
        if info.batch is not None:
            context = self.context
            key = next(key for key, found in self.topics if found is rows)
            refusals = Refusals(context.services.refusals, context.peer)
            refusals.note_batch(key, row.partition, info.batch, row.error_code)

    def _state_decided(self, persisted: bool) -> None:
        self.has_state = persisted
        self.waiting -= 1
        if not self.waiting:
            self._answer()

    def _answer(self) -> None:
        if not self.has_state:
            self._refuse_without_state()
        context = self.context
        try:
            frame = produce_frame(context, self.topics)
        except struct.error as error:
            # the topic name is too long for this version, because each invalid byte of its UTF-8 was replaced
            # by three
            logger.warning("a Produce of %s can't be answered: %s", context.peer.name, error)
            self.deferred.fail()
            return
        self.deferred.resolve(frame)

    def _refuse_without_state(self) -> None:
        """Refuse all rows with an error that clients retry.

        Otherwise a crash could leave their batches outside of the transaction.
        """
        message = "the state of the transaction could not be flushed"
        for _, rows in self.topics:
            for position, row in enumerate(rows):
                if not row.error_code:
                    rows[position] = ProduceRow(row.partition, _UNSETTLED, -1, -1, -1, message)


def unflushed_row(partition: int) -> ProduceRow:
    """Return the row of records that a failed flush has lost."""
    message = "the records could not be flushed; the partition is offline"
    return ProduceRow(partition, _STORAGE_ERROR, -1, -1, -1, message)


def expired_row(partition: int) -> ProduceRow:
    """Return the row of records that are in the log, and that the bucket did not have in time. Producers send
    them again.
    """
    message = "the records are not in the bucket yet"
    return ProduceRow(partition, _TIMED_OUT, -1, -1, -1, message)
