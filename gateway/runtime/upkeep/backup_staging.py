"""Stages a backup: gives the files of the data directory second names as of one moment, and deletes those
names again.

`seqgate backup create` copies the files in a process of its own, so that the event loop does nothing for it
but `capture`. The command holds a file lock meanwhile. A command that was killed releases the lock, so the
names of its files go within CHECK_EVERY_S.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from seqgate.gateway.runtime.loop.clock import Task, TaskList
from seqgate.log import DirectoryLocked, IncompatibleFormat, LogDirectory, LogError
from seqgate.log.staging import STAGING, STAGING_LOCK, LogCut, Staged, capture, remove_staging, stage

if TYPE_CHECKING:
    from collections.abc import Collection

    from seqgate.gateway.runtime.loop.clock import Clock

logger = logging.getLogger(__name__)

CHECK_EVERY_S: Final = 1.0
"""Time between two looks whether the command that copies the files is still there."""
NAME: Final = "backup"
"""The name of the task, in the list of background tasks."""


class StagingRefused(Exception):
    """The files can't be staged; the text is a sentence."""


class BackupStaging:
    """The staging of one gateway that has the whole data directory; one backup at a time."""

    def __init__(
        self,
        clock: Clock,
        log_directory: LogDirectory,
        tasks: TaskList,
        swapping: asyncio.Lock,
        other_files: Collection[str],
    ) -> None:
        """Take compaction's lock, and the names of files in the data directory that are not the log's."""
        self._clock = clock
        self._directory = log_directory
        self._storage = log_directory.environment.storage
        self._tasks = tasks
        self._swapping = swapping
        self._other_files = other_files
        self._root = str(log_directory.path)
        self._is_staging = False

    def start(self) -> None:
        """Watch what an earlier run has staged: a command may still copy it."""
        if self._storage.exists(f"{self._root}/{STAGING}"):
            self._watch(self._tasks.begin(NAME))

    async def begin(self) -> Staged:
        """Stage the files for a command that holds STAGING_LOCK. Raises StagingRefused. The lock proves that
        what is staged already belongs to no living command.
        """
        if self._is_staging:
            raise StagingRefused("another backup of this gateway begins; try again")
        try:
            is_abandoned = self._is_abandoned()
        except OSError as error:
            raise StagingRefused(str(error)) from error
        if is_abandoned:
            raise StagingRefused(f"{STAGING_LOCK} is not locked by the command that asks for a backup")
        self._is_staging = True
        task = self._tasks.begin(NAME)
        try:
            staged = await self._stage()
        except (IncompatibleFormat, LogError, OSError) as error:
            self._tasks.end(task, str(error))
            raise StagingRefused(str(error)) from error
        except asyncio.CancelledError:
            # The thread may still link files. The command removes them, or the next start does.
            self._tasks.end(task, "the gateway stopped")
            raise
        finally:
            self._is_staging = False
        logger.info("backup: %d partitions are staged as they are now", staged.partitions)
        task.done = task.total = staged.partitions
        self._watch(task)
        return staged

    async def _stage(self) -> Staged:
        async with self._swapping:
            self._storage.keeps_deleted = True
            try:
                # No other task runs between these two lines: all logs end at the same moment.
                taken_ms = self._clock.now_ms()
                cuts = capture(self._directory)
                return await asyncio.to_thread(self._link, cuts, taken_ms)
            finally:
                self._storage.keeps_deleted = False

    def _link(self, cuts: list[LogCut], taken_ms: int) -> Staged:
        storage = self._storage.apart()
        try:
            return stage(storage, self._root, cuts, taken_ms, self._other_files)
        except BaseException:
            remove_staging(storage, self._root)
            raise

    def _watch(self, task: Task) -> None:
        self._tasks.start(task, self._remove_when_abandoned())

    async def _remove_when_abandoned(self) -> None:
        """Wait until the command has removed what was staged, or has died; then remove it. Raises OSError."""
        while self._storage.exists(f"{self._root}/{STAGING}"):
            if not self._is_staging and self._is_abandoned():
                logger.warning("backup: the command has ended early; its names of files are removed")
                await asyncio.to_thread(remove_staging, self._storage.apart(), self._root)
            await asyncio.sleep(CHECK_EVERY_S)

    def _is_abandoned(self) -> bool:
        path = f"{self._root}/{STAGING_LOCK}"
        try:
            self._storage.lock(path)
        except DirectoryLocked:
            return False
        self._storage.unlock(path)
        return True
