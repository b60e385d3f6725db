"""A histogram of durations, cheap enough for the ways that requests take."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

BOUNDS_S: Final = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
)
"""The upper bounds of the buckets in seconds; one more bucket has what is longer."""


class Durations:
    """Counts durations in buckets. `counts` has one number for each bound, and one more for longer ones."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def __add__(self, other: Durations) -> Durations:
        both = Durations()
        both.counts = [mine + others for mine, others in zip(self.counts, other.counts, strict=True)]
        both.sum_s = self.sum_s + other.sum_s
        return both

    @property
    def count(self) -> int:
        return sum(self.counts)

    def add(self, duration_s: float, weight: int = 1) -> None:
        """Count a duration in seconds; `weight` is the number of durations that it stands for."""
        self.counts[bisect_left(BOUNDS_S, duration_s)] += weight
        self.sum_s += duration_s * weight
