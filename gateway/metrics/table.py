"""The values of all metrics as text in the wanted format, with the series that clients push (KIP-714).

A client chooses its metrics' names; a prefix lets no client write over a metric of the gateway:

    org.apache.kafka.producer.record.send.total     kafka_client_producer_record_send_total
    my.metric                                       client_my_metric
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import accumulate
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder

from seqgate.gateway.durations import BOUNDS_S, Durations
from seqgate.gateway.metrics.metric import Metric, MetricKind, Sample, Sources, Subject
from seqgate.gateway.metrics.subjects import groups, requests, storage
from seqgate.gateway.telemetry.payload import HistogramValue, PushedSeries, SeriesKind

STEP: Final = 500
"""Values read at once, in under a millisecond; slices of rarer work are longer."""
T = TypeVar("T")
_END: Final = b"# EOF\n"
_FAMILIES: Final[dict[MetricKind, Callable[..., Any]]] = {
    MetricKind.COUNTER: CounterMetricFamily,
    MetricKind.GAUGE: GaugeMetricFamily,
    MetricKind.HISTOGRAM: HistogramMetricFamily,
    MetricKind.INFO: InfoMetricFamily,
}


class Text(NamedTuple):
    content_type: str
    body: bytes


async def text_of(sources: Sources, accept: str) -> Text:
    """Return the values of all metrics in a format that the request's header `accept` names. The event loop
    reads them in slices, and a thread writes them, so that requests wait for neither.
    """
    encoder, content_type = _encoder(accept)
    pieces: list[bytes] = []

    async def write(collect: Callable[[], Iterable[Family]]) -> None:
        # the encoders of prometheus_client take a registry, of which they call `collect`
        pieces.append(await asyncio.to_thread(encoder, SimpleNamespace(collect=collect)))

    async with sources.reading:
        for subject in SUBJECTS:
            samples = await all_of(subject.read(sources))
            await write(partial(_families, subject.metrics, samples))
        pushed = await all_of(sources.services.telemetry.pushed_series())
        await write(partial(pushed_families, pushed))
        await write(process_families)
    is_open = any(piece.endswith(_END) for piece in pieces)
    body = b"".join(piece.removesuffix(_END) for piece in pieces)
    return Text(content_type, body + _END if is_open else body)


async def all_of(values: Iterable[T | None]) -> list[T]:
    """Return the values but None. Requests run after every STEP of them."""
    found: list[T] = []
    for number, value in enumerate(values):
        if value is not None:
            found.append(value)
        if number % STEP == STEP - 1:
            await asyncio.sleep(0)
    return found


def _encoder(accept: str) -> tuple[Callable[..., bytes], str]:
    try:
        return choose_encoder(accept)
    except Exception:  # noqa: BLE001 - prometheus_client raises any error for a version that is no number
        return choose_encoder("")


def _families(metrics: Iterable[Metric], samples: Iterable[Sample]) -> Iterator[Family]:
    """Yield the metrics that have values, in the order of the table."""
    found = by_metric(samples)
    yield from (_family(metric, found[metric]) for metric in metrics if metric in found)


def by_metric(samples: Iterable[Sample]) -> dict[Metric, list[Sample]]:
    found: dict[Metric, list[Sample]] = {}
    for sample in samples:
        found.setdefault(sample.metric, []).append(sample)
    return found


def _family(metric: Metric, samples: Iterable[Sample]) -> Family:
    # An info has its labels as its value.
    labels = None if metric.kind is MetricKind.INFO else metric.labels
    family = _FAMILIES[metric.kind](metric.family, metric.doc, labels=labels)
    for sample in samples:
        if metric.kind is MetricKind.INFO:
            family.add_metric((), dict(zip(metric.labels, sample.labels, strict=True)))
        elif isinstance(sample.value, Durations):
            family.add_metric(sample.labels, _buckets(sample.value), sample.value.sum_s)
        else:
            family.add_metric(sample.labels, sample.value)
    found: Family = family
    return found


def _buckets(durations: Durations) -> list[tuple[str, float]]:
    """Return the cumulative counts, each with its upper bound."""
    total = 0.0
    buckets = []
    for bound, count in zip((*map(repr, BOUNDS_S), "+Inf"), durations.counts, strict=True):
        total += count
        buckets.append((bound, total))
    return buckets


def process_families() -> Iterator[Family]:
    """Yield prometheus_client's values of a process: memory, CPU, file handles, garbage collection."""
    # The collectors read the process.
    from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR, PROCESS_COLLECTOR  # noqa: PLC0415

    for collector in (PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR):
        yield from collector.collect()


_OF_KAFKA: Final = "org.apache.kafka."
_OTHER_CHARACTERS: Final = re.compile(r"[^a-zA-Z0-9_]+")
_TOTAL: Final = "_total"
_LongName = tuple[str, tuple[tuple[str, str], ...]]


def pushed_families(found: Iterable[PushedSeries]) -> Iterator[Family]:
    """Yield a family for each name, without a later kind of a name, or series that is equal to Prometheus."""
    families: dict[str, Family] = {}
    kinds: dict[str, SeriesKind] = {}
    seen: set[_LongName] = set()
    for series in found:
        name = family_name(series.name, series.kind)
        key = name, tuple(sorted(series.labels.items()))
        if kinds.setdefault(name, series.kind) is not series.kind or key in seen:
            continue
        seen.add(key)
        family = families.get(name)
        if family is None:
            family = families[name] = Family(name, series.help or series.name, series.kind.value)
        _add(family, name, series)
    yield from families.values()


def family_name(pushed: str, kind: SeriesKind) -> str:
    """Return the name of the family for the name that a client gave a metric."""
    prefix = "kafka_client_" if pushed.startswith(_OF_KAFKA) else "client_"
    name = prefix + _OTHER_CHARACTERS.sub("_", pushed.removeprefix(_OF_KAFKA))
    return name.removesuffix(_TOTAL) if kind is SeriesKind.COUNTER else name


def _add(family: Family, name: str, series: PushedSeries) -> None:
    if isinstance(series.value, HistogramValue):
        _add_histogram(family, name, series.labels, series.value)
    else:
        suffix = _TOTAL if series.kind is SeriesKind.COUNTER else ""
        family.add_sample(name + suffix, series.labels, series.value)


def _add_histogram(family: Family, name: str, labels: dict[str, str], value: HistogramValue) -> None:
    bounds = (*map(repr, value.bounds), "+Inf")
    for bound, count in zip(bounds, accumulate(value.counts), strict=True):
        family.add_sample(f"{name}_bucket", {**labels, "le": bound}, count)
    family.add_sample(f"{name}_count", labels, value.observations)
    family.add_sample(f"{name}_sum", labels, value.sum)


# The one list of metrics, by subject. The exposition, docs/metrics.md and the tests read it.

SUBJECTS: Final[tuple[Subject, ...]] = (
    requests.gateway,
    requests.requests,
    storage.topics,
    groups.producers,
    groups.groups,
    groups.transactions,
    requests.clients,
    storage.storage,
    storage.bucket,
    requests.limits,
)
METRICS: Final[dict[str, Metric]] = {
    metric.name: metric for subject in SUBJECTS for metric in subject.metrics
}
