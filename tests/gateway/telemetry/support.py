"""Clients and pushed payloads for the tests of telemetry."""

from __future__ import annotations

import uuid
from typing import Any

from msgspec.structs import replace
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from seqgate.gateway.telemetry.subscriptions import ClientDescription

CLIENT_ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
CLIENT = ClientDescription(CLIENT_ID, "loader", "apache-kafka-java", "4.3.1", "10.0.0.7", 40123)
DELTA, CUMULATIVE = 1, 2


def client(**changes: Any) -> ClientDescription:
    """Return a client that differs from CLIENT in these fields."""
    return replace(CLIENT, **changes)


def counter(
    name: str,
    *values: float,
    time_ns: int = 0,
    temporality: int = DELTA,
    is_monotonic: bool = True,
    **labels: str,
) -> Metric:
    """Return a sum with one measurement for each value."""
    metric = Metric(name=name)
    metric.sum.is_monotonic = is_monotonic
    metric.sum.aggregation_temporality = temporality
    for value in values:
        point = metric.sum.data_points.add(as_double=value, time_unix_nano=time_ns)
        _label(point, labels)
    return metric


def gauge(name: str, value: float, **labels: str) -> Metric:
    """Return a gauge with one measurement."""
    metric = Metric(name=name)
    _label(metric.gauge.data_points.add(as_double=value), labels)
    return metric


def histogram(
    name: str,
    bounds: list[float],
    counts: list[int],
    *,
    total: float = 0.0,
    temporality: int = DELTA,
    time_ns: int = 0,
) -> Metric:
    """Return a histogram with one measurement."""
    metric = Metric(name=name)
    metric.histogram.aggregation_temporality = temporality
    metric.histogram.data_points.add(
        explicit_bounds=bounds, bucket_counts=counts, sum=total, time_unix_nano=time_ns
    )
    return metric


def payload(*metrics: Metric, **resource: str) -> bytes:
    """Return the metrics as an uncompressed payload."""
    data = MetricsData()
    of_resource = data.resource_metrics.add()
    _label(of_resource.resource, resource)
    of_resource.scope_metrics.add().metrics.extend(metrics)
    return data.SerializeToString()


def varint(number: int) -> bytes:
    """Return the number as protobuf writes it."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def field(number: int, content: bytes) -> bytes:
    """Return a field with a length, as protobuf writes it."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def _label(labelled: Any, labels: dict[str, str]) -> None:
    for key, value in labels.items():
        labelled.attributes.add(key=key).value.string_value = value
