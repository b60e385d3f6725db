"""The machine's resources for a gateway: time, files, threads, processes. A simulation has others."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Awaitable, Callable
from enum import Enum
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar

from seqgate.gateway.config import Config
from seqgate.gateway.runtime.loop.clock import Clock, SystemClock
from seqgate.gateway.runtime.loop.memory_room import MemoryFiles, MemoryRoom
from seqgate.log import Storage

if TYPE_CHECKING:
    from seqgate.gateway.cluster.cache.bucket import BucketCalls
    from seqgate.gateway.cluster.objects.objects import ObjectStore
    from seqgate.log.compaction import CleanedSegment, CleaningFailed, CleaningFinished, CleaningJob
    from seqgate.log.sparse import SparseDisk

SPARE_HANDLES: Final = 64
"""File handles kept for short-lived files, listeners, the event loop, and the compaction worker."""
FEWEST_HANDLES: Final = 8
"""File handles that connections and data files each get however low the limit is."""
_COUNTS_SUSPENSION: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux has its own clock for that; macOS's monotonic clock counts the time of suspension anyway."""

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Workers(Protocol[T_contra]):
    """A few threads beside the event loop that do one kind of work."""

    def put(self, item: T_contra) -> None:
        """Queue an item; the threads take items in the order they were put."""

    def stop(self) -> None:
        """Finish all queued items, end the threads, and return."""


class Cleaner(Protocol):
    """A cleaner of logs outside the event loop; see `CompactionWorker`."""

    async def clean(
        self, job: CleaningJob, take: Callable[[CleanedSegment], Awaitable[None]]
    ) -> CleaningFinished | CleaningFailed: ...

    def kill(self) -> None: ...

    async def close(self) -> None: ...


class _End(Enum):
    """The item after which a worker thread ends."""

    END = 0


class WorkerThreads(Generic[T]):
    """`count` threads called `name`-0, `name`-1, ... that call `work`, which must not raise."""

    def __init__(self, name: str, count: int, work: Callable[[T], None]) -> None:
        self._work = work
        self._items: SimpleQueue[T | _End] = SimpleQueue()
        self.put = self._items.put
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        for _ in self._threads:
            self._items.put(_End.END)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (item := self._items.get()) is not _End.END:
            self._work(item)
            del item  # Drop the reference, so that the waiting thread does not keep its last item in memory.


class FileHandles(NamedTuple):
    connections: int
    files: int


def split_file_handles(limit: int, wanted_files: int) -> FileHandles:
    """Split the file limit (RLIMIT_NOFILE): data files get `wanted_files`, at most half; others the rest.
    Connections must not take the last handle. Otherwise partitions would go offline.
    """
    available = max(limit - SPARE_HANDLES, 2 * FEWEST_HANDLES)
    files = max(FEWEST_HANDLES, min(wanted_files, available // 2))
    return FileHandles(connections=available - files, files=files)


class Machine:
    """The machine's own clock, storage, threads and processes."""

    def __init__(self, clock: Clock | None = None, storage: Storage | None = None) -> None:
        self.clock = clock or SystemClock()
        self.storage = storage or Storage()
        self._memory_files: MemoryFiles | None = None

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

    def memory_room(self) -> MemoryRoom | None:
        """Return the memory that there is to spare; None where it is not known. Call in a thread."""
        if self._memory_files is None:
            self._memory_files = MemoryFiles()
        return self._memory_files.read()

    def workers(self, name: str, count: int, work: Callable[[T], None]) -> Workers[T]:
        return WorkerThreads(name, count, work)

    def objects(self, config: Config) -> ObjectStore:
        """Return the store of the bucket that `seqgate.cluster` names. Raises Refused."""
        return _store_opener(config)()

    def bucket_calls(self, config: Config) -> BucketCalls:
        """Return calls to the bucket's store for threads that wait; the first opens it. Raises Refused."""
        from seqgate.gateway.cluster.cache.bucket import TIMEOUT_S, BucketThread  # noqa: PLC0415 - clusters

        timeout_s = max(TIMEOUT_S, config.int("seqgate.cluster.request.timeout.ms") / 1000)
        return BucketThread(_store_opener(config), timeout_s)

    def cleaner(self) -> Cleaner:
        """Return a cleaner of logs, which starts its process with its first job."""
        from seqgate.gateway.runtime.loop.compaction_worker import CompactionWorker  # noqa: PLC0415 - rare

        return CompactionWorker()


def _store_opener(config: Config) -> Callable[[], ObjectStore]:
    """Return what opens the store of the bucket. Raises Refused."""
    from seqgate.gateway.cluster.objects.address import StoreOptions, store_opener  # noqa: PLC0415 - clusters

    options = StoreOptions(
        endpoint=config.optional_str("seqgate.cluster.endpoint"),
        region=config.optional_str("seqgate.cluster.region"),
        ca_file=config.optional_str("seqgate.cluster.ca.file"),
        timeout_s=config.int("seqgate.cluster.request.timeout.ms") / 1000,
    )
    return store_opener(config.str("seqgate.cluster"), options, os.environ)
