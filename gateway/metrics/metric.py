"""One row of the table of metrics, and the values that are read for it. An open partition counts what was
appended and fetched since it was opened; when it is closed, its counts are added to its topic's series. So a
series never falls, whatever moves to another gateway or is deleted.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from seqgate.gateway.admin.operation import LiveGateway
from seqgate.gateway.durations import Durations
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.partitions.registry import Partitions
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.runtime.upkeep.compaction import Compaction
from seqgate.gateway.runtime.upkeep.retention import Retention
from seqgate.gateway.server.dispatcher import RequestTimes
from seqgate.gateway.server.server import Server


class MetricKind(enum.StrEnum):
    """The type of a metric, as Prometheus names it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: its name, as Prometheus shows it, its type, what it tells, and its labels."""

    name: str
    kind: MetricKind
    doc: str
    labels: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        """Return the name without `_total` of a counter or `_info`, which clients of Prometheus add."""
        suffix = {MetricKind.COUNTER: "_total", MetricKind.INFO: "_info"}.get(self.kind, "")
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


class Subject:
    """Some metrics that belong together, in the order in which they are declared, and what reads them."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.metrics: list[Metric] = []
        self.read: Callable[[Sources], Samples]

    def reads(self, read: Callable[[Sources], Samples]) -> Callable[[Sources], Samples]:
        """Decorate the function that reads the values of these metrics."""
        self.read = read
        return read

    def counter(self, name: str, doc: str, *labels: str) -> Metric:
        """Declare a metric that only grows until the gateway restarts."""
        return self._declare(Metric(name, MetricKind.COUNTER, doc, labels))

    def gauge(self, name: str, doc: str, *labels: str) -> Metric:
        """Declare a metric of the present."""
        return self._declare(Metric(name, MetricKind.GAUGE, doc, labels))

    def histogram(self, name: str, doc: str, *labels: str) -> Metric:
        """Declare a metric of durations in seconds."""
        return self._declare(Metric(name, MetricKind.HISTOGRAM, doc, labels))

    def info(self, name: str, doc: str, *labels: str) -> Metric:
        """Declare a metric whose labels are its value."""
        return self._declare(Metric(name, MetricKind.INFO, doc, labels))

    def _declare(self, metric: Metric) -> Metric:
        self.metrics.append(metric)
        return metric


# Measures how late the event loop runs what is due: the time that every request may wait for its turn.

PROBE_EVERY_S: Final = 0.1


class LoopDelay:
    """Asks the loop to call back after a fixed time, again and again, and counts by how much it was late."""

    def __init__(self, loop: asyncio.AbstractEventLoop, then: Callable[[], object] = lambda: None) -> None:
        """`then` is called after each measurement."""
        self.durations = Durations()
        self._then = then
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to measure, unless this object already does."""
        if self._timer is None:
            self._wait(self._loop.time() + PROBE_EVERY_S)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, due_s: float) -> None:
        self._timer = self._loop.call_at(due_s, self._measure, due_s)

    def _measure(self, due_s: float) -> None:
        now_s = self._loop.time()
        self.durations.add(max(0.0, now_s - due_s))
        self._then()
        self._wait(now_s + PROBE_EVERY_S)


# The parts of a gateway that metrics are read from.


@dataclass(frozen=True, slots=True)
class Sources:
    """A running gateway, its listeners, and what is timed for metrics only: without `requests` nothing is."""

    services: Services
    live: Callable[[], LiveGateway]
    server: Server
    requests: RequestTimes | None
    retention: Retention
    compaction: Compaction
    topics: TopicTraffic
    loop_delay: LoopDelay
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the one that reads the values: each time passes by all partitions."""

    @property
    def gateway(self) -> LiveGateway:
        """Return the gateway as operations see it, the same as the control socket uses."""
        return self.live()


OTHERS: Final = "(other topics)"
"""The series of all topics beyond the limit; no topic can have this name."""


@dataclass(slots=True)
class PartitionTraffic:
    """The traffic of the partitions of one series since the start, and their content now."""

    records: int = 0
    """Appended since the start."""
    bytes: int = 0
    """Appended since the start."""
    fetched_bytes: int = 0
    partitions: int = 0
    size_bytes: int = 0

    def count(self, partition: Partition) -> None:
        """Add what was appended to and fetched from a partition since it was opened."""
        self.records += partition.appended_records
        self.bytes += partition.appended_bytes
        self.fetched_bytes += partition.fetched_bytes


class TopicTraffic:
    """Sums traffic by topic: the first `most` topics have series of their own, the rest share one."""

    def __init__(self, partitions: Partitions, most: int) -> None:
        self._partitions = partitions
        self._most = most
        self._own = 0
        self._series: dict[str, str] = {}
        """The series of each topic. A topic keeps its series, because a counter must not fall."""
        self._closed: dict[str, PartitionTraffic] = {}
        partitions.when_closed.append(self._note_closed)

    def read(self) -> Iterator[dict[str, PartitionTraffic] | None]:
        """Yield None after each partition, and at the end the traffic by series."""
        self._forget_deleted()
        # Partitions open and close between two slices. Count those that are open now, and the closed ones up
        # to now. Otherwise a partition that closes meanwhile counts twice or not at all, and a counter falls
        # at the next read.
        opened = list(self._partitions)
        for topic in dict.fromkeys(partition.topic for partition in opened):
            self._series_of(topic)  # so that a topic deleted between two slices stays counted
        found = {series: replace(closed) for series, closed in self._closed.items()}
        for partition in opened:
            traffic = found.setdefault(self._series[partition.topic], PartitionTraffic())
            traffic.count(partition)
            if not partition.closed:
                traffic.partitions += 1
                traffic.size_bytes += partition.log.size_bytes
            yield None
        yield found

    def _note_closed(self, partition: Partition) -> None:
        topic = partition.topic
        if topic in self._series or topic in self._partitions.by_name:
            series = self._series_of(topic)
        elif self._own < self._most:
            return  # a deleted topic whose series nobody has read; keep nothing of it
        else:
            series = OTHERS
        self._closed.setdefault(series, PartitionTraffic()).count(partition)

    def _series_of(self, topic: str) -> str:
        series = self._series.get(topic)
        if series is None:
            series = self._series[topic] = topic if self._own < self._most else OTHERS
            self._own += series != OTHERS
        return series

    def _forget_deleted(self) -> None:
        """Drop the series of deleted topics; what they added to the common series stays there."""
        for topic in [topic for topic in self._series if topic not in self._partitions.by_name]:
            if self._series.pop(topic) != OTHERS:
                self._own -= 1
                self._closed.pop(topic, None)
