"""Coroutines that begin at once, and get a task only when they must wait.

Most requests of the coordinators are answered without waiting for anything, and the task alone would cost as
much as such a request. Python 3.12 has this as `eager_task_factory`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Finished(Generic[T]):
    """A coroutine that ended in its first step, with its result."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value


class Waiting(Generic[T]):
    """A coroutine that has run up to its first wait. Awaiting this object in a task runs the rest and returns the coroutine's result."""

    __slots__ = ("_first", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], first: Any) -> None:
        self._work = work
        self._first = first
        """The future for which the coroutine waits, and which no task has awaited yet."""

    def __await__(self) -> Generator[Any, Any, T]:
        yielded = self._first
        while True:
            try:
                yield yielded
            except BaseException as error:  # noqa: BLE001 - the coroutine gets every error, a cancellation too
                step: Callable[[], Any] = partial(self._work.throw, error)
            else:
                step = partial(self._work.send, None)
            try:
                yielded = step()
            except StopIteration as end:
                value: T = end.value
                return value


def begin(work: Coroutine[Any, Any, T]) -> Finished[T] | Waiting[T]:
    """Run a coroutine until it first waits. Until then it has no current task and can't use timeouts or task groups.

    Raises the errors of the coroutine.
    """
    try:
        first = work.send(None)
    except StopIteration as end:
        return Finished(end.value)
    return Waiting(work, first)


class Timed(Generic[T]):
    """A coroutine that measures how long its own steps take, without the time in which it waits."""

    __slots__ = ("_now_s", "_work", "busy_s")

    def __init__(self, work: Coroutine[Any, Any, T], now_s: Callable[[], float]) -> None:
        self._work = work
        self._now_s = now_s
        self.busy_s = 0.0

    def __await__(self) -> Generator[Any, Any, T]:
        step: Callable[[], Any] = partial(self._work.send, None)
        while True:
            begun_s = self._now_s()
            try:
                yielded = step()
            except StopIteration as end:
                value: T = end.value
                return value
            finally:
                self.busy_s += self._now_s() - begun_s
            try:
                yield yielded
            except BaseException as error:  # noqa: BLE001 - the coroutine gets every error, a cancellation too
                step = partial(self._work.throw, error)
            else:
                step = partial(self._work.send, None)
