"""Where producer names are remembered, and how what is remembered of them becomes complete: the log is read on in slices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import repeat
from typing import Final

from gateway.config import Config
from gateway.metadata.image import MetadataImage
from gateway.metadata.topic_names import INTERNAL_TOPICS
from gateway.runtime.loop.clock import Clock
from gateway.runtime.loop.slices import in_slices
from gateway.runtime.partitions.partition import Partition
from gateway.runtime.partitions.registry import TopicPartitions
from gateway.runtime.services import Services
from log import UnifiedLog

REPLAY_BYTES: Final = 32 << 10
"""Read of a log before requests have their turn."""


def deduplicates(config: Config, image: MetadataImage, topic: str) -> bool:
    """Whether producer names are remembered in a topic's partitions."""
    return topic not in INTERNAL_TOPICS and bool(
        config.topic_value("message.deduplication.enable", image.topic_configs(topic))
    )


async def deduplicating_topics(services: Services, names: Iterable[str]) -> AsyncIterator[TopicPartitions]:
    """Those of the named topics in whose partitions producer names are remembered, in slices."""
    image, by_name = services.metadata_log.image, services.partitions.by_name
    async for name in in_slices(names):
        topic = by_name.get(name)
        if topic is not None and deduplicates(services.config, image, name):
            yield topic


def may_know_names(services: Services, topic: TopicPartitions, index: int) -> bool:
    """Whether there is a log that may have been written to; opens nothing."""
    is_known = topic.peek(index) is not None or index in topic.failed
    return is_known or (topic.name, index) in services.log_directory.stored()


async def complete_names(partition: Partition, clock: Clock, deadline_s: float) -> None:
    """Have all that is remembered of names at hand. Raises TimeoutError after `deadline_s` of the loop's time, StorageFailed."""
    if not is_behind(partition.log):
        return
    loop = asyncio.get_running_loop()
    async for _ in in_slices(repeat(None)):
        log = partition.log
        if partition.closed or not is_behind(log) or log.replay_names(REPLAY_BYTES, clock.now_ms()):
            return
        if loop.time() >= deadline_s:
            raise TimeoutError


def is_behind(log: UnifiedLog) -> bool:
    """Whether a part of the log must still be read before it is known which names were in it."""
    return log.names is not None and not log.names_ready
