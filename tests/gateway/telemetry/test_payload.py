from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from seqgate.gateway.telemetry.payload import (
    MAX_ATTRIBUTES,
    MAX_LABEL_NAME_CHARACTERS,
    MAX_LABELS,
    MAX_MESSAGE_BYTES,
    MAX_NAME_CHARACTERS,
    MAX_RANGES,
    MAX_TEXT_CHARACTERS,
    HistogramValue,
    InvalidPayload,
    Point,
    SeriesKind,
    decode,
)
from tests.gateway.telemetry.support import CUMULATIVE, DELTA, counter, field, gauge, histogram, payload


def points(*metrics: Metric, **resource: str) -> list[Point]:
    return decode(payload(*metrics, **resource), 100).points


def labels_of(*metrics: Metric, **resource: str) -> dict[str, str]:
    (point,) = points(*metrics, **resource)
    return dict(point.key.labels)


class TestKinds:
    @pytest.mark.parametrize(
        ("metric", "kind", "is_delta"),
        [
            (gauge("m", 5), SeriesKind.GAUGE, False),
            (counter("m", 5), SeriesKind.COUNTER, True),
            (counter("m", 5, temporality=CUMULATIVE), SeriesKind.COUNTER, False),
            (counter("m", 5, temporality=0), SeriesKind.COUNTER, False),
            (counter("m", 5, is_monotonic=False), SeriesKind.GAUGE, True),
        ],
    )
    def test_a_number(self, metric: Metric, kind: SeriesKind, is_delta: bool) -> None:
        (point,) = points(metric)
        assert (point.key.name, point.key.kind, point.is_delta, point.value) == ("m", kind, is_delta, 5.0)

    def test_a_whole_number(self) -> None:
        metric = Metric(name="m", unit="By", description="Bytes.")
        metric.gauge.data_points.add(as_int=-(2**60), time_unix_nano=7)
        (point,) = points(metric)
        assert (point.value, point.unit, point.help, point.time_ns) == (-(2.0**60), "By", "Bytes.", 7)

    def test_a_histogram(self) -> None:
        (point,) = points(histogram("m", [1.0, 2.0], [3, 4, 5], total=9.5))
        assert point.key.kind is SeriesKind.HISTOGRAM
        assert point.value == HistogramValue((1.0, 2.0), (3, 4, 5), 9.5, 12)

    def test_a_histogram_without_ranges(self) -> None:
        metric = Metric(name="m")
        metric.histogram.data_points.add(sum=4.0, count=2)
        assert points(metric)[0].value == HistogramValue((), (2,), 4.0, 2)


class TestDropped:
    @pytest.mark.parametrize(
        "metric",
        [
            counter("m", -1.0),
            counter("m", math.nan),
            counter("m", math.inf),
            counter("", 1.0),
            counter("x" * (MAX_NAME_CHARACTERS + 1), 1.0),
            histogram("m", [2.0, 1.0], [1, 1, 1]),
            histogram("m", [1.0, 1.0], [1, 1, 1]),
            histogram("m", [math.inf], [1, 1]),
            histogram("m", [1.0], [1]),
            histogram("m", [1.0], [2**64 - 1, 1]),
            histogram("m", [float(bound) for bound in range(MAX_RANGES)], [1] * (MAX_RANGES + 1)),
        ],
    )
    def test_a_measurement_without_use_is_counted(self, metric: Metric) -> None:
        decoded = decode(payload(metric, gauge("kept", 1)), 100)
        assert ([point.key.name for point in decoded.points], decoded.dropped) == (["kept"], 1)

    def test_other_kinds_are_counted(self) -> None:
        exponential, summary, empty = Metric(name="e"), Metric(name="s"), Metric(name="n")
        exponential.exponential_histogram.data_points.add(count=1)
        summary.summary.data_points.add(count=1)
        summary.summary.data_points.add(count=2)
        decoded = decode(payload(exponential, summary, empty), 100)
        assert (decoded.points, decoded.dropped) == ([], 3)

    def test_a_measurement_without_a_value_is_counted(self) -> None:
        metric = Metric(name="m")
        metric.gauge.data_points.add()
        metric.gauge.data_points.add(as_double=1.0, flags=1)
        assert decode(payload(metric), 100).dropped == 2

    def test_measurements_beyond_the_limit_are_counted(self) -> None:
        decoded = decode(payload(counter("a", 1.0, 2.0), gauge("b", 3.0)), 2)
        assert ([point.value for point in decoded.points], decoded.dropped) == ([1.0, 2.0], 1)


class TestHostilePayloads:
    """Payloads that cost much more than their size lets expect."""

    def test_many_empty_metrics_are_refused(self) -> None:
        scope = b"\x12\x00" * 2_000_000
        with pytest.raises(InvalidPayload, match="too many fields"):
            decode(field(1, field(2, scope)), 100)

    def test_a_metric_of_many_empty_measurements_is_dropped(self) -> None:
        metric = field(5, b"\x0a\x00" * MAX_MESSAGE_BYTES)
        decoded = decode(
            field(1, field(2, field(2, metric) + field(2, gauge("kept", 1).SerializeToString()))), 100
        )
        assert ([point.key.name for point in decoded.points], decoded.dropped) == (["kept"], 1)

    def test_the_largest_metric_is_decoded(self) -> None:
        metric = Metric(name="m", description="x" * (MAX_MESSAGE_BYTES - 100))
        metric.gauge.data_points.add(as_double=1.0)
        assert len(points(metric)) == 1

    def test_a_large_resource_is_refused(self) -> None:
        with pytest.raises(InvalidPayload, match="at most 65536 are allowed"):
            decode(payload(gauge("m", 1), huge="x" * MAX_MESSAGE_BYTES), 100)

    def test_of_several_resources_the_last_one_counts(self) -> None:
        resources = b"".join(
            field(1, field(1, field(1, name) + field(2, field(1, b"v")))) for name in (b"first", b"last")
        )
        scope = field(2, field(2, gauge("m", 1).SerializeToString()))
        (point,) = decode(field(1, resources + scope), 100).points
        assert dict(point.key.labels) == {"last": "v"}

    def test_no_measurement_is_decoded_beyond_the_limit(self) -> None:
        metrics = [counter(f"m{number}", -1.0, -1.0) for number in range(10)]
        decoded = decode(payload(*metrics, gauge("late", 1.0)), 20)
        assert (decoded.points, decoded.dropped) == ([], 21)

    def test_labels_beyond_the_first_attributes_are_left_out(self) -> None:
        many = {f"client_id{'.' * number}"[: 9 + number]: "v" for number in range(3)}
        assert labels_of(gauge("m", 1, **many)) == {"client_id_": "v", "client_id__": "v"}
        metric = Metric(name="m")
        point = metric.gauge.data_points.add(as_double=1)
        for _ in range(MAX_ATTRIBUTES):
            point.attributes.add(key="le").value.string_value = "v"
        point.attributes.add(key="late").value.string_value = "v"
        assert labels_of(metric) == {}


class TestLabels:
    def test_those_of_the_measurement_come_before_those_of_the_client(self) -> None:
        assert labels_of(gauge("m", 1, topic="a"), topic="b", group_id="g") == {"topic": "a", "group_id": "g"}

    @pytest.mark.parametrize(
        ("key", "name"),
        [
            ("node.id", "node_id"),
            ("client-rack", "client_rack"),
            ("0topic", "_0topic"),
            ("__name__", "_name__"),
            ("é", "_"),
            ("x" * 100, "x" * MAX_LABEL_NAME_CHARACTERS),
        ],
    )
    def test_names_are_those_that_prometheus_allows(self, key: str, name: str) -> None:
        assert labels_of(gauge("m", 1, **{key: "v"})) == {name: "v"}

    @pytest.mark.parametrize(
        "key",
        ["client_id", "client-id", "client.instance.id", "client_software_name", "le", "group_member_id"],
    )
    def test_labels_of_the_gateway_and_of_the_moment_are_left_out(self, key: str) -> None:
        assert labels_of(gauge("m", 1, **{key: "forged"})) == {}

    def test_long_values_are_cut(self) -> None:
        assert labels_of(gauge("m", 1, a="x" * 1000)) == {"a": "x" * MAX_TEXT_CHARACTERS}

    def test_further_labels_are_left_out(self) -> None:
        many = {f"k{number:03}": "v" for number in range(40)}
        assert (
            len(labels_of(gauge("m", 1, **many), **{f"r{number}": "v" for number in range(40)})) == MAX_LABELS
        )

    def test_scalars_become_text(self) -> None:
        metric = Metric(name="m")
        point = metric.gauge.data_points.add(as_double=1)
        point.attributes.add(key="yes").value.bool_value = True
        point.attributes.add(key="number").value.int_value = -4
        point.attributes.add(key="share").value.double_value = 0.5
        point.attributes.add(key="bytes").value.bytes_value = b"x"
        point.attributes.add(key="list").value.array_value.values.add(string_value="x")
        point.attributes.add(key="nothing")
        assert labels_of(metric) == {"yes": "true", "number": "-4", "share": "0.5"}


@pytest.mark.parametrize("content", [b"\xff", b"\x0a\x05abc", payload(gauge("m", 1))[:-3]])
def test_what_is_no_message_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidPayload, match="no OTLP MetricsData"):
        decode(content, 10)


def test_an_empty_payload_has_no_measurements() -> None:
    assert decode(b"", 10).points == []


@given(st.binary(max_size=400))
def test_any_bytes_are_decoded_or_refused(content: bytes) -> None:
    try:
        decoded = decode(content, 10)
    except InvalidPayload:
        return
    assert len(decoded.points) <= 10


VALID = payload(
    counter("c", 1.0, 2.0, topic="t"), histogram("h", [1.0], [1, 2]), gauge("g", 1.0), group_id="g", rack="r"
)


@given(st.lists(st.tuples(st.integers(0, len(VALID) - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_a_damaged_payload_is_decoded_or_refused(flips: list[tuple[int, int]]) -> None:
    damaged = bytearray(VALID)
    for place, byte in flips:
        damaged[place] = byte
    try:
        decode(bytes(damaged), 10)
    except InvalidPayload:
        return


@given(
    st.text(min_size=1, max_size=300),
    st.text(max_size=300),
    st.floats(),
    st.sampled_from([DELTA, CUMULATIVE]),
)
def test_whatever_is_decoded_stays_within_its_bounds(
    key: str, value: str, number: float, temporality: int
) -> None:
    data = MetricsData.FromString(payload(counter("m", number, temporality=temporality)))
    attribute = (
        data.resource_metrics[0].scope_metrics[0].metrics[0].sum.data_points[0].attributes.add(key=key)
    )
    attribute.value.string_value = value
    for point in decode(data.SerializeToString(), 10).points:
        assert isinstance(point.value, float)
        assert point.value >= 0
        for name, text in point.key.labels:
            assert name.isidentifier()
            assert name.isascii()
            assert not name.startswith("__")
            assert len(name) <= MAX_LABEL_NAME_CHARACTERS + 1
            assert len(text) <= MAX_TEXT_CHARACTERS
