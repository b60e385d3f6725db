"""Limits how many objects a flusher creates per second, and how many at a time. Pure: knows no clock.

Full objects take nothing from the budget. To wait would not make them fewer.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SOON_S: Final = 1e-4
"""A wait that is shorter is none: timers are no more exact."""


class PutLimits(NamedTuple):
    """The limits on the objects of a write-ahead log, and on the bytes that wait for them."""

    puts_per_second: float = 10.0
    puts_in_flight: int = 4
    put_max_bytes: int = 8 << 20
    """The size at which an object ends. A single larger batch has an object of its own."""
    unwritten_max_bytes: int = 64 << 20
    """Appended bytes that no object is known to have; beyond, producers are refused."""

    @property
    def linger_s(self) -> float:
        """How long a round gathers at most while earlier objects are in flight."""
        return 1.0 / self.puts_per_second


class PutBudget:
    """A token bucket: it fills with `puts_per_second`, up to one second's puts, at least one."""

    def __init__(self, now_s: float) -> None:
        """Begin full, at a time of a clock that is never set."""
        self._filled_s = now_s
        self._tokens = float("inf")

    def wait_s(self, now_s: float, limits: PutLimits) -> float:
        """Return in how many seconds the next put may begin; 0 if it may now."""
        self._fill(now_s, limits)
        wait_s = (1.0 - self._tokens) / limits.puts_per_second
        return wait_s if wait_s > SOON_S else 0.0

    def take(self, now_s: float, limits: PutLimits) -> None:
        """Spend budget for a put that begins now."""
        self._fill(now_s, limits)
        self._tokens -= 1.0

    def _fill(self, now_s: float, limits: PutLimits) -> None:
        gained = (now_s - self._filled_s) * limits.puts_per_second
        self._tokens = min(self._tokens + gained, max(1.0, limits.puts_per_second))
        self._filled_s = now_s
