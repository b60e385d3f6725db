"""Refuses producers before the disk is full or while a bucket lags behind, and reopens partitions that a full
disk took offline.

A full disk blocks more than records: without a few bytes for metadata and offsets, nobody could delete a
topic to make room. So producers may not use the last `seqgate.log.min.free.bytes`. A failed write can still
take a partition offline, because another program took the space first, or no file handle was left. Such a
partition is reopened as `seqgate reopen` does it.

In a cluster (`seqgate.cluster`) records wait in the local files until the bucket has them. While too many
wait, producers are refused, too: a store that does not answer must fill neither the memory nor the disk.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from seqgate.gateway.config import Config
from seqgate.gateway.runtime.partitions.partition import Recoveries
from seqgate.gateway.runtime.partitions.registry import Partitions
from seqgate.gateway.sizes import size_in_words
from seqgate.log import IncompatibleFormat, LogDirectory, LogError

logger = logging.getLogger(__name__)

CHECK_EVERY_S: Final = 0.1
"""Time between two checks. The reserve must be larger than what the fastest producers write in this time."""
CHECKS_BETWEEN_TRIES: Final = 10
"""Checks after a failed reopening before the next attempt."""
ENOUGH_BYTES: Final = 1 << 20
"""Free bytes below which no partition is reopened, whatever the reserve is."""


class DiskRoom:
    """Checks the free space at intervals between `start` and `stop`. `is_short` says whether producers are
    refused now, because of the disk (`is_disk_short`) or of a bucket (`is_bucket_behind`). `refused_batches`
    is how many batches were refused since the start.
    """

    def __init__(
        self, config: Config, log_directory: LogDirectory, partitions: Partitions, recoveries: Recoveries
    ) -> None:
        self.is_short = False
        self.is_disk_short = False
        self.is_bucket_behind = False
        self.refused_batches = 0
        self.free_bytes: int | None = None
        """The free space at the last check; None before the first one."""
        self._config = config
        self._log_directory = log_directory
        self._environment = log_directory.environment
        self._lists = log_directory.lists
        self._path = config.str("log.dirs")
        self._partitions = partitions
        self._recoveries = recoveries
        self.reopening: asyncio.Task[None] | None = None
        self._is_gone = False
        """Whether the free space of the data directory could not be read at the last check."""
        self._checks_to_skip = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self.check_free_space()
        self._timer = asyncio.get_running_loop().call_later(CHECK_EVERY_S, self.start)

    def stop(self) -> None:
        """Stop checking. A recovery that is under way continues; `Recoveries.finish` waits for it."""
        if self._timer is not None:
            self._timer.cancel()
        if self.reopening is not None:
            self.reopening.cancel()

    @property
    def min_free_bytes(self) -> int:
        return self._config.int("seqgate.log.min.free.bytes")

    def bucket_lags(self, is_behind: bool) -> None:
        """Refuse producers, or let them continue: too many records wait for the bucket, or few enough."""
        self.is_bucket_behind = is_behind
        self.is_short = is_behind or self.is_disk_short

    def check_free_space(self) -> None:
        """Decide whether there is room for producers, and reopen partitions that lacked room."""
        try:
            free_bytes = self._environment.storage.free_bytes(self._path)
        except OSError as error:
            if not self._is_gone:
                self._is_gone = True
                logger.warning("the free space of %s can't be read: %s", self._path, error)
            return
        if self._is_gone:
            self._is_gone = False
            logger.info("the free space of %s can be read again", self._path)
        self.free_bytes = free_bytes
        is_short = free_bytes < self.min_free_bytes
        if is_short != self.is_disk_short:
            self.is_disk_short = is_short
            self.is_short = is_short or self.is_bucket_behind
            if is_short:
                logger.error(
                    "the disk of %s has only %s free: producers are refused until it has %s "
                    "(seqgate.log.min.free.bytes)",
                    self._path,
                    size_in_words(free_bytes),
                    size_in_words(self.min_free_bytes),
                )
            else:
                logger.info("the disk of %s has room again, %s", self._path, size_in_words(free_bytes))
        if not is_short and free_bytes >= ENOUGH_BYTES and self._lists.short_of_room:
            self._begin_reopening()

    def _begin_reopening(self) -> None:
        if self._checks_to_skip:
            self._checks_to_skip -= 1
        elif self.reopening is None or self.reopening.done():
            self.reopening = asyncio.get_running_loop().create_task(self._reopen_all())

    async def _reopen_all(self) -> None:
        """Reopen the logs that lacked room, one after the other, until one fails. The next pass begins with
        the logs after it, so that a log that can't be recovered keeps no other one offline.
        """
        for log in list(self._lists.short_of_room):
            topic, index = log.topic, log.partition
            if self._log_directory.opened(topic, index) is not log:
                self._lists.short_of_room.pop(log, None)
                continue
            served = self._partitions.by_name.get(topic)
            if served is not None and served.unknown_or_led_elsewhere(index):
                continue  # It is being handed over.
            # Its opening may have lacked the room, and works while the log is offline.
            owner = self._partitions.get(topic, index)
            try:
                await self._recoveries.reopen(log, owner)
            except (IncompatibleFormat, LogError, OSError, MemoryError) as error:
                logger.warning("%s-%d stays offline: %s", topic, index, error)
                if log in self._lists.short_of_room:
                    self._lists.short_of_room[log] = self._lists.short_of_room.pop(log)
                self._checks_to_skip = CHECKS_BETWEEN_TRIES
                return
            if owner is not None:
                self._partitions.became_ready(topic, index)
