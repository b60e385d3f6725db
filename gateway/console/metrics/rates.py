"""Turns two readings of counters into figures per second. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.console.metrics.exposition import Sample, buckets, quantile, totals

DURATION: Final = "seqgate_request_duration_seconds"
LATENESS: Final = "seqgate_event_loop_delay_seconds"
RECORDS: Final = "records_per_s"
BYTES_IN: Final = "bytes_in_per_s"
BYTES_OUT: Final = "bytes_out_per_s"
DUPLICATES: Final = "duplicates_per_s"
REFUSALS: Final = "refusals_per_s"
PRODUCE_P99: Final = "produce_p99_ms"
CONNECTIONS: Final = "connections"
LOOP_DELAY: Final = "loop_delay_ms"
OFFLINE: Final = "offline_partitions"
DELAYED: Final = "delayed_records"
NAMES: Final = "producer_names"
NAMES_DROPPED: Final = "names_dropped_records_per_s"
OPEN_TRANSACTIONS: Final = "open_transactions"
OLDEST_TRANSACTION: Final = "oldest_transaction_ms"
_PER_SECOND: Final = {
    RECORDS: "seqgate_topic_records_total",
    BYTES_IN: "seqgate_topic_bytes_total",
    BYTES_OUT: "seqgate_topic_fetched_bytes_total",
    DUPLICATES: "seqgate_producer_duplicate_batches_total",
    REFUSALS: "seqgate_producer_refused_batches_total",
    NAMES_DROPPED: "seqgate_producer_names_dropped_records_total",
}
_AS_THEY_ARE: Final = {
    CONNECTIONS: ("seqgate_connections", 1.0),
    OFFLINE: ("seqgate_offline_partitions", 1.0),
    DELAYED: ("seqgate_delayed_records", 1.0),
    NAMES: ("seqgate_producer_names", 1.0),
    OPEN_TRANSACTIONS: ("seqgate_transactions_open", 1.0),
    OLDEST_TRANSACTION: ("seqgate_transactions_oldest_seconds", 1_000.0),
}


@dataclass(frozen=True, slots=True)
class Reading:
    """The counters at one time."""

    time_s: float
    totals: Mapping[str, float] = field(default_factory=dict)
    durations: Mapping[float, float] = field(default_factory=dict)
    """The Produce requests by how long they took."""
    delays: Mapping[float, float] = field(default_factory=dict)
    """The turns of the event loop by how late they were."""

    @classmethod
    def of(cls, time_s: float, found: list[Sample]) -> Reading:
        """Return the reading of a gateway's metrics."""
        return cls(time_s, totals(found), buckets(found, DURATION, api="Produce"), buckets(found, LATENESS))


def figures(before: Reading, after: Reading) -> dict[str, float | None]:
    """Return the figures between two readings, by the name of their series.

    A counter that has fallen belongs to a gateway that has started again: it counts from zero.
    """
    passed = max(after.time_s - before.time_s, 1e-3)
    found: dict[str, float | None] = {}
    for name, metric in _PER_SECOND.items():
        if metric in after.totals:
            found[name] = _growth(before.totals.get(metric, 0.0), after.totals[metric]) / passed
    for name, (metric, factor) in _AS_THEY_ARE.items():
        if metric in after.totals:
            found[name] = after.totals[metric] * factor
    found[PRODUCE_P99] = _p99_ms(before.durations, after.durations)
    found[LOOP_DELAY] = _p99_ms(before.delays, after.delays)
    return found


def _p99_ms(before: Mapping[float, float], after: Mapping[float, float]) -> float | None:
    slowest = quantile(before, after, 0.99)
    return None if slowest is None else slowest * 1_000


def _growth(before: float, after: float) -> float:
    return after if after < before else after - before
