"""Decides which topics track producer names, and completes the replay of a log's names in slices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import repeat
from typing import Final

from gateway.config import Config
from gateway.metadata.image import INTERNAL_TOPICS, MetadataImage
from gateway.runtime.loop.clock import Clock
from gateway.runtime.loop.slices import in_slices
from gateway.runtime.partitions.partition import Partition
from gateway.runtime.partitions.registry import Partitions, TopicPartitions
from log import LogDirectory, PartitionLog

REPLAY_BYTES: Final = 32 << 10
"""Bytes of a log that are replayed before requests run."""


def deduplicates(config: Config, image: MetadataImage, topic: str) -> bool:
    """Return whether a topic's partitions track producer names."""
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
    """Replay a partition's log until its producer names are complete.

    Raises TimeoutError at `deadline_s` of the loop's time, StorageFailed.
    """
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
