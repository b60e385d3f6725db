"""Recovers partition logs in worker threads while the gateway serves, so that the event loop waits for no check and no fsync."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from gateway.runtime.loop.clock import Clock
from gateway.runtime.partitions.log_flusher import LogFlusher
from gateway.runtime.partitions.waiting import LogOwner
from log import IncompatibleFormat, LogDirectory, LogError, PartitionLog, reopening

logger = logging.getLogger(__name__)

_EXPECTED: Final = (IncompatibleFormat, LogError, OSError)
"""The errors of a recovery that a failing disk or a damaged file causes. Any other error is a bug, or a lack of memory or threads."""


class Recoveries:
    """The recoveries under way, at most one of each partition. `finish` waits for all of them."""

    def __init__(self, flusher: LogFlusher, clock: Clock) -> None:
        self._flusher = flusher
        self._clock = clock
        self._under_way: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._is_finished = False

    async def reopen(self, log: PartitionLog, owner: LogOwner | None) -> None:
        """Bring an offline log back; `owner` serves it, if anyone does. Joins a recovery that is under way.

        The recovery continues when the caller is cancelled. Raises LogError, IncompatibleFormat, OSError; the
        log is then still offline.
        """
        await asyncio.shield(self._start((log.topic, log.partition), lambda: self._reopen(log, owner)))

    def open_soon(self, directory: LogDirectory, key: tuple[str, int], then: Callable[[], object]) -> None:
        """Recover a log that is not open, in the background, and call `then` when it can be opened."""
        self._start(key, lambda: self._open(directory, key, then))

    async def open(self, directory: LogDirectory, key: tuple[str, int]) -> None:
        """Recover a log that is not open, if that is possible; afterwards it can be opened. Joins a recovery that is under way.

        The recovery continues when the caller is cancelled.
        """
        if not self._is_finished:
            await asyncio.shield(self._start(key, lambda: self._open(directory, key, lambda: None)))

    async def settled(self, key: tuple[str, int]) -> None:
        """Wait until no recovery of a partition is under way."""
        task = self._under_way.get(key)
        if task is not None:
            await asyncio.wait([task])

    async def finish(self) -> None:
        """Wait for the recoveries under way. Afterwards no thread uses the data directory."""
        self._is_finished = True
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    def _start(
        self, key: tuple[str, int], work: Callable[[], Coroutine[Any, Any, None]]
    ) -> asyncio.Task[None]:
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.get_running_loop().create_task(work())
            task.add_done_callback(lambda done: self._over(key, done))
        return task

    def _over(self, key: tuple[str, int], task: asyncio.Task[None]) -> None:
        del self._under_way[key]
        # A caller that waits for the task gets its error too, and reports an expected one.
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, _EXPECTED):
            logger.error("the recovery of %s-%d failed in an unexpected way", *key, exc_info=error)

    async def _reopen(self, log: PartitionLog, owner: LogOwner | None) -> None:
        recovery = reopening.begin(log, self._clock.now_ms())
        try:
            await asyncio.to_thread(recovery.run)
        finally:
            reopening.end(log, recovery, self._clock.now_ms())
        self._flusher.reopened(log)
        if owner is not None:
            if log.unflushed.has_captures or log.recovery_point < log.log_end_offset:
                self._flusher.mark_dirty(owner)
            owner.flush_finished()

    async def _open(self, directory: LogDirectory, key: tuple[str, int], then: Callable[[], object]) -> None:
        try:
            recovery = directory.begin_recovery(key)
            if recovery is None:
                return
            try:
                await asyncio.to_thread(recovery.run)
            finally:
                directory.end_recovery(key, recovery)
        except _EXPECTED as error:
            logger.error("%s-%d can't be recovered: %s", *key, error)  # noqa: TRY400 - needs no traceback
            return
        if recovery.stop is not None:
            then()
