"""The background jobs: retention, expiration of producers, flush by time, checkpoints, deletion of files.

Each job runs on the event loop in slices, so that no request waits for longer than a slice.

`DelayedDelivery` keeps the memory of delayed records up to date: it releases records that are due, and writes
snapshots of the others. No request waits for this job, because a share group's fetch releases due records
itself and wakes up when the next one is due.

`FileDeletion` deletes the files that the log directory has queued for deletion, in a thread of its own and at
a limited rate. Freeing the space of a large file can take long, so the event loop never does it.

`FreedMemory` gives memory back to the operating system after many partitions were deleted. A table keeps the
size of its fullest time until entries are added. Python keeps free objects of frequent types for reuse until
a full garbage collection, and the C library keeps free pages until `malloc_trim`. After thousands of
deletions this free memory adds up to tens of megabytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec

from seqgate.gateway.config import Config
from seqgate.gateway.runtime.loop.clock import Clock, Interval
from seqgate.gateway.runtime.loop.slices import each_in_slices, in_slices
from seqgate.gateway.runtime.partitions.cold_reads import ColdReads
from seqgate.gateway.runtime.partitions.partition import Partition, write_checkpoint
from seqgate.gateway.runtime.partitions.producer_clients import ClientsFile, ProducerClients
from seqgate.gateway.runtime.partitions.registry import Partitions, for_each_partition
from seqgate.gateway.runtime.telemetry import EXPIRE_EVERY_S, Telemetry
from seqgate.gateway.runtime.topics.delegation_tokens import DelegationTokens
from seqgate.gateway.runtime.topics.topic_lifecycle import TopicLifecycle
from seqgate.gateway.runtime.upkeep.name_keeping import RUN_EVERY_S as RUN_NAMES_EVERY_S
from seqgate.gateway.runtime.upkeep.name_keeping import NameKeeping
from seqgate.gateway.runtime.upkeep.retention import Retention
from seqgate.gateway.tasks import end_tasks
from seqgate.log import DeletionTicket, LogDirectory, PartitionLog

logger = logging.getLogger(__name__)

FREEZE_CHECK_S: Final = 2.0
FREEZE_AFTER: Final = 500
"""Partitions opened since the last freeze that make another one worth its cost."""
FLUSH_CHECK_S: Final = 0.25
"""Time between two checks of `flush.ms`."""


class _Job(msgspec.Struct, frozen=True):
    name: str
    every_s: float | Interval
    """The seconds between two runs; an `Interval` when its setting can be altered while the gateway runs."""
    work: Callable[[], Awaitable[None] | None]


class BackgroundJobs:
    def __init__(
        self,
        config: Config,
        clock: Clock,
        partitions: Partitions,
        log_directory: LogDirectory,
        lifecycle: TopicLifecycle,
        tokens: DelegationTokens,
        cold_reads: ColdReads,
        telemetry: Telemetry,
        clients: ClientsFile,
    ) -> None:
        self._clock = clock
        self._partitions = partitions
        self._log_directory = log_directory
        self._lifecycle = lifecycle
        self._long_lived = LongLived()
        self._freed_memory = FreedMemory(partitions.tables, clients.clients)
        self.retention = Retention(clock, cold_reads)
        self._file_deletion = FileDeletion(config, clock, log_directory)
        delayed = DelayedDelivery(
            clock, log_directory, partitions, config.int("seqgate.delayed.records.snapshot.interval.ms")
        )
        self._producer_expiry = ProducerExpiry(config, clock, partitions)
        self._names = NameKeeping(config, clock, partitions, log_directory)
        self._tasks: list[asyncio.Task[None]] = []
        checkpoint_s = config.int("log.flush.offset.checkpoint.interval.ms") / 1000
        self._jobs = (
            _Job("retention", config.int("log.retention.check.interval.ms") / 1000, self._apply_retention),
            _Job(
                "producer expiry", Interval(config, "producer.id.expiration.check.interval.ms"), self._expire
            ),
            _Job("flush by time", FLUSH_CHECK_S, self._flush_by_time),
            _Job("checkpoint", checkpoint_s, lambda: write_checkpoint(log_directory)),
            _Job("clients of producers", checkpoint_s, clients.save),
            _Job("garbage collection", FREEZE_CHECK_S, self._freeze_long_lived),
            _Job("file deletion", 1.0, self._file_deletion.run),
            _Job("delayed records", RUN_EVERY_S, delayed.run),
            _Job("producer names", RUN_NAMES_EVERY_S, self._names.run),
            _Job(
                "expired delegation tokens",
                config.int("delegation.token.expiry.check.interval.ms") / 1000,
                tokens.remove_expired,
            ),
            _Job("expired telemetry", EXPIRE_EVERY_S, telemetry.expire),
        )

    def start(self) -> None:
        for job in self._jobs:
            self._tasks.append(asyncio.create_task(self._repeat(job), name=job.name))

    async def stop(self) -> None:
        await end_tasks(*self._tasks)
        self._tasks.clear()
        await self.retention.stop()
        self._file_deletion.stop()

    async def _repeat(self, job: _Job) -> None:
        while True:
            if isinstance(job.every_s, Interval):
                await job.every_s.passed()
            else:
                await asyncio.sleep(job.every_s)
            try:
                begun = job.work()
                if begun is not None:
                    await begun
            except Exception:
                logger.exception("the job %s failed and runs again after its interval", job.name)

    async def _apply_retention(self) -> None:
        """Open closed partitions that retention may have work in, and look at each open one that is due."""
        now_ms = self._clock.now_ms
        async for key in in_slices(list(self._log_directory.stored())):
            self._lifecycle.open_if_retention_is_due(key, now_ms())
        due = map(self._partitions.serving, self._log_directory.lists.retention.due(now_ms()))
        await for_each_partition(filter(None, due), self.retention.apply, "retention")

    async def _expire(self) -> None:
        await self._names.expire()
        await self._producer_expiry.run()

    async def _flush_by_time(self) -> None:
        await for_each_partition(
            list(self._partitions.flushed_by_time),
            lambda partition: partition.flush_by_time(self._clock.now_ms()),
            "flush by time",
        )

    def _freeze_long_lived(self) -> None:
        self._long_lived.freeze_if_due(self._partitions.opened_count)
        self._freed_memory.give_back_if_due(
            self._partitions.closed_count, len(self._log_directory.environment.deletions)
        )


class LongLived:
    """Hides objects that live for ever from the garbage collector, so that it never holds a request up for
    long. A full collection visits every object: with a hundred thousand partitions open it takes half a
    second. The objects of open partitions stay, so they are frozen, which costs nothing.
    """

    def __init__(self) -> None:
        self._opened = 0

    def freeze_if_due(self, opened: int) -> bool:
        """Exclude all living Python objects from garbage collection (`gc.freeze`) if at least FREEZE_AFTER
        partitions were opened since the last time. Return whether this call did. `opened` counts the
        partitions opened since the start.
        """
        if opened - self._opened < FREEZE_AFTER:
            return False
        self._opened = opened
        gc.collect(0)  # collect first, so that young garbage in cycles is not frozen too
        gc.freeze()
        return True


RUN_EVERY_S: Final = 1.0
SNAPSHOTS_AT_ONCE: Final = 10
"""Snapshots written in one run, so that many logs hold up no request; the rest follow in the next runs."""


class DelayedDelivery:
    def __init__(
        self, clock: Clock, log_directory: LogDirectory, partitions: Partitions, snapshot_every_ms: int
    ) -> None:
        self._clock = clock
        self._partitions = partitions
        self._lists = log_directory.lists
        self._snapshot_every_ms = snapshot_every_ms
        self._snapshot_at_ms = clock.now_ms()
        self._to_snapshot: list[PartitionLog] = []

    def run(self) -> None:
        """Release due records, and write some of the snapshots: that of every log once per interval."""
        now_ms = self._clock.now_ms()
        for log in self._lists.delaying:
            log.record_states.release_due(now_ms)
        since_ms = now_ms - self._snapshot_at_ms
        if not self._to_snapshot and not 0 <= since_ms < self._snapshot_every_ms:
            self._snapshot_at_ms = now_ms
            self._to_snapshot = list(self._lists.delaying)
        for log in self._to_snapshot[:SNAPSHOTS_AT_ONCE]:
            partition = self._partitions.serving(log)
            if partition is not None and log.capture_delays():
                partition.start_flush()
        del self._to_snapshot[:SNAPSHOTS_AT_ONCE]


_EXPIRATION: Final = "producer.id.expiration.ms"


class ProducerExpiry:
    """Forgets producers that were idle for `producer.id.expiration.ms`. No producer of an open partition is
    due before the one that was idle longest when all partitions were looked at. So all are looked at again
    when that one is due, when a partition was opened since, or when the setting was altered.
    """

    def __init__(self, config: Config, clock: Clock, partitions: Partitions) -> None:
        self._config = config
        self._clock = clock
        self._partitions = partitions
        self._due_ms = 0
        """The first time at which a producer may be due."""
        self._checked: tuple[int, int] | None = None
        """The partitions opened since the start, and the setting, when all partitions were looked at."""

    async def run(self) -> None:
        now_ms = self._clock.now_ms()
        expiration_ms = self._config.int(_EXPIRATION)
        present = self._partitions.opened_count, expiration_ms
        # after the clock was set back, "idle" is counted from then on
        if present == self._checked and self._due_ms - expiration_ms <= now_ms < self._due_ms:
            return
        self._due_ms = now_ms + expiration_ms
        self._checked = present
        await each_in_slices(
            self._partitions, lambda partition: self._check(partition, now_ms, expiration_ms)
        )

    def _check(self, partition: Partition, now_ms: int, expiration_ms: int) -> None:
        if partition.closed:
            return
        if partition.log.offline:
            self._due_ms = now_ms  # it may have old producers when it is back
            return
        partition.log.expire_producers(now_ms)
        idle = partition.log.producers.longest_idle()
        if idle is not None:
            self._due_ms = min(self._due_ms, idle.last_active_ms + expiration_ms)


FILES_PER_TICKET = 500
"""Files of one ticket, all taken from the queue in one turn of the event loop."""


class FileDeletion:
    """The background job; `run`, called every second, deletes the files that a second's limits allow."""

    def __init__(self, config: Config, clock: Clock, log_directory: LogDirectory) -> None:
        self._clock = clock
        self._environment = log_directory.environment
        self._max_files = config.int("seqgate.deletion.max.files.per.second")
        self._max_bytes = config.int("seqgate.deletion.max.bytes.per.second")
        self._bytes_left = 0
        """Bytes that may still be deleted; below 0 after a file larger than the limit."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="deletion")
        self._ticket: DeletionTicket | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no ticket is out, so that no deleted paths are kept in memory."""
        return self._ticket is None

    async def run(self) -> None:
        self._bytes_left = min(self._bytes_left, 0) + self._max_bytes
        files_left = self._max_files
        while files_left > 0 and self._bytes_left > 0:
            ticket = self._environment.deletions.prepare(
                self._environment.storage,
                self._environment.durability,
                self._clock.now_ms(),
                max_files=min(files_left, FILES_PER_TICKET),
                max_bytes=self._bytes_left,
            )
            if ticket is None:
                return
            self._ticket = ticket
            await asyncio.get_running_loop().run_in_executor(self._thread, ticket.run)
            self._environment.deletions.complete(ticket, self._clock.now_ms())
            self._ticket = None
            files_left -= max(1, ticket.files)
            self._bytes_left -= ticket.size_bytes

    def stop(self) -> None:
        """End the thread after its present file; the other files are deleted after the next start."""
        if self._ticket is not None:
            self._ticket.cancelled = True
        self._thread.shutdown(wait=True, cancel_futures=True)


GIVE_BACK_AFTER: Final = 500
"""The number of closed partitions after which memory is given back, which takes some milliseconds."""
CLIENTS_AT_ONCE: Final = 20_000
"""The most clients of producers that are made anew meanwhile, which takes a microsecond for each."""
SPARSE_TABLE_BYTES: Final = 8 << 10
"""Size up to which a table is not worth rebuilding."""
SPARSE_ENTRY_BYTES: Final = 400
"""Bytes per entry above which a table counts as sparse: it was several times as full before."""


class FreedMemory:
    def __init__(self, tables: Sequence[dict[Any, Any]] = (), clients: ProducerClients | None = None) -> None:
        """`tables` shrink with deletions; more may follow. `clients` are what stays of deleted topics."""
        self._tables = tables
        self._clients = ProducerClients() if clients is None else clients
        self._given_back_at = 0
        """The number of closed partitions when memory was given back last."""
        self._closed_before = 0

    def give_back_if_due(self, closed: int, files_to_delete: int) -> bool:
        """Give memory back once the deletions of many partitions are over; return whether it did. `closed`
        counts the partitions closed since the start, `files_to_delete` the files that wait for their
        deletion.
        """
        goes_on = closed != self._closed_before or files_to_delete > 0
        self._closed_before = closed
        if goes_on or closed - self._given_back_at < GIVE_BACK_AFTER:
            return False
        logger.info("%d partitions were deleted: giving their memory back", closed - self._given_back_at)
        self._given_back_at = closed
        for table in self._tables:
            shrink(table)
        packed = self._clients.pack() if len(self._clients) <= CLIENTS_AT_ONCE else None
        gc.collect()
        # only glibc has `malloc_trim`
        with contextlib.suppress(AttributeError, OSError):
            ctypes.CDLL(None).malloc_trim(0)
        if packed is not None:
            self._clients.unpack(packed)
        return True


def shrink(table: dict[Any, Any]) -> None:
    """Rebuild a table in place, with its order, if it has far more room than its entries need."""
    if sys.getsizeof(table) > SPARSE_TABLE_BYTES + SPARSE_ENTRY_BYTES * len(table):
        entries = list(table.items())
        table.clear()
        table.update(entries)
