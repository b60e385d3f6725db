"""Reads the few metrics that the charts need from Prometheus' text. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

WANTED: Final = (
    "seqgate_topic_records_total",
    "seqgate_topic_bytes_total",
    "seqgate_topic_fetched_bytes_total",
    "seqgate_request_duration_seconds_bucket",
    "seqgate_producer_duplicate_batches_total",
    "seqgate_producer_refused_batches_total",
    "seqgate_connections",
    "seqgate_event_loop_delay_seconds_bucket",
    "seqgate_offline_partitions",
    "seqgate_delayed_records",
    "seqgate_producer_names",
    "seqgate_producer_names_dropped_records_total",
    "seqgate_transactions_open",
    "seqgate_transactions_oldest_seconds",
)
"""The names that are read; other lines are left out before they are parsed, because a gateway with many topics has many."""


class Sample(NamedTuple):
    """One number of a metric with its labels."""

    name: str
    labels: Mapping[str, str]
    value: float


def samples(text: str, wanted: Iterable[str] = WANTED) -> list[Sample]:
    """Return the samples of the wanted names."""
    return list(_parsed(text, tuple(wanted)))


def _parsed(text: str, wanted: tuple[str, ...]) -> Iterator[Sample]:
    lines = [line for line in text.splitlines() if line.startswith(wanted)]
    names = set(wanted)
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            if sample.name in names:
                yield Sample(sample.name, sample.labels, float(sample.value))


def totals(found: Iterable[Sample]) -> dict[str, float]:
    """Return the sum of each metric over its labels; histograms are left out."""
    sums: dict[str, float] = defaultdict(float)
    for sample in found:
        if "le" not in sample.labels:
            sums[sample.name] += sample.value
    return dict(sums)


def buckets(found: Iterable[Sample], name: str, **labels: str) -> dict[float, float]:
    """Return the cumulative counts of a histogram by upper bound, summed over the labels that are not given."""
    sums: dict[float, float] = defaultdict(float)
    for sample in found:
        if sample.name == f"{name}_bucket" and labels.items() <= sample.labels.items():
            sums[float(sample.labels["le"])] += sample.value
    return dict(sums)


def quantile(before: Mapping[float, float], after: Mapping[float, float], share: float) -> float | None:
    """Return the value below which a share of the observations between two readings of a histogram lies.

    None without observations. The value is interpolated inside its bucket, as Prometheus does.
    """
    bounds = sorted(after)
    counts = [max(0.0, after[bound] - before.get(bound, 0.0)) for bound in bounds]
    if not counts or counts[-1] <= 0:
        return None
    rank = share * counts[-1]
    lower, below = 0.0, 0.0
    for bound, count in zip(bounds, counts, strict=True):
        if count >= rank:
            if bound == float("inf"):
                return lower
            inside = count - below
            return bound if inside <= 0 else lower + (bound - lower) * (rank - below) / inside
        lower, below = bound, count
    return lower
