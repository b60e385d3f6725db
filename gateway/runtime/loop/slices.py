"""Cuts long work on the event loop into slices of time, so that requests run between them.

All long work shares the slices: each turn of the event loop has one slice, however much work there is. The
work that began first continues first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

SLICE_S: Final = 0.005
"""The length of a slice. Work that has run this long lets requests run."""

T = TypeVar("T")


class _Turns:
    """The slices of one event loop, and the work that waits for one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ends_s: float | None = None
        """The end of the slice in this turn of the loop; None before any work has used the turn."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    def has_time(self, *, has_begun: bool) -> bool:
        """Return whether this turn has time left; work that `has_begun` comes before work that has not."""
        now_s = self._loop.time()
        if self._ends_s is None:
            if self._waiting and not has_begun:
                return False
            self._ends_s = now_s + SLICE_S
            self._loop.call_soon(self._end)
            return True
        return now_s <= self._ends_s

    async def time(self, *, has_begun: bool) -> None:
        """Wait for a turn that has time left."""
        await self._turn(has_begun=has_begun)
        while not self.has_time(has_begun=True):
            await self._turn(has_begun=True)

    async def _turn(self, *, has_begun: bool) -> None:
        """Wait for a turn that may have time left."""
        turn: asyncio.Future[None] = self._loop.create_future()
        if has_begun:
            self._waiting.appendleft(turn)
        else:
            self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            self._wake_next()
            raise

    def _end(self) -> None:
        self._ends_s = None
        self._wake_next()

    def _wake_next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = WeakKeyDictionary()


def _turns_of(loop: asyncio.AbstractEventLoop) -> _Turns:
    turns = _turns.get(loop)
    if turns is None:
        turns = _turns[loop] = _Turns(loop)
    return turns


async def in_slices(things: Iterable[T]) -> AsyncIterator[T]:
    """Yield each thing; when the loop body has used up a slice of time, let requests run first."""
    turns = _turns_of(asyncio.get_running_loop())
    has_begun = False
    for thing in things:
        if not turns.has_time(has_begun=has_begun):
            await turns.time(has_begun=has_begun)
        yield thing
        has_begun = True


async def each_in_slices(things: Iterable[T], work: Callable[[T], object]) -> None:
    """Call `work` for each thing, as a loop over `in_slices` would at a higher cost."""
    turns = _turns_of(asyncio.get_running_loop())
    has_begun = False
    for thing in things:
        if not turns.has_time(has_begun=has_begun):
            await turns.time(has_begun=has_begun)
        work(thing)
        has_begun = True
