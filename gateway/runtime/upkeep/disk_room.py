"""A disk that fills up: producers are refused before it is full, and what it took offline comes back when it has room.

A full disk takes more than records: without a few bytes for metadata and offsets nobody could delete a topic to make
room. So the last `seqgate.log.min.free.bytes` are not for producers. A partition that a failed write took offline all
the same, because another program was faster or no file handle was left, is reopened as `seqgate reopen` does it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from gateway.config import Config
from gateway.runtime.loop.clock import Clock
from gateway.runtime.partitions.registry import Partitions
from gateway.runtime.topics.metadata_log import MetadataLog
from log import LogDirectory, LogError
from log.durable_log import DurableLog

logger = logging.getLogger(__name__)

CHECK_EVERY_S: Final = 0.1
"""What the fastest producers write meanwhile must fit into the reserve."""
CHECKS_BETWEEN_TRIES: Final = 10
"""A partition that could not be reopened is tried again after so many looks."""
ENOUGH_BYTES: Final = 1 << 20
"""With less than this free nothing is reopened, whatever the reserve."""


class DiskRoom:
    """Looks at the free space every so often between `start` and `stop`.

    `is_short` tells whether producers are to be refused now, `refused_batches` how many were since the start.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        log_directory: LogDirectory,
        partitions: Partitions,
        metadata_log: MetadataLog,
    ) -> None:
        self.is_short = False
        self.refused_batches = 0
        self._config = config
        self._clock = clock
        self._environment = log_directory.environment
        self._path = config.str("log.dirs")
        self._partitions = partitions
        self._metadata_log = metadata_log
        self._checks_to_skip = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look now, and then every so often."""
        self.check_free_space()
        self._timer = asyncio.get_running_loop().call_later(CHECK_EVERY_S, self.start)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    @property
    def min_free_bytes(self) -> int:
        """What producers may not use."""
        return self._config.int("seqgate.log.min.free.bytes")

    def check_free_space(self) -> None:
        """Decide whether there is room, and reopen what was offline for want of it."""
        try:
            free_bytes = self._environment.storage.free_bytes(self._path)
        except OSError as error:
            logger.warning("the free space of %s can't be told: %s", self._path, error)
            return
        is_short = free_bytes < self.min_free_bytes
        if is_short != self.is_short:
            self.is_short = is_short
            if is_short:
                logger.error(
                    "the disk of %s has only %d bytes free: producers are refused until it has %d "
                    "(seqgate.log.min.free.bytes)",
                    self._path,
                    free_bytes,
                    self.min_free_bytes,
                )
            else:
                logger.info("the disk of %s has room again, %d bytes", self._path, free_bytes)
        if not is_short and free_bytes >= ENOUGH_BYTES and self._environment.short_of_room:
            self._reopen_all()

    def _reopen_all(self) -> None:
        if self._checks_to_skip:
            self._checks_to_skip -= 1
            return
        for log in list(self._environment.short_of_room):
            try:
                self._reopen(log)
            except (LogError, OSError, MemoryError) as error:
                logger.warning("%s-%d stays offline: %s", log.topic, log.partition, error)
                self._checks_to_skip = CHECKS_BETWEEN_TRIES
                return

    def _reopen(self, log: DurableLog) -> None:
        if log is self._metadata_log.log:
            log.reopen(self._clock.now_ms())
            return
        topic = self._partitions.by_name.get(log.topic)
        partition = None if topic is None else topic.peek(log.partition)
        if partition is None or partition.log is not log:
            self._environment.short_of_room.pop(log, None)
            return
        log.reopen(self._clock.now_ms())
        partition.flush_finished()
