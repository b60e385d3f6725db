"""The timer that releases acquired records whose lock has timed out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.coordinator.deadlines import NEVER, moved
from gateway.runtime.loop.clock import Clock


class LockTimer:
    """One timer for all locks: it fires at the earliest deadline."""

    def __init__(self, clock: Clock, release: Callable[[int], int]) -> None:
        """`release` releases the locks that have timed out at a time (ms), and returns the next deadline, or NEVER."""
        self._clock = clock
        self._release = release
        self._timer: asyncio.TimerHandle | None = None
        self._at_ms = NEVER

    def wake_at(self, deadline_ms: int) -> None:
        """Fire at this time, unless the timer fires earlier."""
        if deadline_ms >= self._at_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(0, deadline_ms - self._clock.now_ms()) / 1000
        self._at_ms = deadline_ms
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._due)

    def clock_was_set(self, by_ms: int) -> None:
        """Move the deadline with the clock. The present timer still fires early enough, so it stays."""
        self._at_ms = moved(self._at_ms, by_ms)

    def stop(self) -> None:
        """Fire no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _due(self) -> None:
        self._at_ms = NEVER
        next_ms = self._release(self._clock.now_ms())
        if next_ms != NEVER:
            self.wake_at(next_ms)
