"""Keeps the garbage collector away from what lives for ever, so that it never holds a request up for long.

A full collection looks at every object: with a hundred thousand partitions open that is half a second. What belongs to
partitions that were opened is there to stay, so it is frozen, which costs nothing.
"""

from __future__ import annotations

import gc
from typing import Final

MANY: Final = 500
"""Partitions opened since the last time that are worth it."""


class LongLived:
    """Freezes what is alive whenever many partitions were opened."""

    def __init__(self) -> None:
        self._opened = 0

    def settle(self, opened: int) -> bool:
        """`opened` counts the partitions opened since the start; whether what is alive was frozen."""
        if opened - self._opened < MANY:
            return False
        self._opened = opened
        gc.collect(0)  # garbage in cycles is not to be frozen with it
        gc.freeze()
        return True
