"""How long to wait before a failed call is tried again."""

from __future__ import annotations

import random
from typing import Final

FIRST_S: Final = 0.05
MOST_S: Final = 2.0
_DOUBLINGS: Final = 10
"""After this many the delay is at its limit for long."""


class Backoff:
    """Delays that double from FIRST_S to MOST_S. Each is shortened by chance, at most to its half, so that gateways spread their calls."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self._chance = chance or random.Random()
        self.failures = 0

    def next_s(self) -> float:
        """Return the delay after one more failure."""
        delay_s = min(MOST_S, FIRST_S * 2.0 ** min(self.failures, _DOUBLINGS))
        self.failures += 1
        return delay_s * (1 - self._chance.random() / 2)

    def reset(self) -> None:
        """Begin with short delays again: a call succeeded."""
        self.failures = 0
