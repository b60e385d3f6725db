"""Simulated processes: the tasks of each process, and the tasks that stay in memory when it is killed."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any


class DriftingClock:
    """A machine's clock that is never set. It runs a little faster or slower than the loop's time, `rate`
    times as fast.
    """

    def __init__(self) -> None:
        self.rate = 1.0
        self._base_s = 0.0
        self._loop_base_s = 0.0

    def run_at(self, rate: float, loop_s: float) -> None:
        """Run at another rate from this time of the loop on."""
        self._base_s, self._loop_base_s = self.read(loop_s), loop_s
        self.rate = rate

    def read(self, loop_s: float) -> float:
        """Return what the clock shows at a time of the loop."""
        return self._base_s + (loop_s - self._loop_base_s) * self.rate

    def loop_s(self, shown_s: float) -> float:
        """Return the time of the loop at which the clock shows `shown_s`."""
        return self._loop_base_s + (shown_s - self._base_s) / self.rate


class Process:
    """One process. Every task that starts in its context belongs to it and ends with it."""

    def __init__(self, name: str, clock: DriftingClock | None = None) -> None:
        self.name = name
        self.clock = clock
        """The clock of the process's machine; None where it shows the loop's time."""
        self.alive = True
        self.is_paused = False
        self.deferred: list[Callable[[], None]] = []
        """What runs when the process goes on, in order."""
        self._tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self._left_behind: list[asyncio.Task[Any]] = []

    def context(self) -> Context:
        """Return a context whose callbacks and tasks belong to this process."""
        context = copy_context()
        context.run(_PROCESS.set, self)
        return context

    def begin(self, work: Coroutine[Any, Any, Any], name: str | None = None) -> asyncio.Task[Any]:
        """Start a task of the process."""
        loop = asyncio.get_running_loop()
        return loop.create_task(work, name=name or self.name, context=self.context())

    def has_begun(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)

    def die(self) -> None:
        """Stop all tasks of the process for good.

        They are kept in memory, because destroying them would run their `finally` blocks.
        """
        self.alive = False
        for task in self._tasks:
            if task.done():
                task._log_traceback = False  # type: ignore[attr-defined] # nobody is left who could take its error
            else:
                task._log_destroy_pending = False  # type: ignore[attr-defined] # it is meant to be pending
                awaited = task._fut_waiter  # type: ignore[attr-defined]
                if isinstance(awaited, asyncio.Future) and awaited.done():
                    awaited._log_traceback = False  # type: ignore[attr-defined] # as above
                self._left_behind.append(task)

    def resume(self) -> None:
        """Go on after a pause (SIGCONT): all that became due meanwhile runs now."""
        self.is_paused = False
        due, self.deferred = self.deferred, []
        loop = asyncio.get_running_loop()
        for run in due:
            loop.call_soon(run, context=self.context())

    def bury(self) -> None:
        """Release the tasks of a dead process, after the simulation."""
        for task in self._left_behind:
            with contextlib.suppress(BaseException):
                task.get_coro().close()  # type: ignore[union-attr]
        self._left_behind.clear()


NOBODY = Process("nobody")
_PROCESS: ContextVar[Process] = ContextVar("_PROCESS", default=NOBODY)


def process_of(context: Context | None = None) -> Process:
    """Return the process that owns a context, or that runs now."""
    return _PROCESS.get() if context is None else context.get(_PROCESS, NOBODY)
