"""The process that compacts logs: started for work, given one log after another, then stopped. Jobs go to its
standard input, reports come from its standard output: a length (uint32 BE) and msgpack.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Final

from seqgate.log.compaction import (
    CleanedSegment,
    CleaningFailed,
    CleaningFinished,
    CleaningJob,
    CleaningReport,
    decode_report,
    encode_job,
)

logger = logging.getLogger(__name__)

_LENGTH_BYTES: Final = 4
_START: Final = (
    "import os, sys; sys.path[:] = sys.argv[1].split(os.pathsep); "
    "from seqgate.log.compaction.cleaner import main; main(int(sys.argv[2]))"
)
"""The program of the process. It imports from this process's path, whatever the working directory has."""


class CompactionWorker:
    """One compaction process. Only one task at a time may use it, except for `kill`."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    async def clean(
        self, job: CleaningJob, take: Callable[[CleanedSegment], Awaitable[None]]
    ) -> CleaningFinished | CleaningFailed:
        """Clean a log in the process; await `take` with each cleaned segment once it is durable.

        When the process dies, the result is a CleaningFailed, and the next call starts another process. When
        `take` raises, or this call is cancelled, the error is raised after the process has ended.
        """
        try:
            report = await self._first_report(job)
            while isinstance(report, CleanedSegment):
                await take(report)
                report = await self._next_report()
        except BaseException:
            # The process must have stopped writing. Its other reports must not answer a later job.
            self.kill()
            await self.close()
            raise
        return report

    async def _first_report(self, job: CleaningJob) -> CleaningReport:
        """Give the process the job; return the first report, as `_next_report` does."""
        try:
            process = await self._started()
            assert process.stdin is not None
            frame = encode_job(job)
            process.stdin.write(len(frame).to_bytes(_LENGTH_BYTES, "big") + frame)
            await process.stdin.drain()
        except OSError as error:
            return CleaningFailed(await self._death(error))
        return await self._next_report()

    async def _next_report(self) -> CleaningReport:
        """Return the next report of the process; CleaningFailed when the process has died."""
        assert self._process is not None
        assert self._process.stdout is not None
        stdout = self._process.stdout
        try:
            length = int.from_bytes(await stdout.readexactly(_LENGTH_BYTES), "big")
            return decode_report.decode(await stdout.readexactly(length))
        except (OSError, asyncio.IncompleteReadError) as error:
            return CleaningFailed(await self._death(error))

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-c",
                _START,
                os.pathsep.join(entry or os.getcwd() for entry in sys.path),  # noqa: PTH109 - a path as text
                str(os.getpid()),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            logger.info("a process for compaction was started, pid %d", self._process.pid)
        return self._process

    async def _death(self, error: Exception) -> str:
        process, self._process = self._process, None
        if process is None:
            return f"no compaction process could be started: {error}"
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()
        return f"the compaction process ended with exit status {process.returncode}"

    def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def close(self) -> None:
        """End the process, which must be idle or killed, and wait for it."""
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        await process.communicate()  # its end is seen once all that it has written is read
        self._process = None
