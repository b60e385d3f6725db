"""Simulated processes: what runs in one, and what is left when it is killed."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any


class Process:
    """One process of one incarnation. Everything that is begun in its context belongs to it and ends with it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self._tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self._left_behind: list[asyncio.Task[Any]] = []

    def context(self) -> Context:
        """A context in which callbacks and tasks are this process's."""
        context = copy_context()
        context.run(_PROCESS.set, self)
        return context

    def begin(self, work: Coroutine[Any, Any, Any], name: str | None = None) -> asyncio.Task[Any]:
        """Run a task in it."""
        loop = asyncio.get_running_loop()
        return loop.create_task(work, name=name or self.name, context=self.context())

    def has_begun(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)

    def die(self) -> None:
        """Nothing of it runs from now on. Its tasks are kept as they are: to clear them away would run their ends."""
        self.alive = False
        for task in self._tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined] # it is meant to be pending
                self._left_behind.append(task)

    def bury(self) -> None:
        """After the simulation: let go of what it left."""
        for task in self._left_behind:
            with contextlib.suppress(BaseException):
                task.get_coro().close()  # type: ignore[union-attr]
        self._left_behind.clear()


NOBODY = Process("nobody")
_PROCESS: ContextVar[Process] = ContextVar("_PROCESS", default=NOBODY)


def process_of(context: Context | None = None) -> Process:
    """The process that a context belongs to, or that runs now."""
    return _PROCESS.get() if context is None else context.get(_PROCESS, NOBODY)
