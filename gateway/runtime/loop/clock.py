"""The gateway's only source of time; tests inject another.

Notices when the machine's clock is set, so that deadlines move with the clock.

Sessions of members, rebalances and locks of share groups last a fixed time, whatever the clock does. Kafka
measures that time with a clock that is never set. Here deadlines are wall-clock times, and so move with it.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from seqgate.gateway.config import Config
from seqgate.gateway.coordinator.deadlines import NEVER, moved
from seqgate.gateway.tasks import end_tasks, happens

logger = logging.getLogger(__name__)


NS_PER_MS: Final = 1_000_000


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""

    def now_ns(self) -> int:
        """Nanoseconds since the Unix epoch. Batches use this: the clock answers it without a Python call."""
        return self.now_ms() * NS_PER_MS


class SystemClock(Clock):
    now_ns = staticmethod(time.time_ns)

    def now_ms(self) -> int:
        return time.time_ns() // NS_PER_MS


TOLERATED_MS: Final = 1000
"""Smaller jumps are ordinary corrections of a clock and are ignored."""


class ClockChanges(Clock):
    """A clock that checks at each call whether the machine's was set; `listeners` get the jump (ms)."""

    def __init__(self, clock: Clock, seconds: Callable[[], float]) -> None:
        """Compare `clock` with `seconds`, a clock that is never set."""
        self._clock = clock
        self._seconds = seconds
        self._ahead_ms = clock.now_ms() - seconds() * 1000
        self.listeners: list[Callable[[int], None]] = []

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch. If the clock was set, call the listeners first."""
        now_ms = self._clock.now_ms()
        ahead_ms = now_ms - self._seconds() * 1000
        by_ms = ahead_ms - self._ahead_ms
        self._ahead_ms = ahead_ms
        if not -TOLERATED_MS <= by_ms <= TOLERATED_MS:
            logger.warning("the clock was set by %.1f s", by_ms / 1000)
            for listener in self.listeners:
                listener(round(by_ms))
        return now_ms


class Interval:
    """An interval in ms that a setting gives. Belongs to one event loop."""

    def __init__(self, config: Config, name: str) -> None:
        self._config = config
        self._name = name
        self._altered = asyncio.Event()
        config.follow(self._altered.set)

    @property
    def seconds(self) -> float:
        return self._config.int(self._name) / 1000

    async def passed(self) -> None:
        """Wait for the interval. When the setting changes, the new one counts from the same start."""
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        while (left_s := begun_s + self.seconds - loop.time()) > 0:
            self._altered.clear()
            await happens(self._altered, left_s)


KEPT_FINISHED: Final = 100
"""Finished tasks that are listed; beyond that the oldest are dropped."""

LONG_MS: Final = 1_000
"""A brief task that took less than this is not listed afterwards."""

T = TypeVar("T")


class Task(msgspec.Struct, eq=False):
    """One piece of work. `done` counts up to `total`, which is None while unknown; times in ms."""

    number: int
    name: str
    begun_ms: int
    is_brief: bool = False
    """Whether the task is dropped from the list when it ends, unless it took long."""
    ended_ms: int | None = None
    failure: str | None = None
    """The reason why the task failed; None when it succeeded or still runs."""
    done: int = 0
    total: int | None = None


class TaskList:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: dict[int, Task] = {}
        self._finished: dict[int, Task] = {}
        self._work: set[asyncio.Task[Any]] = set()
        self._last_number = 0

    def __iter__(self) -> Iterator[Task]:
        """Yield the running tasks, then the finished ones, each in the order of their start."""
        return iter([*self._running.values(), *self._finished.values()])

    def get(self, number: int) -> Task | None:
        """Return a task that runs or has finished lately; None for any other number."""
        return self._running.get(number) or self._finished.get(number)

    def begin(self, name: str, *, is_brief: bool = False) -> Task:
        """Add a running task; `end` must follow."""
        self._last_number += 1
        task = Task(self._last_number, name, self._clock.now_ms(), is_brief=is_brief)
        self._running[task.number] = task
        return task

    def end(self, task: Task, failure: str | None = None) -> None:
        """Mark a task as finished, and as failed when `failure` is given."""
        task.ended_ms = self._clock.now_ms()
        task.failure = failure
        self._running.pop(task.number, None)
        if task.is_brief and task.ended_ms - task.begun_ms < LONG_MS:
            return
        self._finished[task.number] = task
        while len(self._finished) > KEPT_FINISHED:
            del self._finished[next(iter(self._finished))]

    def start(self, task: Task, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run the work of a task that `begin` added; the work continues even if its caller stops waiting."""
        doing = asyncio.get_running_loop().create_task(work)
        self._work.add(doing)
        doing.add_done_callback(lambda done: self._over(task, done))
        return doing

    def _over(self, task: Task, doing: asyncio.Task[Any]) -> None:
        self._work.discard(doing)
        if doing.cancelled():
            self.end(task, "the task was cancelled")
        else:
            error = doing.exception()
            self.end(task, None if error is None else f"{error}" or type(error).__name__)

    async def stop(self) -> None:
        await end_tasks(*self._work)


K = TypeVar("K")
_REPLACED_KEPT: Final = 100
"""Replaced deadlines that the timer keeps beside as many as there are keys."""


class Deadlines(Generic[K]):
    """One timer for the deadlines of many things, each with a key that can be ordered. It visits only those
    that are due.

    Each key has one deadline here, at or before its next one. A deadline that has become later stays as it
    is: at its time `release` says which one is next. The heap keeps replaced deadlines until their time, or
    until they are the greater part of it.
    """

    def __init__(self, clock: Clock, release: Callable[[K, int], int]) -> None:
        """`release` does what is due for a key at a time (ms), and returns its next deadline, or NEVER."""
        self._clock = clock
        self._release = release
        self._deadlines_ms: dict[K, int] = {}
        self._heap: list[tuple[int, K]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._at_ms = NEVER
        """The time at which the timer fires."""

    def __len__(self) -> int:
        """Return the number of deadlines kept, with those that were replaced."""
        return len(self._heap)

    def set(self, key: K, deadline_ms: int) -> None:
        """Visit a key at this time, unless it is visited earlier."""
        if deadline_ms >= self._deadlines_ms.get(key, NEVER):
            return
        self._deadlines_ms[key] = deadline_ms
        heapq.heappush(self._heap, (deadline_ms, key))
        if len(self._heap) > 2 * len(self._deadlines_ms) + _REPLACED_KEPT:
            self._rebuild()
        self._set_timer()

    def drop(self, key: K) -> None:
        """Forget the deadline of a key that is gone, or has none."""
        self._deadlines_ms.pop(key, None)

    def _rebuild(self) -> None:
        self._heap = [(deadline_ms, key) for key, deadline_ms in self._deadlines_ms.items()]
        heapq.heapify(self._heap)

    def _set_timer(self) -> None:
        now_ms = self._clock.now_ms()  # a clock that was set moves the deadlines here
        if not self._heap or self._heap[0][0] >= self._at_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._at_ms = self._heap[0][0]
        delay_s = max(0, self._at_ms - now_ms) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._fire)

    def clock_was_set(self, by_ms: int) -> None:
        """Move the deadlines with the clock. The present timer still fires early enough, so it stays."""
        self._deadlines_ms = {key: moved(at_ms, by_ms) for key, at_ms in self._deadlines_ms.items()}
        self._rebuild()
        self._at_ms = moved(self._at_ms, by_ms)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _fire(self) -> None:
        self._at_ms = NEVER
        self.release_due(self._clock.now_ms())

    def release_due(self, now_ms: int) -> None:
        """Visit the keys that are due at a time (ms), the earliest first; set the timer again."""
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            deadline_ms, key = heapq.heappop(self._heap)
            if self._deadlines_ms.get(key) == deadline_ms:
                del self._deadlines_ms[key]
                due.append(key)
        due.reverse()
        try:
            while due:
                key = due.pop()
                self.set(key, self._release(key, now_ms))
        finally:  # an error at one key leaves the others due
            for key in due:
                self.set(key, now_ms)
            self._set_timer()
