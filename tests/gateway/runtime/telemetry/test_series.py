from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from seqgate.gateway.runtime.telemetry import SeriesLimits, SeriesStore
from seqgate.gateway.telemetry.payload import HistogramValue, PushedSeries, SeriesKind, decode
from tests.gateway.telemetry.support import (
    CLIENT,
    CUMULATIVE,
    DELTA,
    client,
    counter,
    gauge,
    histogram,
    payload,
)

LIFETIME_MS = 60_000
LIMITS = SeriesLimits(of_client=10, of_all=15)


class Bench:
    """A store that clients push into."""

    def __init__(self) -> None:
        self.store = SeriesStore()
        self.now_ms = 0.0

    def push(self, *metrics: Metric, number: int = 0, limits: SeriesLimits = LIMITS) -> int:
        described = client(client_instance_id=uuid.UUID(int=number + 10))
        decoded = decode(payload(*metrics), 1000)
        return self.store.fold_in(described, decoded.points, self.now_ms, LIFETIME_MS, limits)

    @property
    def only(self) -> PushedSeries:
        (series,) = self.store
        return series

    def names(self) -> list[str]:
        assert len(self.store) == len(list(self.store))
        return sorted(series.name for series in self.store)


@pytest.fixture
def bench() -> Bench:
    return Bench()


class TestValues:
    def test_deltas_are_added_up(self, bench: Bench) -> None:
        for time_ns, value in ((10, 3.0), (20, 0.0), (30, 4.0)):
            bench.push(counter("sent", value, time_ns=time_ns))
        assert (bench.only.kind, bench.only.value) == (SeriesKind.COUNTER, 7.0)

    def test_a_retried_delta_is_added_once(self, bench: Bench) -> None:
        for time_ns, value in ((10, 3.0), (20, 4.0), (20, 4.0), (10, 3.0)):
            bench.push(counter("sent", value, time_ns=time_ns))
        assert bench.only.value == 7.0

    def test_deltas_without_a_time_are_all_added(self, bench: Bench) -> None:
        bench.push(counter("sent", 3.0))
        bench.push(counter("sent", 3.0))
        assert bench.only.value == 6.0

    def test_cumulative_values_replace(self, bench: Bench) -> None:
        for value in (3.0, 9.0, 1.0):
            bench.push(counter("sent", value, temporality=CUMULATIVE))
        assert bench.only.value == 1.0

    def test_gauges_replace(self, bench: Bench) -> None:
        for value in (3.0, -9.0):
            bench.push(gauge("depth", value))
        assert (bench.only.kind, bench.only.value) == (SeriesKind.GAUGE, -9.0)

    def test_deltas_of_histograms_are_added_up(self, bench: Bench) -> None:
        bench.push(histogram("h", [1.0], [1, 2], total=5.0, time_ns=10))
        bench.push(histogram("h", [1.0], [10, 20], total=50.0, time_ns=20))
        assert bench.only.value == HistogramValue((1.0,), (11, 22), 55.0, 33)

    def test_a_histogram_that_has_counted_too_far_begins_anew(self, bench: Bench) -> None:
        bench.push(histogram("h", [1.0], [2**64 - 2, 1], total=5.0, time_ns=10))
        bench.push(histogram("h", [1.0], [1, 0], total=1.0, time_ns=20))
        assert bench.only.value == HistogramValue((1.0,), (1, 0), 1.0, 1)

    def test_a_histogram_with_other_ranges_begins_anew(self, bench: Bench) -> None:
        bench.push(histogram("h", [1.0], [1, 2], total=5.0, time_ns=10))
        bench.push(histogram("h", [2.0], [1, 0], total=1.0, time_ns=20))
        assert bench.only.value == HistogramValue((2.0,), (1, 0), 1.0, 1)

    @given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 100)), max_size=30))
    def test_a_sum_counts_each_time_of_a_client_once(self, pushed: list[tuple[int, int]]) -> None:
        bench = Bench()
        newest, expected = 0, 0
        for time_ns, value in pushed:
            bench.push(counter("sent", float(value), time_ns=time_ns, temporality=DELTA))
            if time_ns > newest:
                newest, expected = time_ns, expected + value
        assert [series.value for series in bench.store] == ([float(expected)] if pushed else [])


class TestIdentity:
    def test_labels_tell_series_apart(self, bench: Bench) -> None:
        bench.push(counter("sent", 1.0, topic="a"), counter("sent", 2.0, topic="b"))
        assert sorted((series.labels["topic"], series.value) for series in bench.store) == [
            ("a", 1.0),
            ("b", 2.0),
        ]

    def test_clients_tell_series_apart(self, bench: Bench) -> None:
        bench.push(counter("sent", 1.0), number=1)
        bench.push(counter("sent", 2.0), number=2)
        assert sorted(float(series.value) for series in bench.store) == [1.0, 2.0]  # type: ignore[arg-type]

    def test_a_series_has_the_labels_of_its_client(self, bench: Bench) -> None:
        bench.push(gauge("depth", 1.0, topic="t"))
        assert bench.only.labels == {
            "topic": "t",
            "client_id": CLIENT.client_id,
            "client_instance_id": "AAAAAAAAAAAAAAAAAAAACg",
            "client_software_name": CLIENT.client_software_name,
            "client_software_version": CLIENT.client_software_version,
        }


class TestLimits:
    def test_series_beyond_the_limit_of_a_client_are_dropped_and_counted(self, bench: Bench) -> None:
        metrics = [gauge(f"m{number}", 1.0) for number in range(12)]
        assert bench.push(*metrics) == 2
        assert bench.push(*metrics) == 2
        assert len(bench.store) == 10

    def test_series_beyond_the_limit_of_all_are_dropped_and_counted(self, bench: Bench) -> None:
        metrics = [gauge(f"m{number}", 1.0) for number in range(10)]
        assert bench.push(*metrics, number=1) == 0
        assert bench.push(*metrics, number=2) == 5
        assert len(bench.store) == 15

    def test_known_series_take_values_at_the_limit(self, bench: Bench) -> None:
        bench.push(*(gauge(f"m{number}", 1.0) for number in range(10)))
        assert bench.push(gauge("m0", 5.0), gauge("new", 1.0)) == 1
        assert {series.value for series in bench.store if series.name == "m0"} == {5.0}

    def test_a_limit_of_none_keeps_nothing(self, bench: Bench) -> None:
        assert bench.push(gauge("m", 1.0), limits=SeriesLimits(10, 0)) == 1
        assert bench.names() == []


class TestExpiry:
    def test_a_silent_client_is_forgotten(self, bench: Bench) -> None:
        bench.push(gauge("a", 1.0), number=1)
        bench.now_ms = 1000.0
        bench.push(gauge("b", 1.0), number=2)
        bench.store.expire(LIFETIME_MS - 1)
        assert bench.names() == ["a", "b"]
        bench.store.expire(LIFETIME_MS)
        assert bench.names() == ["b"]

    def test_a_series_that_is_pushed_no_more_is_forgotten(self, bench: Bench) -> None:
        bench.push(gauge("a", 1.0), gauge("b", 1.0))
        for after in (0.5, 1.0):
            bench.now_ms = after * LIFETIME_MS
            bench.push(gauge("b", 1.0))
        assert bench.names() == ["b"]

    def test_a_forgotten_series_makes_room(self, bench: Bench) -> None:
        metrics = [gauge(f"m{number}", 1.0) for number in range(10)]
        bench.push(*metrics)
        bench.now_ms = float(LIFETIME_MS)
        assert bench.push(*(gauge(f"n{number}", 1.0) for number in range(10))) == 0
