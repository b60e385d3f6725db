"""The answer to a Produce that waits until its records are persisted."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from functools import partial
from typing import Final

from kio.schema.errors import ErrorCode

from gateway.handlers.answering.api import Deferred, RequestContext
from gateway.handlers.records.produce_answer import produce_frame
from gateway.handlers.records.produce_order import Refusals
from gateway.handlers.records.produce_services import ProduceServices
from gateway.protocol.produce_codec import ProduceRow
from gateway.runtime.partitions.partition import Partition
from log import Appended

logger = logging.getLogger(__name__)

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
        """Refuse an appended batch. The log may lose it when it is reopened, so later batches must not be stored before it."""
        rows[position] = row
        if info.batch is not None:
            context = self.context
            key = next(key for key, found in self.topics if found is rows)
            refusals = Refusals(context.services.refusals, context.peer, context.client_id)
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
            # the topic name is too long for this version, because each invalid byte of its UTF-8 was replaced by three
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
    """Return the row of records that are in the log, and that the bucket did not have in time. Producers send them again."""
    message = "the records are not in the bucket yet"
    return ProduceRow(partition, _TIMED_OUT, -1, -1, -1, message)
