"""The machine's resources that a gateway uses: time, files, threads, processes. A simulation provides others.

The process that compacts logs: started when there is work, given one log after another, stopped after that.

Jobs go to the process's standard input, reports come from its standard output. Each is a length (uint32,
big-endian) and msgpack.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar

from seqgate.gateway.config import Config
from seqgate.gateway.runtime.loop.clock import Clock, SystemClock
from seqgate.log import Storage
from seqgate.log.compaction import (
    CleanedSegment,
    CleaningFailed,
    CleaningFinished,
    CleaningJob,
    decode_report,
    encode_job,
)

if TYPE_CHECKING:
    from seqgate.gateway.cluster.cache.bucket import BucketCalls
    from seqgate.gateway.cluster.objects.objects import ObjectStore
    from seqgate.log.sparse import SparseDisk

logger = logging.getLogger(__name__)


SPARE_HANDLES: Final = 64
"""File handles kept for short-lived files, listeners, the event loop, and the compaction worker."""
FEWEST_HANDLES: Final = 8
"""File handles that connections and data files each get however low the limit is."""
_COUNTS_SUSPENSION: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux has a clock of its own for that; the monotonic clock of macOS counts the time of suspension anyway.
"""

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Workers(Protocol[T_contra]):
    """A few threads beside the event loop that do one kind of work."""

    def put(self, item: T_contra) -> None:
        """Queue an item; the threads take items in the order they were put."""
        ...

    def stop(self) -> None:
        """Finish all queued items, end the threads, and return."""
        ...


class Cleaner(Protocol):
    """A cleaner of logs outside the event loop; see `CompactionWorker`."""

    async def clean(
        self, job: CleaningJob, take: Callable[[CleanedSegment], Awaitable[None]]
    ) -> CleaningFinished | CleaningFailed: ...

    def kill(self) -> None: ...

    async def close(self) -> None: ...


class WorkerThreads(Generic[T]):
    """`count` threads called `name`-0, `name`-1, ... that call `work`, which must not raise."""

    def __init__(self, name: str, count: int, work: Callable[[T], None]) -> None:
        """Start the threads."""
        self._work = work
        self._items: SimpleQueue[tuple[T] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def put(self, item: T) -> None:
        self._items.put((item,))

    def stop(self) -> None:
        for _ in self._threads:
            self._items.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (entry := self._items.get()) is not None:
            self._work(entry[0])
            del entry  # Drop the reference, so that the waiting thread does not keep its last item in memory.


class FileHandles(NamedTuple):
    """The numbers of connections and of data files that may be open at once."""

    connections: int
    files: int


def split_file_handles(limit: int, wanted_files: int) -> FileHandles:
    """Split the process's file limit (RLIMIT_NOFILE): data files get `wanted_files`, at most half;
    connections the rest.

    Connections must not take the last handle. Otherwise no segment could be opened, and partitions would go
    offline.
    """
    available = max(limit - SPARE_HANDLES, 2 * FEWEST_HANDLES)
    files = max(FEWEST_HANDLES, min(wanted_files, available // 2))
    return FileHandles(connections=available - files, files=files)


class Machine:
    """The machine's own clock, storage, threads and processes."""

    def __init__(self, clock: Clock | None = None, storage: Storage | None = None) -> None:
        """Use another clock or storage than the machine's own, if given."""
        self.clock = clock or SystemClock()
        self.storage = storage or Storage()

    def let_files_have_holes(self) -> SparseDisk:
        """Let segment files have holes from now on; no file may be open yet. Return what knows the holes."""
        self.storage = self.storage.with_holes()
        assert self.storage.sparse is not None
        return self.storage.sparse

    seconds = staticmethod(time.perf_counter)
    """Returns seconds of a clock that is never set, for durations."""

    def boot_seconds(self) -> float:
        """Return seconds of a clock that is never set, and counts the machine's suspension: for leases."""
        return time.clock_gettime(_COUNTS_SUSPENSION)

    def workers(self, name: str, count: int, work: Callable[[T], None]) -> Workers[T]:
        """Start `count` threads that call `work`, which must not raise."""
        return WorkerThreads(name, count, work)

    def objects(self, config: Config) -> ObjectStore:
        """Return the store of the bucket that `seqgate.cluster` names. Raises Refused."""
        return _store_opener(config)()

    def bucket_calls(self, config: Config) -> BucketCalls:
        """Return calls to the store of the bucket for threads that wait. Nothing is opened before the first
        call. Raises Refused.
        """
        from seqgate.gateway.cluster.cache.bucket import TIMEOUT_S, BucketThread  # noqa: PLC0415 - only a gateway with a cluster needs the import

        timeout_s = max(TIMEOUT_S, config.int("seqgate.cluster.request.timeout.ms") / 1000)
        return BucketThread(_store_opener(config), timeout_s)

    def cleaner(self) -> Cleaner:
        """Return a cleaner of logs, which starts its process with its first job."""
        return CompactionWorker()


def _store_opener(config: Config) -> Callable[[], ObjectStore]:
    """Return what opens the store of the bucket. Raises Refused."""
    from seqgate.gateway.cluster.objects.address import StoreOptions, store_opener  # noqa: PLC0415 - only a gateway with a cluster needs the imports

    options = StoreOptions(
        endpoint=config.optional_str("seqgate.cluster.endpoint"),
        region=config.optional_str("seqgate.cluster.region"),
        ca_file=config.optional_str("seqgate.cluster.ca.file"),
        timeout_s=config.int("seqgate.cluster.request.timeout.ms") / 1000,
    )
    return store_opener(config.str("seqgate.cluster"), options, os.environ)


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
        `take` raises, the process is killed and the error is raised.
        """
        try:
            process = await self._started()
            assert process.stdin is not None
            frame = encode_job(job)
            process.stdin.write(len(frame).to_bytes(_LENGTH_BYTES, "big") + frame)
            await process.stdin.drain()
            while True:
                report = decode_report.decode(await self._next_frame(process))
                if not isinstance(report, CleanedSegment):
                    return report
                await take(report)
        except (OSError, asyncio.IncompleteReadError) as error:
            return CleaningFailed(await self._death(error))
        except BaseException:
            self.kill()
            raise

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-c",
                _START,
                os.pathsep.join(entry or os.getcwd() for entry in sys.path),  # noqa: PTH109 - a path as text, no I/O
                str(os.getpid()),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            logger.info("a process for compaction was started, pid %d", self._process.pid)
        return self._process

    @staticmethod
    async def _next_frame(process: asyncio.subprocess.Process) -> bytes:
        assert process.stdout is not None
        length = int.from_bytes(await process.stdout.readexactly(_LENGTH_BYTES), "big")
        return await process.stdout.readexactly(length)

    async def _death(self, error: Exception) -> str:
        process, self._process = self._process, None
        if process is None:
            return f"no compaction process could be started: {error}"
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        return f"the compaction process ended with exit status {await process.wait()}"

    def kill(self) -> None:
        """Kill the process at once."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def close(self) -> None:
        """End the process, which must be idle, and wait for it."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        await process.wait()
