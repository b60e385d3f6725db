"""Compacts the gateway's logs: chooses the next partition and its process, and swaps the cleaned segments in.

The partition with the largest dirty part is cleaned first. The event loop only decides and swaps files;
another process decodes the records. Source: Kafka's `LogCleaner`, `LogCleanerManager`.

`CompactionProgress` has the offset up to which each partition was compacted, and keeps it in
`cleaner-offset-checkpoint` (Kafka's format). Losing this file only costs time: a partition without an entry
is cleaned again. Source: Kafka's `LogCleanerManager`.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Final

import msgspec

from seqgate.gateway.config import Config
from seqgate.gateway.metadata.records import ConfigRecord, MetadataRecord, RemoveTopicRecord
from seqgate.gateway.runtime.loop.clock import Clock
from seqgate.gateway.runtime.loop.machine import Cleaner
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.partitions.cold_reads import ColdReads
from seqgate.gateway.runtime.partitions.partition import Partition, persist_files, write_checkpoint
from seqgate.gateway.runtime.partitions.registry import Partitions
from seqgate.gateway.runtime.topics.topic_lifecycle import TopicLifecycle
from seqgate.gateway.tasks import end_tasks, happens, start_task
from seqgate.log import LogDirectory, LogError, PartitionLog, Storage, StorageFailed
from seqgate.log.cleaning import (
    Cleaning,
    abandon_swap,
    begin_cleaning,
    begin_swap,
    cleanable,
    fail_swap,
    finish_swap,
    has_closed_segments_after,
    replace_sources,
)
from seqgate.log.compaction import (
    Cleanable,
    CleanedSegment,
    CleaningFailed,
    CleaningFinished,
    JobLimits,
    delete_cleaned,
    read_cleaned_offsets,
    write_cleaned_offsets,
)

logger = logging.getLogger(__name__)

_LEAST_PAUSE_S: Final = 0.005
_MAX_FAILURES: Final = 3
"""Failed cleanings in a row, for reasons that are not the disk's, after which a partition is left alone."""
_MAX_FLUSHES: Final = 3
"""The most flushes before a partition's cleaning. With files still unflushed, it is cleaned another time."""
_UNLIMITED: Final = 1e18


Hold = Callable[[Sequence[str]], AbstractAsyncContextManager[None]]
#: Keeps whole segment files on the local disk while another process reads them.


class _GivenUp(Exception):
    """The log has changed since its cleaning began, so the result can't be used."""


class Compaction:
    def __init__(
        self,
        config: Config,
        clock: Clock,
        partitions: Partitions,
        log_directory: LogDirectory,
        lifecycle: TopicLifecycle,
        cleaner: Callable[[], Cleaner],
        cold_reads: ColdReads,
        hold: Hold | None = None,
    ) -> None:
        """Create the job; each of the `log.cleaner.threads` gets its own `cleaner` while there is work.
        `cold_reads` bring in the blocks that only a bucket has; `hold` keeps whole segment files on the local
        disk while a cleaner reads them.
        """
        self._config = config
        self._clock = clock
        self._partitions = partitions
        self._log_directory = log_directory
        self._lifecycle = lifecycle
        self._storage = log_directory.environment.storage
        self._progress = CompactionProgress(self._storage, log_directory, partitions)
        partitions.when_closed.append(self._progress.closed)
        partitions.when_ready.append(lambda _topic, _index: self.check_closed())
        self._wake = asyncio.Event()
        self._must_check_closed = True
        """Whether logs that are not open may be due: the next pass opens these."""
        self._task: asyncio.Task[None] | None = None
        self._cleaner = cleaner
        self._cold_reads = cold_reads
        self.when_compacted: list[Callable[[PartitionLog], None]] = []
        """Called with each log whose segments were replaced."""
        self._hold = hold
        self._workers: dict[Cleaner, None] = {}
        self.counts = CompactionCounts()
        self.swapping = asyncio.Lock()
        """Held while a compacted segment replaces others. Who holds the lock keeps all segments in place."""
        self._begun: set[asyncio.Task[None]] = set()
        """The work that must finish even when the job is stopped."""

    @property
    def uncleanable(self) -> int:
        """The partitions that are not compacted any more until the gateway restarts."""
        return self._progress.uncleanable

    def start(self) -> None:
        self._progress.load()
        self._task = asyncio.create_task(self._run(), name="compaction")

    async def stop(self) -> None:
        """Kill the processes, and finish a flush or swap that has begun."""
        for worker in self._workers:
            worker.kill()
        await end_tasks(self._task)
        await asyncio.gather(*self._begun, return_exceptions=True)

    def check_closed(self) -> None:
        """Let the next pass check the logs that are not open, too: this gateway leads more of them now."""
        self._must_check_closed = True

    async def metadata_changed(self, records: Sequence[MetadataRecord]) -> None:
        """Check all partitions again after a configuration changed, and forget deleted topics."""
        gone = [record.topic_id for record in records if isinstance(record, RemoveTopicRecord)]
        if gone:
            self._progress.forget(gone)
        if any(isinstance(record, ConfigRecord) for record in records):
            self._must_check_closed = True
            self._wake.set()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            did_something = False
            try:
                threads = self._config.int("log.cleaner.threads")
                if threads and self._config.bool("log.cleaner.enable"):
                    did_something = await self._clean_all(await self._due(), threads)
            except Exception:
                logger.exception("compaction failed and will be tried again after log.cleaner.backoff.ms")
            if not did_something:
                pause_s = max(self._config.int("log.cleaner.backoff.ms") / 1000, _LEAST_PAUSE_S)
                await happens(self._wake, pause_s)

    # --- choosing partitions

    async def _due(self) -> list[Partition]:
        if self._must_check_closed:
            self._must_check_closed = False
            async for key in in_slices(list(self._log_directory.stored())):
                self._lifecycle.open_if_compaction_is_due(key, self._progress.clean_end_offset(key))
        found: list[tuple[float, Partition]] = []
        must_checkpoint = False
        async for partition in in_slices(self._partitions):
            if partition.log.config.compact and not partition.closed:
                cleanable = await self._cleanable(partition)
                if cleanable is not None:
                    found.append((cleanable.dirty_ratio, partition))
                    end_offset = cleanable.first_uncleanable_offset
                    must_checkpoint |= end_offset > self._progress.of(partition).durable_end_offset
        found.sort(key=lambda entry: entry[0], reverse=True)
        due = [partition for _, partition in found]
        if must_checkpoint:
            await self._checkpoint(due)
        return due

    async def _cleanable(self, partition: Partition) -> Cleanable | None:
        """Return the part of a partition to clean now, or None. Waits for a time that only the bucket has."""
        log, progress = partition.log, self._progress.of(partition)
        if log.offline or progress.uncleanable:
            return None
        clean_end_offset = progress.clean_end_offset
        if clean_end_offset is not None and not has_closed_segments_after(log, clean_end_offset):
            return None
        try:
            found = await self._cold_reads.fetched(
                lambda: cleanable(log, clean_end_offset, log.recovery_point, self._clock.now_ms())
            )
        except StorageFailed as error:
            logger.warning("%s can't be read for its compaction now: %s", partition.log.place, error)
            return None
        except LogError as error:
            self._mark_uncleanable(partition, str(error))
            return None
        if found.checkpoint_was_wrong:
            if log.config.retention_ms < 0 and log.config.retention_bytes < 0:
                logger.warning(
                    "%s was cleaned up to offset %s, which is outside its log now; the whole log counts as "
                    "dirty",
                    log.place,
                    clean_end_offset,
                )
            progress.clean_end_offset = found.first_dirty_offset
        return found if found.reason is not None else None

    async def _checkpoint(self, due: Sequence[Partition]) -> None:
        """Persist the recovery points: at a start, offsets missing beyond these count as lost."""
        points = [(partition, partition.log.recovery_point) for partition in due]
        await write_checkpoint(self._log_directory)
        for partition, recovery_point in points:
            self._progress.of(partition).durable_end_offset = recovery_point

    async def _clean_all(self, due: list[Partition], threads: int) -> bool:
        """Clean the partitions in up to `threads` processes; return whether anything was cleaned."""
        queue = list(reversed(due))
        processes = min(threads, len(queue))
        outcomes = await asyncio.gather(*(self._clean_some(queue, threads) for _ in range(processes)))
        return any(outcomes)

    async def _clean_some(self, queue: list[Partition], threads: int) -> bool:
        worker = self._cleaner()
        self._workers[worker] = None
        did_something = False
        try:
            while queue:
                partition = queue.pop()
                try:
                    did_something |= await self._clean(partition, worker, threads)
                except Exception:
                    logger.exception("%s could not be compacted and will be tried again", partition.log.place)
        finally:
            del self._workers[worker]
            worker.kill()
            await worker.close()
        return did_something

    # --- cleaning one partition

    async def _clean(self, partition: Partition, worker: Cleaner, threads: int) -> bool:
        """Clean a partition; return whether it is cleaner now."""
        if not await self._persist_files(partition):
            return False
        found = None if partition.closed else await self._cleanable(partition)
        progress = self._progress.of(partition)
        if found is None or found.first_uncleanable_offset > progress.durable_end_offset:
            return False
        now_ms = self._clock.now_ms()
        started_s = asyncio.get_running_loop().time()
        outcome: CleaningFinished | CleaningFailed
        token = uuid.uuid4().hex
        try:
            cleaning = begin_cleaning(partition.log, found, self._limits(threads), token=token, now_ms=now_ms)
            async with nullcontext() if self._hold is None else self._hold(cleaning.job.paths):
                outcome = await worker.clean(
                    cleaning.job, lambda cleaned: self._put_in_place(partition, cleaning, cleaned)
                )
        except _GivenUp:
            logger.info("the compaction of %s was given up, because its log has changed", partition.log.place)
            outcome = CleaningFailed("")
        except (StorageFailed, OSError) as error:
            outcome = CleaningFailed(str(error), is_of_disk=True)
        except (asyncio.CancelledError, Exception):
            await asyncio.to_thread(self._delete_cleaned, partition.log.directory, token)
            raise
        if isinstance(outcome, CleaningFinished):
            self._finished(partition, found, outcome, asyncio.get_running_loop().time() - started_s)
            return outcome.clean_end_offset > found.first_dirty_offset
        await asyncio.to_thread(self._delete_cleaned, partition.log.directory, token)
        if outcome.reason and not partition.log.offline and not partition.closed:
            self._failed(partition, outcome)
        return False

    async def _persist_files(self, partition: Partition) -> bool:
        """Persist the side files with producer state: a crash must not lose them together with removed
        records. Return False if new files kept coming: the partition is then cleaned another time.
        """
        unflushed = partition.log.unflushed
        for _ in range(_MAX_FLUSHES):
            if partition.closed or unflushed.is_durable:
                break
            await self._to_the_end(persist_files(partition))
        return unflushed.is_durable

    async def _to_the_end(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for the work. It continues if this task is cancelled, and `stop` then waits for it."""
        await asyncio.shield(start_task(self._begun, work))

    def _limits(self, threads: int) -> JobLimits:
        config = self._config
        bytes_per_s = config.double("log.cleaner.io.max.bytes.per.second")
        return JobLimits(
            map_bytes=config.int("log.cleaner.dedupe.buffer.size") // threads,
            map_load_factor=config.double("log.cleaner.io.buffer.load.factor"),
            read_bytes=config.int("log.cleaner.io.buffer.size") // threads,
            bytes_per_s=bytes_per_s / threads if bytes_per_s < _UNLIMITED else 0,
        )

    async def _put_in_place(self, partition: Partition, cleaning: Cleaning, cleaned: CleanedSegment) -> None:
        """Put a cleaned segment in its place to the end. Raises _GivenUp, StorageFailed, OSError."""
        if partition.closed:
            raise _GivenUp  # another gateway goes on from what it had before
        await self._to_the_end(self._swap(partition.log, cleaning, cleaned))

    async def _swap(self, log: PartitionLog, cleaning: Cleaning, cleaned: CleanedSegment) -> None:
        async with self.swapping:
            ticket = begin_swap(log, cleaning, cleaned) if log.config.compact else None
            if ticket is None:
                raise _GivenUp
            try:
                await asyncio.to_thread(ticket.read_and_run)
            except Exception:  # also without memory or threads: a start would take the files for a swap
                abandon_swap(log, ticket)
                raise
            if not replace_sources(log, ticket, self._clock.now_ms()):
                raise _GivenUp
            try:
                await asyncio.to_thread(ticket.run)
            except Exception as error:
                fail_swap(log, ticket, error)
                raise
            if not finish_swap(log, ticket):
                raise _GivenUp

    def _delete_cleaned(self, directory: str, token: str) -> None:
        try:
            delete_cleaned(self._storage, directory, token)
        except OSError as error:
            logger.warning("%s: files of a compaction stay until the next start: %s", directory, error)

    def _finished(
        self, partition: Partition, found: Cleanable, outcome: CleaningFinished, took_s: float
    ) -> None:
        if partition.closed:
            return
        progress = self._progress.of(partition)
        progress.clean_end_offset = outcome.clean_end_offset
        progress.failures = 0
        self.counts.add(outcome, took_s)
        self._progress.save()
        for tell in self.when_compacted:
            tell(partition.log)
        logger.info(
            "%s was compacted because %s: offsets %d to %d, %d keys; %d of %d records and %d bytes stay; "
            "took %.1f s",
            partition.log.place,
            found.reason,
            found.first_dirty_offset,
            outcome.clean_end_offset - 1,
            outcome.keys,
            outcome.records_kept,
            outcome.records_read,
            outcome.bytes_kept,
            took_s,
        )
        if outcome.keyless_records:
            logger.warning(
                "%s: %d records without a key, from before the topic was compacted, were deleted",
                partition.log.place,
                outcome.keyless_records,
            )

    def _failed(self, partition: Partition, outcome: CleaningFailed) -> None:
        progress = self._progress.of(partition)
        progress.failures += not outcome.is_of_disk
        self.counts.failures += 1
        if outcome.is_corrupt or progress.failures >= _MAX_FAILURES:
            self._mark_uncleanable(partition, outcome.reason)
        else:
            logger.warning(
                "%s could not be compacted and will be tried again: %s", partition.log.place, outcome.reason
            )

    def _mark_uncleanable(self, partition: Partition, reason: str) -> None:
        self._progress.mark_uncleanable(partition)
        logger.error(
            "%s is not compacted any more until the gateway restarts: %s", partition.log.place, reason
        )


class PartitionProgress(msgspec.Struct):
    topic_id: uuid.UUID
    clean_end_offset: int | None = None
    """The offset at which the last cleaning ended (exclusive); None before the first cleaning."""
    durable_end_offset: int = 0
    """The recovery point that the checkpoint surely has; a start attributes gaps below it to compaction."""
    failures: int = 0
    """Failed cleanings in a row."""
    uncleanable: bool = False


class CompactionCounts(msgspec.Struct):
    cleanings: int = 0
    failures: int = 0
    records_read: int = 0
    records_kept: int = 0
    took_s: float = 0.0

    def add(self, finished: CleaningFinished, took_s: float) -> None:
        self.cleanings += 1
        self.records_read += finished.records_read
        self.records_kept += finished.records_kept
        self.took_s += took_s


class CompactionProgress:
    """One entry for each partition that was checked and still exists."""

    def __init__(self, storage: Storage, log_directory: LogDirectory, partitions: Partitions) -> None:
        self._storage = storage
        self._root = log_directory.files
        self._log_directory = log_directory
        self._partitions = partitions
        self._entries: dict[tuple[str, int], PartitionProgress] = {}
        self._next_save: asyncio.Handle | None = None
        """The save of this turn of the event loop, for the partitions that were closed in the turn."""
        self.uncleanable = 0
        """The partitions that are not compacted any more until the gateway restarts."""

    def load(self) -> None:
        """Load the checkpoint, without partitions that no longer exist, or whose log is not here: a topic may
        have been deleted and created again under the name while nobody could forget the entry. Their rows go
        from the file, too: at a later start such a partition may be here again, with other records.
        """
        rows = read_cleaned_offsets(self._storage, self._root)
        here = {key: log.topic_id for key, log in self._log_directory.stored().items()}
        here |= {(log.topic, log.partition): log.topic_id for log in self._log_directory.logs()}
        for (name, index), offset in rows.items():
            topic = self._partitions.by_name.get(name)
            if topic is None or not topic.has(index) or (name, index) not in here:
                continue
            # An end that was not clean leaves no topic id of logs that are not open.
            if here[name, index] in {None, topic.topic_id}:
                self._entries[name, index] = PartitionProgress(topic.topic_id, clean_end_offset=offset)
        if len(self._entries) < len(rows):
            self.save()

    def clean_end_offset(self, key: tuple[str, int]) -> int | None:
        """Return the offset at which the last cleaning of a partition (topic, index), open or not, ended."""
        entry = self._entries.get(key)
        return None if entry is None else entry.clean_end_offset

    def mark_uncleanable(self, partition: Partition) -> None:
        entry = self.of(partition)
        self.uncleanable += not entry.uncleanable
        entry.uncleanable = True

    def of(self, partition: Partition) -> PartitionProgress:
        """Return the entry of a partition; an entry of a deleted topic of the same name is replaced."""
        entry = self._entries.get((partition.topic, partition.index))
        if entry is None or entry.topic_id != partition.topic_id:
            self.uncleanable -= entry is not None and entry.uncleanable
            entry = PartitionProgress(partition.topic_id)
            self._entries[partition.topic, partition.index] = entry
        return entry

    def closed(self, partition: Partition) -> None:
        """Drop the entry of a partition that others lead: its log may come back with other bytes. One
        save follows for all partitions that are closed in this turn of the event loop.
        """
        entry = self._entries.get((partition.topic, partition.index))
        if entry is not None and entry.topic_id == partition.topic_id:
            self._drop((partition.topic, partition.index))
            if self._next_save is None and entry.clean_end_offset is not None:
                self._next_save = asyncio.get_running_loop().call_soon(self.save)

    def forget(self, topic_ids: Iterable[uuid.UUID]) -> None:
        """Drop the entries of deleted topics, so that new topics of these names do not get them."""
        gone = set(topic_ids)
        keys = [key for key, entry in self._entries.items() if entry.topic_id in gone]
        for key in keys:
            self._drop(key)
        if keys:
            self.save()

    def _drop(self, key: tuple[str, int]) -> None:
        self.uncleanable -= self._entries.pop(key).uncleanable

    def save(self) -> None:
        """Write the checkpoint without a flush; log an error."""
        if self._next_save is not None:
            self._next_save.cancel()
            self._next_save = None
        offsets = {
            key: entry.clean_end_offset
            for key, entry in self._entries.items()
            if entry.clean_end_offset is not None
        }
        write_cleaned_offsets(self._storage, self._root, offsets)
