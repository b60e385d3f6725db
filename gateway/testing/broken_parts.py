"""Breaks parts of a running broker as a test orders. All coroutines run in the broker's event loop."""

from __future__ import annotations

from collections.abc import Callable

from seqgate.gateway.coordinator.transaction.rules import Producer
from seqgate.gateway.gateway import Gateway
from seqgate.gateway.runtime.operations.operations import Unavailable
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.testing.inside import FillableStorage


class BrokenParts:
    """The parts of the gateway that runs when a method is called."""

    def __init__(self, gateway: Callable[[], Gateway], disk: FillableStorage) -> None:
        self._gateway = gateway
        self._disk = disk

    async def take_offline(self, topic: str, partition: int) -> None:
        """Let a partition fail as after a failed write. Raises LookupError if there is none."""
        found = self._partition(topic, partition)
        if found is None:
            raise LookupError(f"there is no partition {topic}-{partition}")
        if not found.log.offline:
            found.log.outage.begin("a test took the partition offline")

    async def bring_back(self, topic: str, partition: int) -> None:
        """Recover a partition if it is offline and still exists."""
        found = self._partition(topic, partition)
        if found is not None and found.log.offline:
            await self._gateway().services.partitions.recoveries.reopen(found.log, found)

    def fill_disk(self, is_full: bool) -> None:
        """Let the disk seem to have no room, or the room that it has; a broker that runs notices with
        `check_disk`.
        """
        self._disk.is_full = is_full

    async def check_disk(self) -> None:
        """Measure the free space of the disk now."""
        self._gateway().services.upkeep.disk_room.check_free_space()

    async def expire_producer(self, producer_id: int) -> int:
        """Forget a producer; return in how many partitions it was known."""
        count = 0
        for partition in self._gateway().services.partitions.registry:
            entry = partition.log.producers.get(producer_id)
            if entry is not None:
                partition.log.producers.forget(entry)
                count += 1
        return count

    async def fence(self, transactional_id: str) -> None:
        """Fence the producer of a transactional id. Raises LookupError if there is none."""
        transactions = self._gateway().services.coordinators.transactions
        try:
            found = transactions.find(transactional_id)
        except Unavailable:  # no producer has asked for its coordinator yet
            found = None
        if found is None:
            raise LookupError(f"there is no transactional id {transactional_id!r}")
        await transactions.begin_producer(transactional_id, found.timeout_ms, Producer())

    def _partition(self, topic: str, index: int) -> Partition | None:
        return self._gateway().services.partitions.registry.get(topic, index)
