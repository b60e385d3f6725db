"""Makes a sequence that shows a difference as short as it gets, by leaving out steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def shrunk(steps: Sequence[T], differs: Callable[[Sequence[T]], bool], most: int = 200) -> list[T]:
    """Return the shortest sequence found: no step can be left out, or `most` attempts were made.

    Larger parts are left out first, from the end: what follows a difference rarely matters.
    """
    kept = list(steps)
    size = len(kept)
    while kept:
        size = max(1, size // 2)
        before = len(kept)
        for begin in reversed(range(0, len(kept), size)):
            if most <= 0:
                return kept
            most -= 1
            fewer = kept[:begin] + kept[begin + size :]
            if differs(fewer):
                kept = fewer
        if size == 1 and len(kept) == before:
            break
    return kept
