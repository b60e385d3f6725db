"""The messages of OTLP have the names, labels and values of the table of metrics."""

from __future__ import annotations

import pytest
from opentelemetry.proto.metrics.v1 import metrics_pb2 as otlp
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

from seqgate.gateway.durations import BOUNDS_S, Durations
from seqgate.gateway.metrics.metric import Metric, MetricKind, Subject
from seqgate.gateway.metrics.otlp import Moment, encoded_families, encoded_request, encoded_samples
from seqgate.gateway.metrics.table import METRICS, process_families
from tests.support.otlp_receiver import attributes, decoded

MOMENT = Moment(now_ns=2_000, started_at_ns=1_000)
SUBJECT = Subject("Of this test")
RECORDS = SUBJECT.counter("a_records_total", "Records.", "topic")


def test_a_counter_is_a_cumulative_sum_since_the_start() -> None:
    (found,) = encoded_samples([RECORDS.at(3, "x"), RECORDS.at(4.5, "y")], MOMENT)
    assert (found.name, found.description, found.unit) == ("a_records_total", "Records.", "")
    assert found.sum.is_monotonic
    assert found.sum.aggregation_temporality == otlp.AGGREGATION_TEMPORALITY_CUMULATIVE
    first, second = found.sum.data_points
    assert (first.start_time_unix_nano, first.time_unix_nano) == (1_000, 2_000)
    assert (attributes(first.attributes), first.as_int) == ({"topic": "x"}, 3)
    assert (attributes(second.attributes), second.as_double) == ({"topic": "y"}, 4.5)


@pytest.mark.parametrize(("value", "expected"), [(True, 1), (False, 0), (7, 7), (0.5, 0.5)])
def test_a_gauge_has_no_start(value: float, expected: float) -> None:
    (found,) = encoded_samples([SUBJECT.gauge("a", "A.").at(value)], MOMENT)
    (point,) = found.gauge.data_points
    assert (point.as_int if point.HasField("as_int") else point.as_double) == expected
    assert (point.start_time_unix_nano, point.time_unix_nano) == (0, 2_000)


def test_a_histogram_has_a_count_for_each_bucket_and_one_more() -> None:
    durations = Durations()
    for duration_s, weight in ((0.00005, 1), (0.3, 16), (99.0, 2)):
        durations.add(duration_s, weight)
    (found,) = encoded_samples([SUBJECT.histogram("a_seconds", "A.").at(durations)], MOMENT)
    (point,) = found.histogram.data_points
    assert found.unit == "s"
    assert tuple(point.explicit_bounds) == BOUNDS_S
    assert list(point.bucket_counts) == durations.counts
    assert (point.count, point.sum) == (19, durations.sum_s)
    assert point.start_time_unix_nano == 1_000
    assert found.histogram.aggregation_temporality == otlp.AGGREGATION_TEMPORALITY_CUMULATIVE


def test_an_info_is_a_gauge_with_its_labels() -> None:
    info = Metric("a_info", MetricKind.INFO, "A.", ("version",))
    (found,) = encoded_samples([info.at(1, "0.1.0")], MOMENT)
    (point,) = found.gauge.data_points
    assert (found.name, attributes(point.attributes), point.as_int) == ("a_info", {"version": "0.1.0"}, 1)


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_units_are_in_the_name_already(metric: Metric) -> None:
    """A collector that writes for Prometheus adds a unit to names without it; then the dashboard would find
    no series.
    """
    value = Durations() if metric.kind is MetricKind.HISTOGRAM else 1
    (found,) = encoded_samples([metric.at(value, *metric.labels)], MOMENT)
    assert {"s": "seconds", "By": "bytes", "": ""}[found.unit] in metric.name


def test_metrics_of_the_process_keep_the_names_that_prometheus_shows() -> None:
    families = [
        CounterMetricFamily("p_cpu_seconds", "CPU.", value=1.5, created=1.0),
        GaugeMetricFamily("p_bytes", "Memory.", value=7),
        InfoMetricFamily("p", "P.", value={"version": "3"}),
        GaugeMetricFamily("nothing", "No value."),
    ]
    found = {metric.name: metric for metric in encoded_families(families, MOMENT)}
    assert found.keys() == {"p_cpu_seconds_total", "p_bytes", "p_info"}
    assert found["p_cpu_seconds_total"].sum.data_points[0].as_double == 1.5
    assert found["p_cpu_seconds_total"].unit == "s"
    assert attributes(found["p_info"].gauge.data_points[0].attributes) == {"version": "3"}
    real = {metric.name for metric in encoded_families(process_families(), MOMENT)}
    assert {
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "python_gc_collections_total",
    } <= real


def test_a_request_has_one_resource() -> None:
    metrics = encoded_samples([RECORDS.at(3, "x")], MOMENT)
    found = decoded("/", {}, encoded_request({"service.name": "seqgate", "service.version": "1"}, metrics))
    assert found.resource == {"service.name": "seqgate", "service.version": "1"}
    assert found.value("a_records_total", topic="x") == 3
