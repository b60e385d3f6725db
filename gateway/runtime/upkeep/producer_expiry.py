"""Lets partitions forget idle producers, and looks at no partition before the first producer may be due."""

from __future__ import annotations

from typing import Final

from gateway.config import Config
from gateway.runtime.loop.clock import Clock
from gateway.runtime.loop.slices import each_in_slices
from gateway.runtime.partitions.partition import Partition
from gateway.runtime.partitions.registry import Partitions
from log import settings

_EXPIRATION: Final = "producer.id.expiration.ms"


class ProducerExpiry:
    """Forgets producers that were idle for `producer.id.expiration.ms`.

    No producer of an open partition is due before the one that was idle longest when all partitions were looked at. So all are
    looked at again when that one is due, when a partition was opened since, or when the setting was altered.
    """

    def __init__(self, config: Config, clock: Clock, partitions: Partitions) -> None:
        self._config = config
        self._clock = clock
        self._partitions = partitions
        self._due_ms = 0
        """The first time at which a producer may be due."""
        self._looked_at: tuple[int, int] | None = None
        """The partitions opened since the start, and the setting, when all partitions were looked at."""

    async def run(self) -> None:
        """Forget the producers that are due."""
        now_ms = self._clock.now_ms()
        expiration_ms = self._config.int(_EXPIRATION)
        present = self._partitions.opened_count, expiration_ms
        if present == self._looked_at and now_ms < self._due_ms:
            return
        self._due_ms = now_ms + expiration_ms
        self._looked_at = present
        await each_in_slices(
            self._partitions, lambda partition: self._look_at(partition, now_ms, expiration_ms)
        )

    def _look_at(self, partition: Partition, now_ms: int, expiration_ms: int) -> None:
        if partition.closed:
            return
        if partition.log.offline:
            self._due_ms = now_ms  # it may have old producers when it is back
            return
        settings.expire_producers(partition.log, now_ms)
        idle = partition.log.producers.longest_idle()
        if idle is not None:
            self._due_ms = min(self._due_ms, idle.last_active_ms + expiration_ms)
