"""The rate of a client quota, from all values that were ever recorded, written down as Kafka's documentation
has it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction


@dataclass
class RateModel:
    """Windows begin with the first value after the last window's end; those older than all windows do not
    count.
    """

    windows: int
    length_ms: int
    values: list[tuple[int, int]] = field(default_factory=list)
    """The recorded values and their times."""

    def _live(self, now_ms: int) -> list[tuple[int, int, int]]:
        """Return begin, last time and sum of each window that counts."""
        found: list[tuple[int, int, int]] = []
        for value, time_ms in self.values:
            if not found or time_ms - found[-1][0] >= self.length_ms:
                found.append((time_ms, time_ms, value))
            else:
                begin_ms, _, total = found.pop()
                found.append((begin_ms, time_ms, total + value))
        return [window for window in found if now_ms - window[1] < self.windows * self.length_ms]

    def throttle_ms(self, per_second: int, now_ms: int) -> int:
        """Return X, where O is the observed rate over W, T the quota, and O * W / (W + X) = T."""
        live = self._live(now_ms)
        elapsed_ms = now_ms - live[0][0] if live else 0
        whole = elapsed_ms // self.length_ms
        over_ms = elapsed_ms + max(0, self.windows - 1 - whole) * self.length_ms
        if not over_ms:
            return 0
        observed = Fraction(sum(total for _, _, total in live) * 1000, over_ms)
        if observed <= per_second:
            return 0
        exact = (observed - per_second) / per_second * over_ms
        return int(exact + Fraction(1, 2))
