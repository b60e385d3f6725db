"""Stages a backup: gives the files of the data directory second names as of one moment, and deletes those
names again.

`seqgate backup create` copies the files in a process of its own, so that the event loop does nothing for it
but `capture`. The command holds a file lock meanwhile. A command that was killed releases the lock, so the
names of its files go within CHECK_EVERY_S.

Of a data directory that several workers have, each links its share. Whoever supervises the workers stops them
all at one moment (`seqgate.gateway.workers.staging_rounds`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

from seqgate.gateway.runtime.loop.clock import Clock, Task, TaskList
from seqgate.log import DirectoryLocked, IncompatibleFormat, LogDirectory, LogError
from seqgate.log.staging import (
    STAGING,
    STAGING_LOCK,
    LogCut,
    Staged,
    capture,
    join_shares,
    remove_abandoned,
    remove_staging,
    stage,
    stage_share,
)

logger = logging.getLogger(__name__)

CHECK_EVERY_S: Final = 1.0
"""Time between two looks whether the command that copies the files is still there."""
NAME: Final = "backup"
"""The name of the task, in the list of background tasks."""


class StagingRefused(Exception):
    """The files can't be staged; the text is a sentence."""


class StagingPart(Protocol):
    """The part of a worker in a staging; `seqgate.gateway.workers.link` implements it."""

    async def prepared(self) -> None:
        """Report that nothing hinders a capture; return when it is due. Raises StagingRefused."""

    def hold(self) -> None:
        """Report a capture, and let nothing run in this event loop until all workers have reported theirs.
        Raises StagingRefused where a limit ends that: then the captures are of several moments.
        """

    async def linked(self, failure: str | None) -> None:
        """Report that the share is linked, or why not; return when the staging has ended."""


StageAll = Callable[[], Awaitable[int]]
"""Lets all workers stage their shares, this one too; returns the moment (ms). Raises StagingRefused."""


class BackupStaging:
    """The staging of one gateway, or of a worker that has a share; one backup at a time."""

    def __init__(
        self,
        clock: Clock,
        log_directory: LogDirectory,
        tasks: TaskList,
        swapping: asyncio.Lock,
        other_files: Collection[str],
        stage_all: StageAll | None = None,
    ) -> None:
        """`swapping` is compaction's lock; `other_files` are not the log's. Only a worker has `stage_all`."""
        self._clock = clock
        self._directory = log_directory
        self._storage = log_directory.environment.storage
        self._tasks = tasks
        self._swapping = swapping
        self._other_files = other_files
        self._root = str(log_directory.path)
        self._stage_all = stage_all
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
        except StagingRefused as error:
            self._tasks.end(task, str(error))
            raise
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
        if self._stage_all is not None:
            return await self._stage_together(self._stage_all)
        async with self._kept_files():
            # No other task runs between these two lines: all logs end at the same moment.
            taken_ms = self._clock.now_ms()
            cuts = capture(self._directory)
            return await asyncio.to_thread(self._link, cuts, taken_ms)

    @asynccontextmanager
    async def _kept_files(self) -> AsyncIterator[None]:
        async with self._swapping:
            self._storage.keeps_deleted = True
            try:
                yield
            finally:
                self._storage.keeps_deleted = False

    def _link(self, cuts: list[LogCut], taken_ms: int) -> Staged:
        storage = self._storage.apart()
        try:
            return stage(storage, self._root, cuts, taken_ms, self._other_files)
        except BaseException:
            remove_staging(storage, self._root)
            raise

    async def _stage_together(self, stage_all: StageAll) -> Staged:
        storage = self._storage.apart()
        try:
            await asyncio.to_thread(remove_staging, storage, self._root)
            taken_ms = await stage_all()
            return await asyncio.to_thread(join_shares, storage, self._root, taken_ms)
        except (LogError, OSError, StagingRefused):
            with suppress(OSError):
                await asyncio.to_thread(remove_staging, storage, self._root)
            raise

    async def stage_share(self, part: StagingPart) -> None:
        """Stage this worker's share, at the moment at which all workers stand still. Deleted files stay until
        all shares are linked: a worker may delete what another one has removed.
        """
        failure = None
        async with self._kept_files():
            try:
                await part.prepared()
                # No other task runs from here until all other workers have captured, too.
                cuts = capture(self._directory)
                part.hold()
                await asyncio.to_thread(self._link_share, cuts)
            except (IncompatibleFormat, LogError, OSError, StagingRefused) as error:
                failure = str(error)
            await part.linked(failure)

    def _link_share(self, cuts: list[LogCut]) -> None:
        name = Path(self._directory.files).name
        stage_share(self._storage.apart(), self._root, name, cuts, self._other_files)

    def _watch(self, task: Task) -> None:
        self._tasks.start(task, self._remove_when_abandoned())

    async def _remove_when_abandoned(self) -> None:
        """Wait until the command has removed what was staged, or has died; then remove it. What fails is
        tried again: otherwise the staged files would stay until the next start.
        """
        has_failed = False
        while self._storage.exists(f"{self._root}/{STAGING}"):
            try:
                if not self._is_staging and self._is_abandoned():
                    logger.warning("backup: the command has ended early; its names of files are removed")
                    await asyncio.to_thread(remove_abandoned, self._storage.apart(), self._root)
            except Exception as error:  # noqa: BLE001 - also without a free descriptor or thread
                if not has_failed:
                    logger.warning("backup: what the command has staged can't be removed now: %s", error)
                has_failed = True
            await asyncio.sleep(CHECK_EVERY_S)

    def _is_abandoned(self) -> bool:
        path = f"{self._root}/{STAGING_LOCK}"
        try:
            self._storage.lock(path)
        except DirectoryLocked:
            return False
        self._storage.unlock(path)
        return True
