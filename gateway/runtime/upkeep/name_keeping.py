"""Maintains the producer names of logs: completes their replay, writes snapshots, and expires idle names.

A log that was not stopped cleanly is replayed from its last snapshot of names. Until the replay is complete,
the log refuses batches with names, so the replay starts at once and runs in slices.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from itertools import repeat
from typing import Final

from seqgate.gateway.config import Config
from seqgate.gateway.metadata.image import INTERNAL_TOPICS, MetadataImage
from seqgate.gateway.runtime.loop.clock import Clock
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.partitions.registry import Partitions, TopicPartitions
from seqgate.log import LogDirectory, LogError, PartitionLog

logger = logging.getLogger(__name__)

RUN_EVERY_S: Final = 0.25
READ_FOR_S: Final = 1.0


class NameKeeping:
    def __init__(
        self, config: Config, clock: Clock, partitions: Partitions, log_directory: LogDirectory
    ) -> None:
        self._config = config
        self._clock = clock
        self._partitions = partitions
        self._log_directory = log_directory
        self._lists = log_directory.lists
        self._captured_at_ms = clock.now_ms()
        self._unreadable: set[PartitionLog] = set()
        """Logs that could not be replayed; they are tried again after an interval."""

    async def run(self) -> None:
        """Continue replays, and write snapshots of changed names, that of every log once per interval."""
        now_ms = self._clock.now_ms()
        interval_ms = self._config.int("seqgate.deduplication.snapshot.interval.ms")
        wanted = self._lists.due_for_snapshot
        if not 0 <= now_ms - self._captured_at_ms < interval_ms:
            self._captured_at_ms = now_ms
            self._unreadable.clear()
            wanted = self._lists.deduplicating
        behind = []
        async for log in in_slices(list(wanted)):
            partition = self._partitions.serving(log)
            if partition is None:
                continue
            if is_behind(partition.log):
                if log not in self._unreadable:
                    behind.append(partition)
            elif partition.log.capture_names():
                partition.start_flush()
        await self._read_on(behind)
        await self._complete_topics()

    async def _complete_topics(self) -> None:
        """Open all partitions of topics that wait to evict names. A log that still waits asks again."""
        partial = list(self._lists.waiting_for_other_partitions)
        self._lists.waiting_for_other_partitions.clear()
        for log in partial:
            topic = self._partitions.by_name.get(log.topic)
            if (
                topic is not None
                and self._partitions.serving(log) is not None
                and await self._is_known(topic)
            ):
                log.record_states.note_whole_topic()

    async def expire(self) -> None:
        """Expire names that are idle in all partitions of their topic; this opens closed partitions."""
        now_ms = self._clock.now_ms()
        topics = {
            log.topic
            async for log in in_slices(list(self._lists.deduplicating))
            if log.record_states.has_idle_names(now_ms)
        }
        for name in topics:
            topic = self._partitions.by_name.get(name)
            if topic is not None and await self._is_known(topic):
                async for partition in in_slices(list(topic.opened())):
                    if not partition.closed and not partition.log.offline:
                        partition.log.record_states.expire_names(now_ms)

    async def _is_known(self, topic: TopicPartitions) -> bool:
        """Open the topic's partitions that this gateway leads; return whether all names are in memory."""
        stored = self._log_directory.stored()
        async for index in in_slices(range(topic.count)):
            if self._partitions.by_name.get(topic.name) is not topic:
                return False
            is_here = (topic.name, index) in stored and topic.unknown_or_led_elsewhere(index) is None
            if is_here and topic.get(index) is None:
                return False
        return not any(is_behind(partition.log) for partition in topic.opened())

    async def _read_on(self, behind: list[Partition]) -> None:
        """Replay a slice of each log in turn, so none waits for the longest. New ones follow next time."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + READ_FOR_S
        while behind and loop.time() < until_s:
            behind = [partition async for partition in in_slices(behind) if not self._is_done(partition)]

    def _is_done(self, partition: Partition) -> bool:
        """Replay a slice more; return whether the log is complete, or can't be read."""
        if partition.closed or not is_behind(partition.log):
            return True
        try:
            return partition.log.record_states.replay_names(REPLAY_BYTES, self._clock.now_ms())
        except LogError as error:
            self._unreadable.add(partition.log)
            logger.error(  # noqa: TRY400 - needs no traceback
                "%s can't be replayed for producer names, so it takes no batches with names and deletes no "
                "segments: %s",
                partition.log.place,
                error,
            )
            return True


REPLAY_BYTES: Final = 32 << 10
"""Bytes of a log that are replayed before requests run."""


def deduplicates(config: Config, image: MetadataImage, topic: str) -> bool:
    return topic not in INTERNAL_TOPICS and bool(
        config.topic_value("message.deduplication.enable", image.topic_configs(topic))
    )


async def deduplicating_topics(
    config: Config, image: MetadataImage, partitions: Partitions, names: Iterable[str]
) -> AsyncIterator[TopicPartitions]:
    """Yield the named topics whose partitions track producer names, in slices."""
    async for name in in_slices(names):
        topic = partitions.by_name.get(name)
        if topic is not None and deduplicates(config, image, name):
            yield topic


def may_know_names(directory: LogDirectory, topic: TopicPartitions, index: int) -> bool:
    """Return whether a partition has a log that may have been written to; this opens nothing."""
    is_known = topic.peek(index) is not None or index in topic.failed
    is_open = (
        directory.opened(topic.name, index) is not None
    )  # without the partition after a move that failed
    return is_known or is_open or (topic.name, index) in directory.stored()


async def complete_names(partition: Partition, clock: Clock, deadline_s: float) -> None:
    """Replay a log until its names are complete. Raises TimeoutError at `deadline_s`, StorageFailed."""
    if not is_behind(partition.log):
        return
    loop = asyncio.get_running_loop()
    async for _ in in_slices(repeat(None)):
        log = partition.log
        if (
            partition.closed
            or not is_behind(log)
            or log.record_states.replay_names(REPLAY_BYTES, clock.now_ms())
        ):
            return
        if loop.time() >= deadline_s:
            raise TimeoutError


def is_behind(log: PartitionLog) -> bool:
    """Return whether a part of the log must still be replayed before its producer names are complete."""
    return not log.record_states.names_ready
