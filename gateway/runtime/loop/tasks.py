"""Long work that goes on beside requests, so that it can be seen: what it is, since when, how far, and how it ended.

What an administrative request began goes on when its time is over; `seqgate tasks` tells of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, Final, TypeVar

from gateway.runtime.loop.clock import Clock

KEPT_FINISHED: Final = 100
"""Tasks that are over and still told of; the oldest go first."""

LONG_MS: Final = 1_000
"""Brief work that took less is not told of afterwards."""

T = TypeVar("T")


class Task:
    """One piece of work. `done` counts up to `total`, which is None while nobody knows it; times in ms."""

    __slots__ = ("begun_ms", "done", "ended_ms", "failure", "is_brief", "name", "number", "total")

    def __init__(self, number: int, name: str, begun_ms: int, *, is_brief: bool = False) -> None:
        self.number = number
        self.name = name
        self.begun_ms = begun_ms
        self.is_brief = is_brief
        """Whether nobody needs to know of it afterwards unless it took long."""
        self.ended_ms: int | None = None
        self.failure: str | None = None
        """Why it ended without having done what it was to do."""
        self.done = 0
        self.total: int | None = None


class TaskList:
    """What goes on, and the last that is over."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: dict[int, Task] = {}
        self._finished: dict[int, Task] = {}
        self._work: set[asyncio.Task[Any]] = set()
        self._last_number = 0

    def __iter__(self) -> Iterator[Task]:
        """Those that run, then those that are over, each by their beginning."""
        return iter([*self._running.values(), *self._finished.values()])

    def get(self, number: int) -> Task | None:
        """A task that runs or is over not long ago."""
        return self._running.get(number) or self._finished.get(number)

    def begin(self, name: str, *, is_brief: bool = False) -> Task:
        """Note that a piece of work begins; `end` must follow."""
        self._last_number += 1
        task = Task(self._last_number, name, self._clock.now_ms(), is_brief=is_brief)
        self._running[task.number] = task
        return task

    def end(self, task: Task, failure: str | None = None) -> None:
        """Note that it is over."""
        task.ended_ms = self._clock.now_ms()
        task.failure = failure
        self._running.pop(task.number, None)
        if task.is_brief and task.ended_ms - task.begun_ms < LONG_MS:
            return
        self._finished[task.number] = task
        while len(self._finished) > KEPT_FINISHED:
            del self._finished[next(iter(self._finished))]

    def start(self, task: Task, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Do the work of a task that was begun; whoever waits for it may give up, it goes on."""
        doing = asyncio.get_running_loop().create_task(work)
        self._work.add(doing)
        doing.add_done_callback(lambda done: self._over(task, done))
        return doing

    def _over(self, task: Task, doing: asyncio.Task[Any]) -> None:
        self._work.discard(doing)
        if doing.cancelled():
            self.end(task, "it was cancelled")
        else:
            error = doing.exception()
            self.end(task, None if error is None else f"{error}" or type(error).__name__)

    async def stop(self) -> None:
        """Cancel what runs."""
        for doing in list(self._work):
            doing.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
