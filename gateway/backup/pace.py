"""Bounds the bytes per second that a backup reads, and reports its progress."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

REPORT_EVERY_S: Final = 0.2


class Pace:
    """Counts the bytes copied since the first call. `spend` waits while they are ahead of the rate."""

    def __init__(
        self,
        bytes_per_s: int | None = None,
        report: Callable[[int], None] = lambda _: None,
        seconds: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Take the rate, None for no limit, and who is told how many bytes were copied, every REPORT_EVERY_S
        at most.
        """
        self.done_bytes = 0
        self._bytes_per_s = bytes_per_s
        self._report = report
        self._seconds = seconds
        self._sleep = sleep
        self._began_s = seconds()
        self._reported_s = self._began_s

    def spend(self, size_bytes: int) -> None:
        """Count bytes that were copied, and wait until the rate allows the next ones."""
        self.done_bytes += size_bytes
        now_s = self._seconds()
        if self._bytes_per_s is not None:
            wait_s = self._began_s + self.done_bytes / self._bytes_per_s - now_s
            if wait_s > 0:
                self._sleep(wait_s)
        if now_s - self._reported_s >= REPORT_EVERY_S:
            self._reported_s = now_s
            self._report(self.done_bytes)
