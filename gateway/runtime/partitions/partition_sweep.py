"""Doing something with many partitions beside requests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from gateway.runtime.loop.slices import in_slices
from gateway.runtime.partitions.partition import Partition
from log import LogError

logger = logging.getLogger(__name__)


async def sweep_partitions(
    partitions: Iterable[Partition], work: Callable[[Partition], object], purpose: str
) -> None:
    """Do the work for each that is served, in slices; where it fails that is logged, and the others have their turn."""
    async for partition in in_slices(partitions):
        if partition.log.offline or partition.closed:
            continue
        try:
            work(partition)
        except LogError as error:
            logger.warning("%s of %s-%d: %s", purpose, partition.topic, partition.index, error)
