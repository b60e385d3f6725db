"""The machine's resources that a gateway uses: time, files, threads, processes. A simulation provides others."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Awaitable, Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar

from gateway.config import Config
from gateway.runtime.loop.clock import Clock, SystemClock
from gateway.runtime.loop.compaction_worker import CompactionWorker
from log import Storage
from log.compaction import CleanedSegment, CleaningFailed, CleaningFinished, CleaningJob

if TYPE_CHECKING:
    from gateway.cluster.cache.bucket import BucketCalls
    from gateway.cluster.objects.objects import ObjectStore

SPARE_HANDLES: Final = 64
"""File handles kept for short-lived files, listeners, the event loop, and the compaction worker."""
FEWEST_HANDLES: Final = 8
"""File handles that connections and data files each get however low the limit is."""
_COUNTS_SUSPENSION: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux has a clock of its own for that; the monotonic clock of macOS counts the time of suspension anyway."""

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
    """Split the process's file limit (RLIMIT_NOFILE): data files get `wanted_files`, at most half; connections the rest.

    Connections must not take the last handle. Otherwise no segment could be opened, and partitions would go offline.
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

    def seconds(self) -> float:
        """Return seconds of a clock that is never set, for durations."""
        return time.perf_counter()

    def boot_seconds(self) -> float:
        """Return seconds of a clock that is never set, and that counts the time in which the machine is suspended: for leases."""
        return time.clock_gettime(_COUNTS_SUSPENSION)

    def workers(self, name: str, count: int, work: Callable[[T], None]) -> Workers[T]:
        """Start `count` threads that call `work`, which must not raise."""
        return WorkerThreads(name, count, work)

    def objects(self, config: Config) -> ObjectStore:
        """Return the store of the bucket that `seqgate.cluster` names. Raises Refused."""
        return _store_opener(config)()

    def bucket_calls(self, config: Config) -> BucketCalls:
        """Return calls to the store of the bucket for threads that wait. Nothing is opened before the first call. Raises Refused."""
        from gateway.cluster.cache.bucket import (  # noqa: PLC0415 - only a gateway with a cluster needs the import
            TIMEOUT_S,
            BucketThread,
        )

        timeout_s = max(TIMEOUT_S, config.int("seqgate.cluster.request.timeout.ms") / 1000)
        return BucketThread(_store_opener(config), timeout_s)

    def cleaner(self) -> Cleaner:
        """Return a cleaner of logs, which starts its process with its first job."""
        return CompactionWorker()


def _store_opener(config: Config) -> Callable[[], ObjectStore]:
    """Return what opens the store of the bucket. Raises Refused."""
    from gateway.cluster.objects.address import (  # noqa: PLC0415 - only a gateway with a cluster needs the imports
        StoreOptions,
        store_opener,
    )

    options = StoreOptions(
        endpoint=config.optional_str("seqgate.cluster.endpoint"),
        region=config.optional_str("seqgate.cluster.region"),
        ca_file=config.optional_str("seqgate.cluster.ca.file"),
        timeout_s=config.int("seqgate.cluster.request.timeout.ms") / 1000,
    )
    return store_opener(config.str("seqgate.cluster"), options, os.environ)
