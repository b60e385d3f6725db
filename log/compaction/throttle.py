"""Limits a cleaning to a number of bytes per second, by sleeping. Source: Kafka's `Throttler`."""

from __future__ import annotations

from collections.abc import Callable


class Throttle:
    """A limit on bytes per second since it was made; `bytes_per_s` 0 means no limit."""

    __slots__ = ("_bytes_per_s", "_clock", "_done", "_sleep", "_started")

    def __init__(
        self, bytes_per_s: float, clock: Callable[[], float], sleep: Callable[[float], object]
    ) -> None:
        """Take the limit, a clock in seconds, and a function that sleeps for seconds."""
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._sleep = sleep
        self._started = clock()
        self._done = 0

    def count(self, size_bytes: int) -> None:
        """Count bytes, and sleep if they came faster than the limit."""
        self._done += size_bytes
        if self._bytes_per_s <= 0:
            return
        ahead_s = self._done / self._bytes_per_s - (self._clock() - self._started)
        if ahead_s > 0:
            self._sleep(ahead_s)
