"""The values of metrics as messages of OTLP."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2 as otlp
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from prometheus_client.core import Metric as Family

from gateway.durations import BOUNDS_S, Durations
from gateway.metrics.metric import Kind, Metric, Sample

_SCOPE: Final = "seqgate"
_CUMULATIVE: Final = otlp.AGGREGATION_TEMPORALITY_CUMULATIVE
_UNITS: Final = {"seconds": "s", "bytes": "By"}
"""OpenTelemetry's unit for the word in the name of a metric. A collector that writes for Prometheus adds no second one to the name."""
_OF_FAMILIES: Final = {"counter": Kind.COUNTER, "gauge": Kind.GAUGE, "info": Kind.INFO}


@dataclass(frozen=True, slots=True)
class Moment:
    """The time of an export, and the start of the gateway, since which counters count, in nanoseconds."""

    now_ns: int
    started_at_ns: int


def encoded_request(attributes: Mapping[str, str], metrics: Iterable[otlp.Metric]) -> bytes:
    """Return an export as bytes, compressed by gzip. `attributes` are those of the resource."""
    scope = InstrumentationScope(name=_SCOPE, version=attributes.get("service.version", ""))
    of_scope = otlp.ScopeMetrics(scope=scope, metrics=metrics)
    resource = Resource(attributes=_attributes(attributes))
    request = ExportMetricsServiceRequest(
        resource_metrics=[otlp.ResourceMetrics(resource=resource, scope_metrics=[of_scope])]
    )
    return gzip.compress(request.SerializeToString(), compresslevel=1)


def encoded_samples(samples: Iterable[Sample], moment: Moment) -> list[otlp.Metric]:
    """Return the metrics that have values."""
    by_metric: dict[Metric, list[Sample]] = {}
    for sample in samples:
        by_metric.setdefault(sample.metric, []).append(sample)
    return [_metric(metric, found, moment) for metric, found in by_metric.items()]


def encoded_families(families: Iterable[Family], moment: Moment) -> Iterator[otlp.Metric]:
    """Yield the metrics of the process as prometheus_client gives them. None of them is a histogram."""
    for family in families:
        kind = _OF_FAMILIES.get(family.type)
        # A family of counters also has the times at which its series began.
        values = [entry for entry in family.samples if not entry.name.endswith("_created")]
        if kind is None or not values:
            continue
        labels = tuple(values[0].labels)
        metric = Metric(values[0].name, kind, family.documentation, labels)
        samples = [metric.at(entry.value, *(entry.labels[label] for label in labels)) for entry in values]
        yield _metric(metric, samples, moment)


def _metric(metric: Metric, samples: Iterable[Sample], moment: Moment) -> otlp.Metric:
    found = otlp.Metric(name=metric.name, description=metric.doc, unit=_unit(metric))
    match metric.kind:
        case Kind.HISTOGRAM:
            found.histogram.aggregation_temporality = _CUMULATIVE
            found.histogram.data_points.extend(_histogram(sample, moment) for sample in samples)
        case Kind.COUNTER:
            found.sum.aggregation_temporality = _CUMULATIVE
            found.sum.is_monotonic = True
            found.sum.data_points.extend(
                _number(sample, moment.now_ns, moment.started_at_ns) for sample in samples
            )
        case Kind.GAUGE | Kind.INFO:
            found.gauge.data_points.extend(_number(sample, moment.now_ns) for sample in samples)
    return found


def _unit(metric: Metric) -> str:
    words = metric.name.split("_")
    return next((unit for word, unit in _UNITS.items() if word in words), "")


def _number(sample: Sample, now_ns: int, started_at_ns: int = 0) -> otlp.NumberDataPoint:
    value = sample.value
    assert not isinstance(value, Durations)
    point = otlp.NumberDataPoint(
        attributes=_labels(sample), start_time_unix_nano=started_at_ns, time_unix_nano=now_ns
    )
    if isinstance(value, int):
        point.as_int = int(value)  # a bool counts as 0 or 1
    else:
        point.as_double = value
    return point


def _histogram(sample: Sample, moment: Moment) -> otlp.HistogramDataPoint:
    durations = sample.value
    assert isinstance(durations, Durations)
    counts = list(durations.counts)  # the event loop may count meanwhile
    return otlp.HistogramDataPoint(
        attributes=_labels(sample),
        count=sum(counts),
        sum=durations.sum_s,
        bucket_counts=counts,
        explicit_bounds=BOUNDS_S,
        start_time_unix_nano=moment.started_at_ns,
        time_unix_nano=moment.now_ns,
    )


def _labels(sample: Sample) -> list[KeyValue]:
    return _attributes(dict(zip(sample.metric.labels, sample.labels, strict=True)))


def _attributes(values: Mapping[str, str]) -> list[KeyValue]:
    return [KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in values.items()]
