"""One partition as the gateway serves it: its log, its leader epoch, and the requests that wait for its flush or its
growth.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from functools import partial
from typing import Final

from kio.schema.errors import ErrorCode

from gateway.quota.backlog import ProduceGate
from gateway.runtime.partitions.log_flusher import LogFlusher
from gateway.runtime.partitions.waiting import Waiting
from log import Appended, FlushTicket, LogError, PartitionLog, StorageFailed
from log.format.compression import Compression
from log.markers import end_marker
from seq_validator import RefusedBefore

STRICT_MS: Final = 30_000
"""Time (ms) for which a partition is strict (`Partition.strict_until_ms`) after a gateway of a cluster has begun to lead it. Clients
send a refused batch again within seconds.
"""
FLUSH_NEVER = 2**63 - 1
"""`flush.messages` of Kafka's page-cache behaviour: an append counts as persisted once it is written."""


class HandedOver(LogError):
    """The partition is being handed over to another gateway, so nothing is appended here any more."""

    kafka_error_code = int(ErrorCode.not_leader_or_follower)


class Partition:
    """A partition that this node leads.

    With `flush_messages` 1 the high watermark follows the flush; with any larger value it follows the
    write, as in Kafka, and a flush is started for every `flush_messages` records.
    """

    __slots__ = (
        "_bytes_before",
        "_flusher",
        "_records_before",
        "_unflushed",
        "_watchers",
        "closed",
        "compression",
        "fetched_bytes",
        "flush_messages",
        "flush_ms",
        "gate",
        "index",
        "is_handed_over",
        "leader_epoch",
        "log",
        "strict_until_ms",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        log: PartitionLog,
        flusher: LogFlusher,
        *,
        leader_epoch: int,
        flush_messages: int,
        flush_ms: int,
    ) -> None:
        self.topic = log.topic
        self.index = log.partition
        self.topic_id: uuid.UUID = log.topic_id
        self.log = log
        self.leader_epoch = leader_epoch
        self.flush_messages = flush_messages
        self.flush_ms = flush_ms
        self.compression: Compression | None = None
        """The codec in which batches are stored; None stores each batch as it was sent."""
        self.gate: ProduceGate | None = None
        """The gate that producers must pass in a topic with a backlog quota."""
        self.strict_until_ms = 0
        """Until when a batch that is not the first of an unknown producer must come twice; 0 if it need not."""
        self._records_before = log.log_end_offset + log.segments.cut_records
        """The records that were appended before the partition was opened."""
        self._bytes_before = log.segments.appended_bytes
        """The bytes that were appended to the log before the partition was opened."""
        self.fetched_bytes = 0
        """The bytes of records in answers to fetches since the partition was opened."""
        self.closed = False
        self.is_handed_over = False
        """Whether another gateway is about to lead the partition: a record that is appended now would be lost."""
        self._flusher = flusher
        self._unflushed: tuple[int, int] | None = None
        """The recovery point, and the time at which records after it were first seen."""
        self._watchers: dict[object, Callable[[], None]] = {}
        log.begin_leader_epoch(leader_epoch)

    @property
    def appended_records(self) -> int:
        """Return the number of records appended since the partition was opened. It never falls, also when a reopening cuts off records."""
        return self.log.log_end_offset + self.log.segments.cut_records - self._records_before

    @property
    def appended_bytes(self) -> int:
        """Return the bytes of batches appended since the partition was opened."""
        return self.log.segments.appended_bytes - self._bytes_before

    def begin_leader_epoch(self, leader_epoch: int) -> None:
        """Lead the partition in a new epoch. Requests that name the epoch before are refused from now on."""
        self.leader_epoch = leader_epoch
        self.log.begin_leader_epoch(leader_epoch)
        self.flush_captures()

    def append(
        self,
        records: bytes | memoryview,
        now_ms: int,
        *,
        is_client: bool = True,
        begins_at_zero: bool = False,
        before: RefusedBefore | None = None,
    ) -> Appended:
        """Append one batch with `PartitionLog.append`, and start its flush. Raises LogError, HandedOver."""
        if self.is_handed_over:
            raise HandedOver(f"{self.topic}-{self.index} is being handed over to another gateway")
        log = self.log
        try:
            info = log.append(
                records,
                now_ms=now_ms,
                leader_epoch=self.leader_epoch,
                is_client=is_client,
                begins_at_zero=begins_at_zero,
                before=before,
            )
        except StorageFailed:
            self._tell_watchers()  # Wake the fetches that wait for records.
            raise
        if info.is_duplicate:
            return info
        if self.flush_messages == 1:
            self._flusher.mark_dirty(self)
        else:
            log.advance_high_watermark_to_end()
            rolled = info.base_offset == log.segments.active.base_offset > 0
            if rolled or log.log_end_offset - log.recovery_point >= self.flush_messages:
                # flush a closed segment, as Kafka does, so that after a crash only the active segment is checked
                self._flusher.mark_dirty(self)
            if self._watchers:
                self._tell_watchers()
        return info

    def append_end_marker(
        self, producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int, now_ms: int
    ) -> Appended:
        """End a producer's transaction in this partition, and start the flush of the marker.

        Raises InvalidProducerEpoch, TransactionCoordinatorFenced (see `PartitionLog.end_marker`), and as `append` does.
        """
        marker = end_marker(
            self.log,
            producer_id,
            producer_epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            now_ms=now_ms,
        )
        return self.append(marker, now_ms, is_client=False)

    def check_leader_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """Return the error for the leader epoch that a client names as the present one; -1 stands for no
        epoch (KIP-320).
        """
        if current_leader_epoch in {-1, self.leader_epoch}:
            return ErrorCode.none
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.fenced_leader_epoch
        return ErrorCode.unknown_leader_epoch

    def is_persisted(self, offset: int) -> bool:
        """Whether the records up to `offset` are persisted, so that consumers see them and answers may mention them."""
        return offset < self.log.high_watermark

    def when_decided(self, offset: int, then: Callable[[bool], None]) -> None:
        """Call `then` after the flush of the records up to `offset`, with True if they are persisted and
        False if the flush failed.

        Ask `is_persisted` first: this method waits for a flush even if the records are persisted.
        """
        self._flusher.wait(Waiting(self, offset, then))

    async def persisted(self, offset: int) -> bool:
        """Wait until the records up to `offset` are persisted; False when their flush fails."""
        if self.is_persisted(offset):
            return True
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.when_decided(offset, partial(_tell, done))
        return await done

    async def commit(self, ticket: FlushTicket) -> OSError | None:
        """Make a ticket of the log durable outside of the flush rounds; return its error. Do not cancel this."""
        return await self._flusher.commit(self, ticket)

    def flush_finished(self) -> None:
        """Move the high watermark: a flush is over."""
        log = self.log
        if log.recovery_point > log.high_watermark:
            log.advance_high_watermark(log.recovery_point)
        if self._watchers:
            self._tell_watchers()

    def flush_captures(self) -> None:
        """Flush in the background the state files that a load or a change of settings has made necessary."""
        if self.log.unflushed.has_captures:
            self.start_flush()

    def start_flush(self) -> None:
        """Flush everything written so far, in the background."""
        self._flusher.mark_dirty(self)

    def flush_by_time(self, now_ms: int) -> None:
        """Flush records that have been unflushed for `flush.ms`; the gateway calls this regularly."""
        log = self.log
        if log.recovery_point >= log.log_end_offset:
            self._unflushed = None
        elif self._unflushed is None or self._unflushed[0] != log.recovery_point:
            self._unflushed = (log.recovery_point, now_ms)
        elif now_ms - self._unflushed[1] >= self.flush_ms:
            self.start_flush()

    def watch(self, key: object, callback: Callable[[], None]) -> None:
        """Call back, until `unwatch`, whenever the high watermark moves, and when the partition goes offline or is
        closed.
        """
        self._watchers[key] = callback

    def unwatch(self, key: object) -> None:
        """Stop calling back for `key`."""
        self._watchers.pop(key, None)

    def _tell_watchers(self) -> None:
        for callback in list(self._watchers.values()):
            callback()

    def close(self) -> None:
        """Tell all watchers that this partition is closed."""
        self.closed = True
        self._tell_watchers()
        self._watchers.clear()


def _tell(done: asyncio.Future[bool], persisted: bool) -> None:
    if not done.done():
        done.set_result(persisted)
