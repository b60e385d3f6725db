"""The newest value of each series that clients have pushed, by client.

A measurement replaces the value of its series, or, as a delta, is added to it: counters and histograms that clients push as deltas come
out cumulative. A delta that ends no later than the one before is a retry of a push whose answer was lost, and is not added again.
A series that its client pushes no more is forgotten after the lifetime of the client, and so is a client that pushes nothing more.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from gateway.telemetry.clients import ClientDescription
from gateway.telemetry.points import HistogramValue, Kind, Point, SeriesKey, Value


@dataclass(frozen=True, slots=True)
class PushedSeries:
    """One series as the metrics endpoint shows it; counters and histograms are cumulative."""

    name: str
    """The name that the client gave the metric, such as `org.apache.kafka.producer.record.send.total`."""
    kind: Kind
    unit: str
    help: str
    labels: dict[str, str]
    """The labels of the client and those of the measurement. Names are labels of Prometheus."""
    value: float | HistogramValue


class SeriesLimits(NamedTuple):
    """The series that are kept of one client, and of all clients."""

    of_client: int
    of_all: int


class _Series:
    __slots__ = ("help", "pushed_ms", "time_ns", "unit", "value")

    def __init__(self, point: Point, now_ms: float) -> None:
        self.unit = point.unit
        self.help = point.help
        self.value = point.value
        self.time_ns = point.time_ns
        self.pushed_ms = now_ms

    def fold_in(self, point: Point, now_ms: float) -> None:
        self.pushed_ms = now_ms
        self.unit, self.help = point.unit, point.help
        if not point.is_delta:
            self.value = point.value
        elif not point.time_ns or point.time_ns > self.time_ns:
            self.value = _sum(self.value, point.value)
        self.time_ns = max(self.time_ns, point.time_ns)


def _sum(earlier: Value, later: Value) -> Value:
    if isinstance(earlier, HistogramValue) and isinstance(later, HistogramValue):
        return earlier.plus(later)
    assert isinstance(earlier, float)
    assert isinstance(later, float)
    return earlier + later


class _PushingClient:
    __slots__ = ("expires_ms", "labels", "series")

    def __init__(self, labels: dict[str, str]) -> None:
        self.labels = labels
        self.series: dict[SeriesKey, _Series] = {}
        self.expires_ms = 0.0


class SeriesStore:
    """The series of all clients."""

    def __init__(self) -> None:
        self._clients: dict[uuid.UUID, _PushingClient] = {}
        self._count = 0

    def __len__(self) -> int:
        """Return the number of series."""
        return self._count

    def __iter__(self) -> Iterator[PushedSeries]:
        """Yield all series, client by client. Pushes may be folded in between two of them."""
        for client in list(self._clients.values()):
            for key, series in list(client.series.items()):
                labels = {**dict(key.labels), **client.labels}
                yield PushedSeries(key.name, key.kind, series.unit, series.help, labels, series.value)

    def fold_in(
        self,
        description: ClientDescription,
        points: list[Point],
        now_ms: float,
        lifetime_ms: int,
        limits: SeriesLimits,
    ) -> int:
        """Fold in the measurements of a push; return how many were dropped because a limit on series is reached."""
        client = self._clients.get(description.client_instance_id)
        if client is None:
            client = _PushingClient(description.labels())
        client.expires_ms = now_ms + lifetime_ms
        self._forget_old(client, now_ms - lifetime_ms)
        dropped = 0
        for point in points:
            known = client.series.get(point.key)
            if known is not None:
                known.fold_in(point, now_ms)
            elif len(client.series) < limits.of_client and self._count < limits.of_all:
                client.series[point.key] = _Series(point, now_ms)
                self._count += 1
            else:
                dropped += 1
        if client.series:
            self._clients[description.client_instance_id] = client
        else:
            self._clients.pop(description.client_instance_id, None)
        return dropped

    def _forget_old(self, client: _PushingClient, before_ms: float) -> None:
        for key in [key for key, series in client.series.items() if series.pushed_ms <= before_ms]:
            del client.series[key]
            self._count -= 1

    def expire(self, now_ms: float) -> None:
        """Forget the clients that have pushed nothing for their lifetime."""
        for instance_id in [key for key, client in self._clients.items() if client.expires_ms <= now_ms]:
            self._count -= len(self._clients.pop(instance_id).series)


__all__ = ["HistogramValue", "Kind", "PushedSeries", "SeriesLimits", "SeriesStore"]
