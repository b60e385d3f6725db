"""Decodes pushed metrics: an OTLP `MetricsData` message (protobuf).

What is decoded is bounded: in fields, in measurements, in bytes of a metric, in labels of a measurement, and
in characters of names and values. Gauges, sums and histograms with explicit ranges are decoded; exponential
histograms and summaries are dropped, because no Kafka client pushes any.

Call `decode` in a thread: it may take a tenth of a second. The protobuf library decodes a message in one
piece and keeps Python's lock meanwhile, for a quarter of a second where a payload has a few MiB. So the outer
messages of a payload are taken apart here, and the library decodes only small inner ones: no part keeps the
lock for more than a few milliseconds.

A field is a varint `number << 3 | wire type`, and then its value: wire type 0 a varint, 1 eight bytes, 5 four
bytes, 2 a varint with the length and as many bytes. Source: KIP-714, opentelemetry-proto `metrics.proto`,
protobuf's "Encoding".
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec

from seqgate.gateway.telemetry.subscriptions import CLIENT_LABELS

if TYPE_CHECKING:
    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric


MAX_MESSAGE_BYTES: Final = 64 << 10
"""A larger metric is dropped, and counts once; a larger resource refuses the payload."""
MAX_ATTRIBUTES: Final = 64
"""Attributes of one measurement, or of one resource, that are looked through for labels."""
MAX_LABELS: Final = 16
"""Labels of one measurement; further ones are left out."""
MAX_NAME_CHARACTERS: Final = 255
"""Longest name of a metric; a metric with a longer one is dropped."""
MAX_LABEL_NAME_CHARACTERS: Final = 64
"""Longest name of a label; a longer one is cut."""
MAX_TEXT_CHARACTERS: Final = 128
"""Longest value of a label, help and unit; a longer one is cut."""
MAX_RANGES: Final = 64
"""Ranges of one histogram; a histogram with more is dropped."""
MAX_OBSERVATIONS: Final = 2**64 - 1
"""Observations of one histogram, which OTLP counts in 64 bits; a histogram with more is dropped."""
_RESOURCE_METRICS, _RESOURCE, _SCOPE_METRICS, _METRICS = 1, 1, 2, 2
"""Fields: MetricsData.resource_metrics, ResourceMetrics.resource, .scope_metrics, ScopeMetrics.metrics."""
_DELTA: Final = 1
"""AGGREGATION_TEMPORALITY_DELTA; 0 is unspecified, 2 is cumulative."""
_NO_RECORDED_VALUE: Final = 1
_LEFT_OUT: Final = frozenset({*CLIENT_LABELS, "le", "group_member_id"})
"""Attributes that become no labels: those that the gateway sets, and the member id of the JVM's consumers.
The member id changes while a client runs, so that each change would begin its counters anew.
"""
_NOT_IN_A_LABEL: Final = re.compile(r"[^a-zA-Z0-9_]")


class InvalidPayload(ValueError):
    """The payload is no `MetricsData` message."""


def decode(plain: bytes, max_points: int) -> Measurements:
    """Return at most `max_points` measurements of an uncompressed payload. Raises InvalidPayload."""
    from google.protobuf.message import DecodeError  # noqa: PLC0415 - only where clients push

    decoding = _Decoding(max_points)
    try:
        decoding.take_all(memoryview(plain))
    except (DecodeError, MalformedMessage) as error:
        raise InvalidPayload(f"the metrics are no OTLP MetricsData message: {error}") from error
    return Measurements(decoding.points, decoding.dropped)


class _Decoding:
    """The measurements that are decoded so far."""

    def __init__(self, max_points: int) -> None:
        from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric  # noqa: PLC0415 - see `decode`
        from opentelemetry.proto.resource.v1.resource_pb2 import Resource  # noqa: PLC0415

        self.points: list[Point] = []
        self.dropped = 0
        self._left = max_points
        """Measurements that may still be decoded, whether they are kept or dropped."""
        self._budget = FieldBudget()
        self._resource_of, self._metric_of = Resource.FromString, Metric.FromString

    def take_all(self, payload: memoryview) -> None:
        for resource in nested(payload, _RESOURCE_METRICS, self._budget):
            shared = self._shared_labels(resource)
            for scope in nested(resource, _SCOPE_METRICS, self._budget):
                for metric in nested(scope, _METRICS, self._budget):
                    self._take(metric, shared)

    def _shared_labels(self, resource: memoryview) -> dict[str, str]:
        shared: dict[str, str] = {}
        for content in nested(resource, _RESOURCE, self._budget):
            if len(content) > MAX_MESSAGE_BYTES:
                raise MalformedMessage(
                    f"a resource has {len(content)} bytes; at most {MAX_MESSAGE_BYTES} are allowed"
                )
            # A client sends one resource. Of several the last one counts, so that their labels do not add up.
            shared = _labels(self._resource_of(bytes(content)).attributes)
        return shared

    def _take(self, content: memoryview, shared: dict[str, str]) -> None:
        if not self._left or len(content) > MAX_MESSAGE_BYTES:
            self.dropped += 1
            return
        metric = self._metric_of(bytes(content))
        kind = metric.WhichOneof("data")
        if kind is None:
            return
        data = getattr(metric, kind)
        measured = data.data_points[: self._left]
        self._left -= len(measured)
        kept = list(_points(metric, data, measured, shared))
        self.points += kept
        self.dropped += len(data.data_points) - len(kept)


def _points(metric: Metric, data: Any, measured: Iterable[Any], shared: dict[str, str]) -> Iterator[Point]:
    content = metric.WhichOneof("data") or ""
    kind = _kind(content, data)
    if kind is None or not metric.name or len(metric.name) > MAX_NAME_CHARACTERS:
        return
    is_delta = content != "gauge" and data.aggregation_temporality == _DELTA
    unit, shown = metric.unit[:MAX_TEXT_CHARACTERS], metric.description[:MAX_TEXT_CHARACTERS]
    for one in measured:
        value = _histogram(one) if kind is SeriesKind.HISTOGRAM else _number(one)
        if value is None or (kind is SeriesKind.COUNTER and not _is_count(value)):
            continue
        labels = {**shared, **_labels(one.attributes)}
        key = SeriesKey(metric.name, kind, tuple(sorted(labels.items())[:MAX_LABELS]))
        yield Point(key, unit, shown, is_delta, one.time_unix_nano, value)


def _kind(content: str, data: Any) -> SeriesKind | None:
    if content == "sum":
        return SeriesKind.COUNTER if data.is_monotonic else SeriesKind.GAUGE
    return {"gauge": SeriesKind.GAUGE, "histogram": SeriesKind.HISTOGRAM}.get(content)


def _number(measured: Any) -> float | None:
    if measured.flags & _NO_RECORDED_VALUE:
        return None
    content = measured.WhichOneof("value")
    return None if content is None else float(getattr(measured, content))


def _is_count(value: float | HistogramValue) -> bool:
    """Return whether a counter can grow by the value."""
    return isinstance(value, float) and math.isfinite(value) and value >= 0


def _histogram(measured: Any) -> HistogramValue | None:
    if measured.flags & _NO_RECORDED_VALUE or len(measured.bucket_counts) > MAX_RANGES:
        return None
    bounds, counts = tuple(measured.explicit_bounds), tuple(measured.bucket_counts)
    total = measured.sum if math.isfinite(measured.sum) else 0.0
    if not bounds and not counts:
        return HistogramValue((), (measured.count,), total, measured.count)
    is_rising = all(lower < upper for lower, upper in pairwise(bounds))
    if len(counts) != len(bounds) + 1 or not is_rising or not all(map(math.isfinite, bounds)):
        return None
    observations = sum(counts)
    return HistogramValue(bounds, counts, total, observations) if observations <= MAX_OBSERVATIONS else None


def _labels(attributes: Iterable[Any]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for attribute in islice(attributes, MAX_ATTRIBUTES):
        text = _text(attribute.value)
        if text is None or not attribute.key:
            continue
        name = _label_name(attribute.key)
        if name not in _LEFT_OUT and (name in labels or len(labels) < MAX_LABELS):
            labels[name] = text[:MAX_TEXT_CHARACTERS]
    return labels


def _label_name(key: str) -> str:
    """Return the key as Prometheus' label: letters, digits and `_`, no digit and no `__` first."""
    name = _NOT_IN_A_LABEL.sub("_", key[:MAX_LABEL_NAME_CHARACTERS])
    if name[0].isdigit():
        return f"_{name}"
    return f"_{name.lstrip('_')}" if name.startswith("__") else name


def _text(value: Any) -> str | None:
    """Return a scalar attribute as text; None for lists, maps and bytes."""
    content = value.WhichOneof("value")
    if content == "bool_value":
        return "true" if value.bool_value else "false"
    if content in {"string_value", "int_value", "double_value"}:
        return str(getattr(value, content))
    return None


MAX_FIELDS: Final = 50_000
_VARINT_BITS: Final = 64
_VARINT, _EIGHT_BYTES, _WITH_LENGTH, _FOUR_BYTES = 0, 1, 2, 5


class MalformedMessage(ValueError):
    """The bytes are no protobuf message, or have more fields than allowed."""


class FieldBudget:
    """Counts the fields of one payload."""

    def __init__(self, most: int = MAX_FIELDS) -> None:
        self._left = most

    def take(self) -> None:
        """Count a field. Raises MalformedMessage when too many were counted."""
        if not self._left:
            raise MalformedMessage("the message has too many fields")
        self._left -= 1


def nested(message: memoryview, number: int, budget: FieldBudget) -> Iterator[memoryview]:
    """Yield the content of each field of this number that has a length. Raises MalformedMessage."""
    position = 0
    while position < len(message):
        budget.take()
        tag, position = _varint(message, position)
        wire_type = tag & 7
        start = position
        if wire_type == _VARINT:
            _, position = _varint(message, position)
        elif wire_type == _EIGHT_BYTES:
            position += 8
        elif wire_type == _FOUR_BYTES:
            position += 4
        elif wire_type == _WITH_LENGTH:
            length, start = _varint(message, position)
            position = start + length
        else:
            raise MalformedMessage(f"the message has a field of the unknown wire type {wire_type}")
        if position > len(message):
            raise MalformedMessage("the message is cut")
        if wire_type == _WITH_LENGTH and tag >> 3 == number:
            yield message[start:position]


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    """Return the number at a position and the position after it: seven bits a byte, the lowest first."""
    number = shift = 0
    while shift < _VARINT_BITS:
        if position >= len(message):
            raise MalformedMessage("the message is cut")
        byte = message[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
    raise MalformedMessage("a number of the message is too long")


# One measurement of a pushed metric, independent of the format in which it was pushed.

Labels = tuple[tuple[str, str], ...]
"""Names and values of labels, sorted by name."""


class SeriesKind(enum.Enum):
    """The kind of a series. The values are the words of the metrics endpoint."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class HistogramValue(msgspec.Struct, frozen=True):
    """`counts[i]` observations up to `bounds[i]` and above the bound before; the last has no bound."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float
    observations: int

    def plus(self, later: HistogramValue) -> HistogramValue:
        """Return both together; only the later one when the ranges differ, or both have too many."""
        observations = self.observations + later.observations
        if later.bounds != self.bounds or observations > MAX_OBSERVATIONS:
            return later
        counts = tuple(ours + theirs for ours, theirs in zip(self.counts, later.counts, strict=True))
        return HistogramValue(self.bounds, counts, self.sum + later.sum, observations)


Value = float | HistogramValue


class SeriesKey(msgspec.Struct, frozen=True):
    """The identity of a series of one client; `labels` are the measurement's own."""

    name: str
    kind: SeriesKind
    labels: Labels


class Point(msgspec.Struct, frozen=True):
    """A measurement. `is_delta`: the value counts only what happened since the measurement before. `time_ns`:
    its end since the Unix epoch, by the client's clock; 0 when unknown.
    """

    key: SeriesKey
    unit: str
    help: str
    is_delta: bool
    time_ns: int
    value: Value


class Measurements(msgspec.Struct, frozen=True):
    """The measurements of one push, and the number of those that were dropped."""

    points: list[Point]
    dropped: int


class PushedSeries(msgspec.Struct, frozen=True):
    """One series as the metrics endpoint shows it; counters and histograms are cumulative."""

    name: str
    """The name that the client gave the metric, such as `org.apache.kafka.producer.record.send.total`."""
    kind: SeriesKind
    unit: str
    help: str
    labels: dict[str, str]
    """The labels of the client and those of the measurement. Names are labels of Prometheus."""
    value: float | HistogramValue
