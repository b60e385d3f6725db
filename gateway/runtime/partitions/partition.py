"""A partition as the gateway serves it: its log, leader epoch, and requests waiting for flush or growth.

`AppendTimes` times producers' appends, one now and then, because two looks at the clock cost a tenth of an
append. Between two measurements producers' batches go straight to `Partition.append`, at no cost.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.durations import Durations
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.quota.backlog import ProduceGate
from seqgate.gateway.runtime.loop.clock import Clock
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.partitions.flusher import FlushWaiter, LogFlusher, LogOwner
from seqgate.gateway.tasks import settle
from seqgate.log import (
    Appended,
    DeletedSegment,
    FlushTicket,
    IncompatibleFormat,
    LogDirectory,
    LogError,
    PartitionLog,
    RemovalTicket,
    StorageFailed,
    retention,
)
from seqgate.log.format.batch_validation import HERE, RecordCheck
from seqgate.log.format.compression import Compression
from seqgate.seq_validator import RefusedBefore

logger = logging.getLogger(__name__)


STRICT_MS: Final = 30_000
"""Time (ms) for which a partition is strict (`Partition.strict_until_ms`) after a gateway of a cluster has
begun to lead it. Clients send a refused batch again within seconds.
"""
FLUSH_NEVER = 2**63 - 1
"""`flush.messages` and `flush.ms` of Kafka's defaults. With any `flush.messages` but 1 an append counts as
persisted once it is written.
"""


class HandedOver(LogError, code=int(ErrorCode.not_leader_or_follower)):
    """The partition is being handed over to another gateway, so nothing is appended here any more."""


class Partition:
    """A partition that this node leads. With `flush_messages` 1 the high watermark follows the flush; with
    any larger value it follows the write, as in Kafka, and a flush is started for every `flush_messages`
    records.
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
        self, log: PartitionLog, flusher: LogFlusher, *, leader_epoch: int, flush_messages: int, flush_ms: int
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
        """Until when an unknown producer's batch that is not its first must come twice; 0 if it need not."""
        self._records_before = log.log_end_offset + log.segments.cut_records
        """The records that were appended before the partition was opened."""
        self._bytes_before = log.segments.appended_bytes
        """The bytes that were appended to the log before the partition was opened."""
        self.fetched_bytes = 0
        """The bytes of records in answers to fetches since the partition was opened."""
        self.closed = False
        self.is_handed_over = False
        """Whether another gateway is about to lead the partition: a record appended now would be lost."""
        self._flusher = flusher
        self._unflushed: tuple[int, int] | None = None
        """The recovery point, and the time at which records after it were first seen."""
        self._watchers: dict[object, Callable[[], None]] = {}
        log.begin_leader_epoch(leader_epoch)

    @property
    def appended_records(self) -> int:
        """Return the records appended since the opening. It never falls, even if some are cut off."""
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
        may_derive: bool = False,
        record_check: RecordCheck = HERE,
    ) -> Appended:
        """Append one batch with `PartitionLog.append`, and start its flush. Raises LogError, HandedOver;
        TakesLong as `record_check` says.
        """
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
                may_derive=may_derive,
                record_check=record_check,
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
                # flush a closed segment, as Kafka does, so that after a crash only the active segment is
                # checked
                self._flusher.mark_dirty(self)
            if self._watchers:
                self._tell_watchers()
        return info

    def append_end_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        now_ms: int,
        transaction_version: int = 0,
    ) -> Appended:
        """End a producer's transaction in this partition, and start the flush of the marker. Raises
        InvalidProducerEpoch, TransactionCoordinatorFenced, and as `append` does.
        """
        marker = self.log.end_marker(
            producer_id,
            producer_epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            now_ms=now_ms,
            transaction_version=transaction_version,
        )
        return self.append(marker, now_ms, is_client=False)

    def check_leader_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """Return the error for the leader epoch that a client names as present; -1: none (KIP-320)."""
        if current_leader_epoch in {-1, self.leader_epoch}:
            return ErrorCode.none
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.fenced_leader_epoch
        return ErrorCode.unknown_leader_epoch

    def is_persisted(self, offset: int) -> bool:
        """Whether the records up to `offset` are persisted: consumers see them, answers may mention them."""
        return offset < self.log.high_watermark

    def when_decided(self, offset: int, then: Callable[[bool], None]) -> None:
        """Call `then` after the flush of the records up to `offset`: False if that failed, else True. Ask
        `is_persisted` first: this method waits for a flush even if the records are persisted.
        """
        self._flusher.wait(FlushWaiter(self, offset, then))

    async def persisted(self, offset: int) -> bool:
        """Wait until the records up to `offset` are persisted; False when their flush fails."""
        if self.is_persisted(offset):
            return True
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.when_decided(offset, partial(settle, done))
        return await done

    async def commit(self, ticket: FlushTicket) -> OSError | None:
        """Make a ticket of the log durable outside of flush rounds; return its error. Do not cancel."""
        return await self._flusher.commit(self, ticket)

    def flush_finished(self) -> None:
        """Move the high watermark: a flush is over."""
        log = self.log
        log.advance_high_watermark(log.unflushed.durable_end_offset)
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
        elif not 0 <= now_ms - self._unflushed[1] < self.flush_ms:  # below 0: the clock was set back
            self.start_flush()

    def watch(self, key: object, callback: Callable[[], None]) -> None:
        """Call back, until `unwatch`, when the high watermark moves, or it goes offline or is closed."""
        self._watchers[key] = callback

    def unwatch(self, key: object) -> None:
        self._watchers.pop(key, None)

    def _tell_watchers(self) -> None:
        for callback in list(self._watchers.values()):
            callback()

    def close(self) -> None:
        self.closed = True
        self._tell_watchers()
        self._watchers.clear()


Append = Callable[..., Appended]


class AppendTimes:
    """Puts itself before `Partition.append` once whenever `arm` is called. Refused batches do not count."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.durations = Durations()
        self._seconds = seconds
        self._followed: list[Callable[[Append], object]] = []

    def follow(self, append_with: Callable[[Append], object]) -> None:
        """Time appends of a part, which `append_with` tells the function to append with."""
        self._followed.append(append_with)

    def arm(self) -> None:
        for append_with in self._followed:
            append_with(self._append)

    def _append(
        self,
        partition: Partition,
        records: memoryview,
        now_ms: int,
        *,
        begins_at_zero: bool = False,
        before: RefusedBefore | None = None,
        record_check: RecordCheck = HERE,
    ) -> Appended:
        """Append one batch as `Partition.append` does, and time it. Raises the same errors."""
        for append_with in self._followed:
            append_with(Partition.append)
        begun_s = self._seconds()
        info = partition.append(
            records, now_ms, begins_at_zero=begins_at_zero, before=before, record_check=record_check
        )
        self.durations.add(self._seconds() - begun_s)
        return info


async def write_checkpoint(log_directory: LogDirectory) -> None:
    """Write the recovery points of this moment to the checkpoint, in a thread. Raises OSError."""
    async for _ in in_slices(log_directory.gather_checkpoint()):
        pass
    await asyncio.to_thread(log_directory.write_checkpoint)


async def persist_start_and_remove(
    partition: Partition, ticket: RemovalTicket, now_ms: int
) -> Sequence[DeletedSegment]:
    """Make the ticket, and so the new start, durable; then remove and return the first segments. Raises
    LogError. When the disk fails, the partition goes offline.
    """
    log = partition.log
    error = await partition.commit(ticket.flush)
    gone: Sequence[DeletedSegment] = ()
    if error is None:
        gone = retention.complete_removal(log, ticket, now_ms)
    else:
        retention.fail_removal(log, ticket, error)
    partition.flush_finished()
    return gone


async def persist_files(partition: Partition) -> None:
    """Persist everything that the partition has written, with what flushes in flight carry.

    When the disk fails, the partition goes offline. Do not cancel this: the log waits for its ticket.
    """
    log = partition.log
    ticket = log.prepare_flush(counts_out=True)
    if ticket is None:
        return
    error = await partition.commit(ticket)
    if error is None:
        log.complete_flush(ticket)
    else:
        log.fail_flush(ticket, error)
    partition.flush_finished()


class Readiness:
    """Tells whether the records of a partition are here. All methods belong to the event loop.

    In a gateway whose data directory has all that it leads they always are, and the log of a lost partition
    stays open. Others bring records here before they serve them.
    """

    def begin(self, image: MetadataImage) -> None:
        """Take the metadata as a start has read it, before anything asks."""

    def is_ready(self, topic_id: uuid.UUID, index: int) -> bool:  # noqa: ARG002 - others ask
        """Return whether a partition that this gateway leads may be served."""
        return True

    def lost(self, topic: str, topic_id: uuid.UUID, index: int) -> None:
        """Note that another gateway leads a partition. Nobody is served from its log any more."""


ALWAYS_READY: Final = Readiness()


_EXPECTED: Final = (IncompatibleFormat, LogError, OSError)
"""Errors of a recovery by a failing disk or damage. Others are bugs, or a lack of memory or threads."""


class Recoveries:
    """The recoveries under way, at most one of each partition. Threads do them while the gateway serves, so
    that the event loop waits for no check and no fsync.
    """

    def __init__(self, flusher: LogFlusher, clock: Clock) -> None:
        self._flusher = flusher
        self._clock = clock
        self._under_way: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._is_finished = False

    async def reopen(self, log: PartitionLog, owner: LogOwner | None) -> None:
        """Bring an offline log back; `owner` serves it, if anyone does. Joins a recovery that is under way,
        which a cancelled caller does not stop. Raises LogError, IncompatibleFormat, OSError: still offline.
        """
        await asyncio.shield(self._start((log.topic, log.partition), lambda: self._reopen(log, owner)))

    def open_soon(self, directory: LogDirectory, key: tuple[str, int], then: Callable[[], object]) -> None:
        """Recover a log that is not open, in the background, and call `then` when it can be opened."""
        self._start(key, lambda: self._open(directory, key, then))

    async def open(self, directory: LogDirectory, key: tuple[str, int]) -> None:
        """Recover a log that is not open, if possible, to be opened afterwards. Joins a recovery under way,
        which continues when the caller is cancelled.
        """
        if not self._is_finished:
            await asyncio.shield(self._start(key, lambda: self._open(directory, key, lambda: None)))

    async def settled(self, key: tuple[str, int]) -> None:
        """Wait until no recovery of a partition is under way."""
        task = self._under_way.get(key)
        if task is not None:
            await asyncio.wait([task])

    async def finish(self) -> None:
        """Wait for the recoveries under way. Afterwards no thread uses the data directory."""
        self._is_finished = True
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    def _start(
        self, key: tuple[str, int], work: Callable[[], Coroutine[Any, Any, None]]
    ) -> asyncio.Task[None]:
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.get_running_loop().create_task(work())
            task.add_done_callback(lambda done: self._over(key, done))
        return task

    def _over(self, key: tuple[str, int], task: asyncio.Task[None]) -> None:
        del self._under_way[key]
        # A caller that waits for the task gets its error too, and reports an expected one.
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, _EXPECTED):
            logger.error("the recovery of %s-%d failed in an unexpected way", *key, exc_info=error)

    async def _reopen(self, log: PartitionLog, owner: LogOwner | None) -> None:
        recovery = log.begin_recovery(self._clock.now_ms())
        try:
            await asyncio.to_thread(recovery.run)
        finally:
            log.end_recovery(recovery, self._clock.now_ms())
        self._flusher.reopened(log)
        if isinstance(owner, Partition):
            log.begin_leader_epoch(owner.leader_epoch)  # the check cuts off an epoch that has no records yet
        if owner is not None:
            if log.unflushed.has_captures or log.recovery_point < log.log_end_offset:
                self._flusher.mark_dirty(owner)
            owner.flush_finished()

    async def _open(self, directory: LogDirectory, key: tuple[str, int], then: Callable[[], object]) -> None:
        try:
            recovery = directory.begin_recovery(key)
            if recovery is None:
                return
            try:
                await asyncio.to_thread(recovery.run)
            finally:
                directory.end_recovery(key, recovery)
        except _EXPECTED as error:
            logger.error("%s-%d can't be recovered: %s", *key, error)  # noqa: TRY400 - needs no traceback
            return
        if recovery.stop is not None:
            then()
