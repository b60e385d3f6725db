"""Measures how late the event loop runs what is due: the time that every request may wait for its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.durations import Durations

PROBE_EVERY_S: Final = 0.1
"""The time between two measurements."""


class LoopDelay:
    """Asks the loop to call back after a fixed time, again and again, and counts by how much it was late."""

    def __init__(self, loop: asyncio.AbstractEventLoop, then: Callable[[], object] = lambda: None) -> None:
        """`then` is called after each measurement."""
        self.durations = Durations()
        self._then = then
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to measure, unless this object already does."""
        if self._timer is None:
            self._wait(self._loop.time() + PROBE_EVERY_S)

    def stop(self) -> None:
        """Measure no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, due_s: float) -> None:
        self._timer = self._loop.call_at(due_s, self._measure, due_s)

    def _measure(self, due_s: float) -> None:
        now_s = self._loop.time()
        self.durations.add(max(0.0, now_s - due_s))
        self._then()
        self._wait(now_s + PROBE_EVERY_S)
