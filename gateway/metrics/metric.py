"""One row of the table of metrics, and the values that are read for it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from gateway.durations import Durations
from gateway.metrics.sources import Sources


class Kind(enum.StrEnum):
    """The type of a metric, as Prometheus names it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: its name, as Prometheus shows it, its type, what it tells, and its labels."""

    name: str
    kind: Kind
    doc: str
    labels: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        """Return the name without the suffix that clients of Prometheus add themselves: `_total` of a counter, `_info` of an info."""
        suffix = {Kind.COUNTER: "_total", Kind.INFO: "_info"}.get(self.kind, "")
        return self.name.removesuffix(suffix) if suffix else self.name

    def at(self, value: float | Durations, *labels: str) -> Sample:
        """Return a value of the metric. The labels are in the order of the metric's label names."""
        return Sample(self, labels, value)


class Sample(NamedTuple):
    """One value of a metric: a number, or the durations of a histogram."""

    metric: Metric
    labels: tuple[str, ...]
    value: float | Durations


Samples = Iterator[Sample | None]
"""Values one after another. None is a place at which requests may run, in reads that take long."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Some metrics that belong together: a title, the metrics, and the function that reads them."""

    title: str
    metrics: tuple[Metric, ...]
    read: Callable[[Sources], Samples]


def counter(name: str, doc: str, *labels: str) -> Metric:
    """Return a metric that only grows until the gateway restarts."""
    return Metric(name, Kind.COUNTER, doc, labels)


def gauge(name: str, doc: str, *labels: str) -> Metric:
    """Return a metric of the present."""
    return Metric(name, Kind.GAUGE, doc, labels)


def histogram(name: str, doc: str, *labels: str) -> Metric:
    """Return a metric of durations in seconds."""
    return Metric(name, Kind.HISTOGRAM, doc, labels)
