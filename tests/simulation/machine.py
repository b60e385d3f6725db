"""The machine under a simulated gateway: virtual time, a disk that can fail, and threads that are timers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any, TypeVar, cast

from seqgate.gateway.cluster.objects.objects import ObjectStore
from seqgate.gateway.config import Config
from seqgate.gateway.runtime.loop.clock import Clock
from seqgate.gateway.runtime.loop.machine import Machine, Workers
from seqgate.log import LogError, Storage
from seqgate.log.compaction.cleaner import LogCleaner, Throttle
from seqgate.log.compaction.job import CleanedSegment, CleaningFailed, CleaningFinished, CleaningJob
from tests.simulation.loop import SimulatedLoop
from tests.support.simulated_objects import SimulatedBucket, SimulatedObjects

T = TypeVar("T")
EPOCH_MS = 1_700_000_000_000


class SimulatedClock(Clock):
    """Wall-clock time, which may jump while the loop's time does not."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self.jumped_ms = 0

    def now_ms(self) -> int:
        return EPOCH_MS + int(self._loop.time() * 1000) + self.jumped_ms


class SimulatedWorkers:
    """`count` threads, as timers of the process that started them."""

    def __init__(self, loop: SimulatedLoop, count: int, work: Callable[[Any], None]) -> None:
        self._loop = loop
        self._work = work
        self._idle = count
        self._items: deque[Any] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)
        self._begin()

    def stop(self) -> None:
        with self._loop.in_thread():
            while self._items:
                self._work(self._items.popleft())

    def _begin(self) -> None:
        if self._idle and self._items:
            self._idle -= 1
            self._loop.call_later(self._loop.thread_latency_s(), self._do, self._items.popleft())

    def _do(self, item: Any) -> None:
        with self._loop.in_thread():
            self._work(item)
        self._idle += 1
        self._begin()


class SimulatedCleaner:
    """Cleans a log in the loop: each segment at one moment, one segment after the other."""

    def __init__(self, loop: SimulatedLoop, storage: Storage, chance: Random) -> None:
        self._loop = loop
        self._storage = storage
        self._chance = chance

    async def clean(
        self, job: CleaningJob, take: Callable[[CleanedSegment], Awaitable[None]]
    ) -> CleaningFinished | CleaningFailed:
        if self._chance.random() < 0.1:
            return CleaningFailed("its process ended with -9")
        reports: list[CleanedSegment] = []
        outcome = await self._loop.run_in_executor(None, self._clean, job, reports)
        for report in reports:
            await asyncio.sleep(self._loop.thread_latency_s())
            await take(report)
        return outcome  # type: ignore[no-any-return]

    def _clean(self, job: CleaningJob, reports: list[CleanedSegment]) -> CleaningFinished | CleaningFailed:
        throttle = Throttle(0, self._loop.time, self._loop.pass_time)
        try:
            salt, report = self._chance.randbytes(16), reports.append
            return LogCleaner(self._storage, job, throttle=throttle, salt=salt, report=report).run()
        except (LogError, ValueError) as error:
            return CleaningFailed(f"{type(error).__name__}: {error}", is_corrupt=True)
        except OSError as error:
            return CleaningFailed(f"{type(error).__name__}: {error}", is_of_disk=True)

    def kill(self) -> None:
        """Do nothing: a cleaning happens completely or not at all."""

    async def close(self) -> None:
        """Do nothing: no file is open."""


class _AtOnce:
    """The store of the same bucket, which answers reads in no time and without faults."""

    def __init__(self, bucket: SimulatedBucket) -> None:
        self._bucket = bucket

    async def get(self, key: str, first: int = 0, size_bytes: int | None = None) -> bytes:
        return self._bucket.get(key)[first : None if size_bytes is None else first + size_bytes]


class SimulatedBucketCalls:
    """Calls of threads that wait, which a simulated process answers at one moment: it has no threads."""

    def __init__(self, objects: SimulatedObjects) -> None:
        self._objects = objects

    def run(self, call: Callable[[ObjectStore], Coroutine[Any, Any, T]]) -> T:
        coroutine = call(cast("ObjectStore", _AtOnce(self._objects.bucket)))
        try:
            coroutine.send(None)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        coroutine.close()
        raise TimeoutError("the call waits for something else than the store")

    def close(self) -> None:
        """Do nothing: nothing is open."""


class SimulatedMachine(Machine):
    def __init__(
        self,
        loop: SimulatedLoop,
        clock: SimulatedClock,
        storage: Storage,
        chance: Random,
        objects: SimulatedObjects | None = None,
    ) -> None:
        super().__init__(clock, storage)
        self._objects = objects
        self._loop = loop
        self._chance = chance

    def seconds(self) -> float:
        return self._loop.time()

    def boot_seconds(self) -> float:
        return self._loop.time()

    def objects(self, config: Config) -> ObjectStore:
        assert self._objects is not None
        return self._objects

    def bucket_calls(self, config: Config) -> SimulatedBucketCalls:
        assert self._objects is not None
        return SimulatedBucketCalls(self._objects)

    def memory_room(self) -> None:
        """Tell nothing: the memory of the machine that runs the simulation must not change it."""

    def workers(self, name: str, count: int, work: Callable[[Any], None]) -> Workers[Any]:
        return SimulatedWorkers(self._loop, count, work)

    def cleaner(self) -> SimulatedCleaner:
        return SimulatedCleaner(self._loop, self.storage, self._chance)
