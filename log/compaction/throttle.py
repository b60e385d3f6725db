"""Keeping to a number of bytes per second, by waiting. Source: Kafka's `Throttler`."""

from __future__ import annotations

from collections.abc import Callable


class Throttle:
    """Counts bytes from its first one on; `bytes_per_s` 0 means no limit."""

    __slots__ = ("_bytes_per_s", "_clock", "_done", "_sleep", "_started")

    def __init__(
        self, bytes_per_s: float, clock: Callable[[], float], sleep: Callable[[float], object]
    ) -> None:
        """Take a clock in seconds and what waits for some of them."""
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._sleep = sleep
        self._started = clock()
        self._done = 0

    def count(self, size_bytes: int) -> None:
        """Wait for as long as these bytes may take."""
        self._done += size_bytes
        if self._bytes_per_s <= 0:
            return
        ahead_s = self._done / self._bytes_per_s - (self._clock() - self._started)
        if ahead_s > 0:
            self._sleep(ahead_s)
