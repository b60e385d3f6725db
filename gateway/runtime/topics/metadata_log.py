"""The metadata log: every change of topics, configurations and producer-id blocks is durable before it takes
effect.

A change is decided on the image, written to the log of `__cluster_metadata` as one batch, and made durable.
Only then is it replayed into the image and passed to the listeners. The start builds the image by the same
replay. Recovery cuts off a batch that a crash tore, so a change is stored completely or not at all. A start
shortens a log that is mostly history: it stores the image as one batch, and deletes what came before.

A journal knows the image, how far it is in the log, and how a change becomes durable: `LocalJournal` appends
the change to the log of this data directory and flushes the log, `SharedJournal` writes to a bucket, and the
`WorkerJournal` of one of several workers asks the process that supervises it.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar

from seqgate.gateway.metadata.decision import Decision
from seqgate.gateway.metadata.image import METADATA_TOPIC, MetadataImage, records_of
from seqgate.gateway.metadata.records import MetadataRecord, SnapshotRecord, decode_record, encode_record
from seqgate.gateway.runtime.loop.clock import Clock
from seqgate.gateway.runtime.partitions.flusher import LogFlusher
from seqgate.gateway.tasks import start_task
from seqgate.log import CorruptRecord, LogConfig, LogDirectory, PartitionLog, StorageFailed, retention
from seqgate.log.format.records import NewRecord, build_batch

logger = logging.getLogger(__name__)

#: Kafka gives the metadata topic this id (org.apache.kafka.common.Uuid.METADATA_TOPIC_ID).
METADATA_TOPIC_ID: Final = uuid.UUID(int=1)
MOST_UNDER_WAY: Final = 1_000
"""Background changes in progress; a further one is dropped, and its client asks again."""
_INT32_MAX: Final = 2**31 - 1

SHORTENED_FROM_BYTES: Final = 8 << 20
"""The size up to which a metadata log is never shortened, because a start reads it in a moment."""
SHORTEN_FACTOR: Final = 3
"""A log is shortened when it has this many times the records of its image."""

T = TypeVar("T")
Decide = Callable[[MetadataImage], Decision[T]]

METADATA_LOG_CONFIG: Final = LogConfig(max_message_bytes=_INT32_MAX, retention_ms=-1, retention_bytes=-1)


def open_metadata_log(directory: LogDirectory) -> PartitionLog:
    """Open the partition log of `__cluster_metadata`, and create it at the first start. Raises LogError,
    OSError, IncompatibleFormat. Raises CorruptRecord also when the log is missing or empty, and the data
    directory shows that it had records: it was durable up to some offset, or there are other partitions.
    """
    log = directory.get(METADATA_TOPIC, 0, is_mended=False)
    why = _why_it_is_lost(directory) if log is None or not log.log_end_offset else None
    if why is not None:
        raise CorruptRecord(
            f"{METADATA_TOPIC}-0 is missing, empty or kept as *-stray, but {why}; put it back from its "
            "*-stray directory or a backup, or start with an empty data directory"
        )
    if log is None:
        if directory.has_taken_names:
            directory.checkpoint()
        log = directory.create(METADATA_TOPIC, METADATA_TOPIC_ID, 0, METADATA_LOG_CONFIG)
    log.update_config(METADATA_LOG_CONFIG)
    return log


def _why_it_is_lost(directory: LogDirectory) -> str | None:
    """Return the evidence that a missing or empty metadata log had records; None in a new data directory. A
    partition is created after the record of its topic is durable.
    """
    end_offset = directory.checkpointed(METADATA_TOPIC, 0)
    if end_offset:
        return f"it was durable up to offset {end_offset}"
    keys = [*directory.stored(), *((log.topic, log.partition) for log in directory.logs())]
    others = [f"{topic}-{index}" for topic, index in keys if topic != METADATA_TOPIC]
    return f"there are other partitions, such as {others[0]}" if others else None


class MetadataLog:
    """The metadata image, and the only way to change it.

    Changes are made one at a time, each durable before it is folded in. A change continues when its caller is
    cancelled, because its records may be in the log already.

    A read of the log serves all changes that waited when it began: where the log is slow, clients that ask
    again and again would otherwise queue up more reads than are ever made. A commit is a read, too.
    """

    def __init__(self, journal: MetadataJournal) -> None:
        self._journal = journal
        self._folded = journal.folded
        self.image = journal.folded.image
        self.when_committed: list[Callable[[], None]] = []
        """Called after each change that this gateway has made, once the change is folded in."""
        self._lock = asyncio.Lock()
        self._begun = 0
        """The number of the newest read of the log."""
        self._seen = 0
        """The number of the newest read that has ended: the image has what the log had when it began."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._next_read: tuple[int, asyncio.Task[None]] | None = None
        """The newest read without a change, and the number of the newest read that had begun before it."""
        self._under_way: set[Hashable] = set()
        """The keys of the background changes in progress."""

    def replay(self) -> None:
        """Build the image from the local log before anything else. Raises UnknownRecordError, LogError."""
        count = self._folded.replay()
        logger.info(
            "metadata loaded: records %d, topics %d, partitions %d",
            count,
            len(self.image.topics_by_name),
            self.image.partition_count,
        )

    def shorten(self, directory: LogDirectory, now_ms: int) -> None:
        """Shorten the local log if it is mostly history that nothing needs any more. Call after `replay`,
        before anything else. Raises StorageFailed.
        """
        if _is_mostly_history(self.log, self.image) and _has_only_known_logs(directory, self.image):
            shorten_log(self.log, self.image, now_ms)
            self._folded.end_offset = self.log.log_end_offset

    async def catch_up(self) -> None:
        """Fold in everything in the log by now, others' writes too. Callers share reads. Raises LogError."""
        known = self._next_read
        if known is None or known[0] != self._begun or known[1].done():
            known = self._next_read = self._begun, self._start(lambda _: Decision((), None))
        await asyncio.shield(known[1])

    def catch_up_soon(self) -> None:
        """Begin to fold in everything that is in the log by now; an error is the next caller's."""
        start_task(self._tasks, self.catch_up()).add_done_callback(self._caught_up)

    @staticmethod
    def _caught_up(reading: asyncio.Task[None]) -> None:
        if not reading.cancelled() and (error := reading.exception()) is not None:
            logger.debug("the metadata of the cluster can't be read now: %s", error)

    @property
    def last_offset(self) -> int:
        """The offset of the newest record in the image; -1 without any."""
        return self._folded.end_offset - 1

    @property
    def is_changing(self) -> bool:
        """Whether a change is in progress, so that listeners may not have carried it out yet."""
        return self._lock.locked()

    @property
    def log(self) -> PartitionLog:
        """The local log that stores the metadata. A worker has none: its supervisor stores the metadata."""
        assert self._folded.log is not None
        return self._folded.log

    def add_listener(self, listener: Listener) -> None:
        """Call `listener` with the records of every later change."""
        self._folded.listeners.append(listener)

    async def commit(self, decide: Decide[T]) -> T:
        """Decide on the present image and carry the decision out; return its answer once it is durable.
        `decide` runs again, on the newer image, when another gateway changed the metadata meanwhile. It must
        change nothing. Raises StorageFailed if the change could not be made durable and is not in the image.
        """
        return await asyncio.shield(self._start(decide))

    def commit_soon(self, key: Hashable, decide: Decide[T], when_durable: Callable[[T], None]) -> None:
        """Carry out a decision in the background, unless one with this key is in progress or too many are.
        `when_durable` is called with the answer once the change is durable.
        """
        if key in self._under_way or len(self._under_way) >= MOST_UNDER_WAY:
            return
        self._under_way.add(key)
        self._start(decide).add_done_callback(lambda done: self._finish_background(key, done, when_durable))

    def _finish_background(
        self, key: Hashable, task: asyncio.Task[T], when_durable: Callable[[T], None]
    ) -> None:
        self._under_way.discard(key)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            when_durable(task.result())
        else:
            logger.error("metadata change %s failed: %s", key, error)

    def _start(self, decide: Decide[T]) -> asyncio.Task[T]:
        """Carry out a decision after those before it. The task raises LogError, and what `decide` raises."""
        task = start_task(self._tasks, self._carry_out(decide))
        # The error of a change whose caller was cancelled has nobody left to take it.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def _carry_out(self, decide: Decide[T]) -> T:
        before = self._begun
        async with self._lock:
            if self._seen <= before:
                await self._numbered(self._journal.catch_up())
            while True:
                change = decide(self.image)
                if not change.records:
                    return change.answer
                if await self._numbered(self._journal.commit(change.records)):
                    for committed in self.when_committed:
                        committed()
                    return change.answer

    async def _numbered(self, read: Awaitable[T]) -> T:
        self._begun += 1
        found = await read
        self._seen = self._begun
        return found

    async def close(self) -> None:
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
            # Since Python 3.12 a gather of ended tasks does not yield, and `_tasks` would never lose them.
            await asyncio.sleep(0)


#: A function called with the records of each change after their replay; the next change waits for it.
Listener = Callable[[Sequence[MetadataRecord]], Awaitable[None]]


def read_records(log: PartitionLog, offset: int) -> Iterator[MetadataRecord]:
    """Yield all records from `offset` on. Raises LogError, UnknownRecordError for a later release's log."""
    for record in log.replay_records(offset):
        yield decode_record(record.value or b"")


def replay_log(log: PartitionLog, image: MetadataImage) -> int:
    """Replay the log into the image; return the record count. Raises UnknownRecordError, LogError."""
    count = 0
    for record in read_records(log, log.log_start_offset):
        image.replay(record)
        count += 1
    return count


def change_batch(records: Sequence[MetadataRecord], now_ms: int) -> bytes:
    """Return the records of one change as a record batch without its place in the log."""
    return build_batch([NewRecord(encode_record(record), timestamp=now_ms) for record in records])


def _is_mostly_history(log: PartitionLog, image: MetadataImage) -> bool:
    if log.segments.size_bytes <= SHORTENED_FROM_BYTES:
        return False
    needed = 1 + sum(1 for _ in records_of(image))
    return log.log_end_offset - log.log_start_offset >= SHORTEN_FACTOR * needed


def _has_only_known_logs(directory: LogDirectory, image: MetadataImage) -> bool:
    """Return whether each log is its topic's: of another one the history tells whether its topic was deleted.
    After a crash the ids are not read yet.
    """
    stored = [(stored.topic_id, index) for (_, index), stored in directory.stored().items()]
    opened = [(log.topic_id, log.partition) for log in directory.logs() if log.topic != METADATA_TOPIC]
    return directory.was_clean and all(
        topic_id is not None and image.partition(topic_id, index) is not None
        for topic_id, index in (*stored, *opened)
    )


def flush_at_once(log: PartitionLog) -> None:
    """Make all that the log has durable, in this thread. Raises StorageFailed."""
    ticket = log.prepare_flush()
    if ticket is None:
        return
    error = log.environment.durability.commit([ticket])[0]
    if error is not None:
        log.fail_flush(ticket, error)
        raise StorageFailed(f"{log.place} could not be flushed: {error}")
    log.complete_flush(ticket)


def shorten_log(log: PartitionLog, image: MetadataImage, now_ms: int) -> None:
    """Store the image at the end of the log, durably, and delete the records before it. After a crash in
    between a replay finds the image behind the other records, and begins anew there. Does nothing where the
    disk has not ten times the room. Raises StorageFailed; the log is then offline.
    """
    batch = change_batch([SnapshotRecord(), *records_of(image)], now_ms)
    if log.environment.storage.free_bytes(log.directory) < 10 * len(batch):
        return
    before, start_offset = log.log_start_offset, log.log_end_offset
    log.roll(now_ms)
    log.append(batch, now_ms=now_ms, is_client=False)
    flush_at_once(log)
    log.advance_high_watermark(log.log_end_offset)
    removal = retention.prepare_delete_records(log, start_offset, now_ms)
    assert removal is not None
    error = log.environment.durability.commit([removal.flush])[0]
    if error is not None:
        retention.fail_removal(log, removal, error)
        raise StorageFailed(f"the start of {log.place} could not be moved: {error}")
    retention.complete_removal(log, removal, now_ms)
    logger.info(
        "metadata log shortened: records deleted %d, written %d",
        start_offset - before,
        log.log_end_offset - start_offset,
    )


class FoldedImage:
    """The image of the metadata, its listeners, and the local log that it is built from."""

    def __init__(
        self, log: PartitionLog | None, image: MetadataImage | None = None, end_offset: int = 0
    ) -> None:
        """Take this process's log; or, if another process has the log, the image up to `end_offset`."""
        self.image = MetadataImage() if image is None else image
        self.log = log
        self.listeners: list[Listener] = []
        self.end_offset = end_offset if log is None else log.log_start_offset
        """The offset after the newest record in the image."""

    def replay(self) -> int:
        """Build the image from the local log; count the records. Raises UnknownRecordError, LogError."""
        assert self.log is not None
        count = replay_log(self.log, self.image)
        self.log.advance_high_watermark(self.log.log_end_offset)
        self.end_offset = self.log.log_end_offset
        return count

    async def fold_in(self, records: Sequence[MetadataRecord], end_offset: int) -> None:
        """Replay the records of a change into the image, and pass them to the listeners."""
        for record in records:
            self.image.replay(record)
        self.end_offset = end_offset
        for listener in self.listeners:
            await listener(records)


class MetadataJournal(Protocol):
    """The log of the metadata: changes are durable before they are folded in. Others may write, too."""

    @property
    def folded(self) -> FoldedImage:
        """The image with all changes that were committed or caught up with."""

    async def catch_up(self) -> None:
        """Fold in all records that are in the log and not in the image. Raises LogError."""

    async def commit(self, records: Sequence[MetadataRecord]) -> bool:
        """Write the records right behind those of the image, and fold them in once they are durable. Return
        False where another writer was first: its records are folded in, and these are not written. Raises
        LogError.
        """


class LocalJournal:
    """The metadata of one data directory, which no other gateway changes."""

    def __init__(self, log: PartitionLog, flusher: LogFlusher, clock: Clock) -> None:
        self.folded = FoldedImage(log)
        self._log = log
        self._flusher = flusher
        self._clock = clock

    async def catch_up(self) -> None:
        """Fold in what a failed flush has left in the log, which was recovered since. Raises LogError."""
        if self.folded.end_offset != self._log.log_end_offset:
            await self._fold_in_when_durable(list(read_records(self._log, self.folded.end_offset)))

    async def commit(self, records: Sequence[MetadataRecord]) -> bool:
        """Write the records in one batch, flush, and fold them in. Raises LogError, with none folded in."""
        now_ms = self._clock.now_ms()
        self._log.append(change_batch(records, now_ms), now_ms=now_ms, is_client=False)
        await self._fold_in_when_durable(records)
        return True

    async def _fold_in_when_durable(self, records: Sequence[MetadataRecord]) -> None:
        end_offset = self._log.log_end_offset
        await self._flusher.flushed(self._log)
        self._log.advance_high_watermark(end_offset)
        await self.folded.fold_in(records, end_offset)


class ImageWaiters:
    """Those who wait for the metadata. Each looks again after every change."""

    def __init__(self, metadata_log: MetadataLog) -> None:
        self._metadata_log = metadata_log
        self._waiters: set[asyncio.Event] = set()
        metadata_log.add_listener(self._changed)

    async def until(self, condition: Callable[[MetadataImage], bool], limit_s: float) -> bool:
        """Wait until the condition is true of the image; return False if it is not after `limit_s`."""
        changed = asyncio.Event()
        self._waiters.add(changed)
        try:
            async with asyncio.timeout(limit_s):
                while not condition(self._metadata_log.image):
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            return False
        finally:
            self._waiters.discard(changed)
        return True

    async def _changed(self, _: Sequence[MetadataRecord]) -> None:
        for changed in self._waiters:
            changed.set()
