"""One measurement of a pushed metric, independent of the format in which it was pushed."""

from __future__ import annotations

import enum
from typing import NamedTuple

Labels = tuple[tuple[str, str], ...]
"""Names and values of labels, sorted by name."""


class Kind(enum.Enum):
    """What a series measures. The values are the words of the metrics endpoint."""

    COUNTER = "counter"
    """A sum that only grows."""
    GAUGE = "gauge"
    """A value that rises and falls."""
    HISTOGRAM = "histogram"
    """Counts of observations in ranges."""


class HistogramValue(NamedTuple):
    """Observations by range: `counts[i]` of those up to `bounds[i]`, and above the bound before; the last count has no upper bound."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float
    observations: int

    def plus(self, later: HistogramValue) -> HistogramValue:
        """Return both together; only the later one when the ranges differ."""
        if later.bounds != self.bounds:
            return later
        counts = tuple(ours + theirs for ours, theirs in zip(self.counts, later.counts, strict=True))
        return HistogramValue(
            self.bounds, counts, self.sum + later.sum, self.observations + later.observations
        )


Value = float | HistogramValue


class SeriesKey(NamedTuple):
    """The identity of a series of one client. `labels` are those of the measurement, without those of the client."""

    name: str
    kind: Kind
    labels: Labels


class Point(NamedTuple):
    """A measurement. `is_delta`: the value counts only what happened since the measurement before. `time_ns`: its end since the
    Unix epoch, by the client's clock; 0 when unknown.
    """

    key: SeriesKey
    unit: str
    help: str
    is_delta: bool
    time_ns: int
    value: Value


class Measurements(NamedTuple):
    """The measurements of one push, and the number of those that were dropped."""

    points: list[Point]
    dropped: int
