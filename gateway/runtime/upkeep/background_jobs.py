"""The background jobs: retention, expiration of producers, flush by time, checkpoints, deletion of files.

Each job runs on the event loop in slices, so that no request waits for longer than a slice.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from gateway.config import Config
from gateway.runtime.loop.clock import Clock, Interval
from gateway.runtime.loop.slices import in_slices
from gateway.runtime.partitions.cold_reads import ColdReads
from gateway.runtime.partitions.partition import write_checkpoint
from gateway.runtime.partitions.registry import Partitions, for_each_partition
from gateway.runtime.telemetry.telemetry import EXPIRE_EVERY_S, Telemetry
from gateway.runtime.topics.delegation_tokens import DelegationTokens
from gateway.runtime.topics.topic_lifecycle import TopicLifecycle
from gateway.runtime.upkeep.delayed_delivery import RUN_EVERY_S, DelayedDelivery
from gateway.runtime.upkeep.file_deletion import FileDeletion
from gateway.runtime.upkeep.freed_memory import FreedMemory
from gateway.runtime.upkeep.name_keeping import RUN_EVERY_S as RUN_NAMES_EVERY_S
from gateway.runtime.upkeep.name_keeping import NameKeeping
from gateway.runtime.upkeep.producer_expiry import ProducerExpiry
from gateway.runtime.upkeep.retention import Retention
from log import LogDirectory

logger = logging.getLogger(__name__)

FREEZE_CHECK_S: Final = 2.0
FREEZE_AFTER: Final = 500
"""Partitions opened since the last freeze that make another one worth its cost."""
FLUSH_CHECK_S: Final = 0.25
"""Time between two checks of `flush.ms`."""


@dataclass(frozen=True, slots=True)
class _Job:
    name: str
    every_s: float | Interval
    """The seconds between two runs; an `Interval` when its setting can be altered while the gateway runs."""
    work: Callable[[], Awaitable[None] | None]


class BackgroundJobs:
    """Starts and stops the background jobs."""

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
    ) -> None:
        self._config = config
        self._clock = clock
        self._partitions = partitions
        self._log_directory = log_directory
        self._lifecycle = lifecycle
        self._tokens = tokens
        self._telemetry = telemetry
        self._long_lived = LongLived()
        self._freed_memory = FreedMemory(partitions.tables)
        self.retention = Retention(clock, cold_reads)
        self._file_deletion = FileDeletion(config, clock, log_directory)
        self._delayed = DelayedDelivery(
            clock, log_directory, partitions, config.int("seqgate.delayed.records.snapshot.interval.ms")
        )
        self._producer_expiry = ProducerExpiry(config, clock, partitions)
        self._names = NameKeeping(config, clock, partitions, log_directory)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        for job in self._jobs():
            self._tasks.append(asyncio.create_task(self._repeat(job), name=job.name))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self.retention.stop()
        self._file_deletion.stop()

    def _jobs(self) -> tuple[_Job, ...]:
        config = self._config
        return (
            _Job(
                "retention",
                config.int("log.retention.check.interval.ms") / 1000,
                self._apply_retention,
            ),
            _Job(
                "producer expiry",
                Interval(config, "producer.id.expiration.check.interval.ms"),
                self._expire,
            ),
            _Job("flush by time", FLUSH_CHECK_S, self._flush_by_time),
            _Job(
                "checkpoint",
                config.int("log.flush.offset.checkpoint.interval.ms") / 1000,
                lambda: write_checkpoint(self._log_directory),
            ),
            _Job("garbage collection", FREEZE_CHECK_S, self._freeze_long_lived),
            _Job("file deletion", 1.0, self._file_deletion.run),
            _Job("delayed records", RUN_EVERY_S, self._delayed.run),
            _Job("producer names", RUN_NAMES_EVERY_S, self._names.run),
            _Job(
                "expired delegation tokens",
                config.int("delegation.token.expiry.check.interval.ms") / 1000,
                self._tokens.remove_expired,
            ),
            _Job("expired telemetry", EXPIRE_EVERY_S, self._telemetry.expire),
        )

    async def _repeat(self, job: _Job) -> None:
        while True:
            await _pause(job.every_s)
            try:
                begun = job.work()
                if begun is not None:
                    await begun
            except Exception:
                logger.exception("the job %s failed and runs again after its interval", job.name)

    async def _apply_retention(self) -> None:
        """Open the closed partitions in which retention may have to delete records, and look at each open one that is due."""
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
    """Hides objects that live for ever from the garbage collector, so that it never holds a request up for long.

    A full collection visits every object: with a hundred thousand partitions open it takes half a second. The objects
    of open partitions stay, so they are frozen, which costs nothing.
    """

    def __init__(self) -> None:
        self._opened = 0

    def freeze_if_due(self, opened: int) -> bool:
        """Exclude all living Python objects from garbage collection (`gc.freeze`) if at least FREEZE_AFTER partitions were opened since the
        last time. Return whether this call did.

        `opened` counts the partitions opened since the start.
        """
        if opened - self._opened < FREEZE_AFTER:
            return False
        self._opened = opened
        gc.collect(0)  # collect first, so that young garbage in cycles is not frozen too
        gc.freeze()
        return True


async def _pause(every_s: float | Interval) -> None:
    if isinstance(every_s, Interval):
        await every_s.passed()
    else:
        await asyncio.sleep(every_s)
