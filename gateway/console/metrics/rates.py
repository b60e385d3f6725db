"""Turns two readings of counters into figures per second. Pure."""

from __future__ import annotations

import heapq
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from prometheus_client.samples import Sample

from seqgate.gateway.admin.remote.cluster import Cluster
from seqgate.gateway.console.asking.connections import Leader
from seqgate.gateway.console.metrics.history import (
    DISK_FREE,
    LAG,
    TOPIC_BYTES_IN,
    TOPIC_BYTES_OUT,
    TOPIC_RECORDS,
    TOPIC_SIZE,
    Key,
    key_of,
)
from seqgate.gateway.console.metrics.listener import buckets, quantile, samples_of
from seqgate.gateway.coordinator.places import TopicPartition

DURATION: Final = "seqgate_request_duration_seconds"
LATENESS: Final = "seqgate_event_loop_delay_seconds"
FLUSHES: Final = "seqgate_flush_round_duration_seconds"
NODE: Final = "seqgate_node_info"
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
FLUSH_P99: Final = "flush_p99_ms"
FLUSH_WAITING: Final = "flush_waiting"
"""Requests that wait for a flush."""
_PER_SECOND: Final = {
    RECORDS: "seqgate_topic_records_total",
    BYTES_IN: "seqgate_topic_bytes_total",
    BYTES_OUT: "seqgate_topic_fetched_bytes_total",
    DUPLICATES: "seqgate_producer_duplicate_batches_total",
    REFUSALS: "seqgate_producer_refused_batches_total",
    NAMES_DROPPED: "seqgate_producer_names_dropped_records_total",
}
_PER_TOPIC: Final = {
    TOPIC_RECORDS: "seqgate_topic_records_total",
    TOPIC_BYTES_IN: "seqgate_topic_bytes_total",
    TOPIC_BYTES_OUT: "seqgate_topic_fetched_bytes_total",
}
_LABELLED: Final = {
    TOPIC_SIZE: ("seqgate_topic_size_bytes", "topic"),
    LAG: ("seqgate_group_lag_records", "group"),
}
_FREE: Final = "seqgate_disk_free_bytes"
MOST_LABELLED: Final = 200
"""Topics and groups that have series of their own: those with the highest values."""
_AS_THEY_ARE: Final = {
    CONNECTIONS: ("seqgate_connections", 1.0),
    OFFLINE: ("seqgate_offline_partitions", 1.0),
    DELAYED: ("seqgate_delayed_records", 1.0),
    NAMES: ("seqgate_producer_names", 1.0),
    OPEN_TRANSACTIONS: ("seqgate_transactions_open", 1.0),
    OLDEST_TRANSACTION: ("seqgate_transactions_oldest_seconds", 1_000.0),
    FLUSH_WAITING: ("seqgate_flush_waiting_requests", 1.0),
}
_HISTOGRAMS: Final = {
    PRODUCE_P99: (DURATION, {"api": "Produce"}),
    LOOP_DELAY: (LATENESS, {}),
    FLUSH_P99: (FLUSHES, {}),
}
WANTED: Final = (
    NODE,
    _FREE,
    *_PER_SECOND.values(),
    *(metric for metric, _ in (*_AS_THEY_ARE.values(), *_LABELLED.values())),
    *(f"{metric}_bucket" for metric, _ in _HISTOGRAMS.values()),
)
"""The names that are read; a gateway with many topics has many others, which are not parsed."""
_WORST_COUNTS: Final = frozenset({*_HISTOGRAMS, OLDEST_TRANSACTION})
"""Figures of which a cluster has that of its slowest gateway; the others are sums."""

_Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """The metrics of one gateway at a time: the values by metric and labels, and the counts of histograms by
    figure and upper bound.
    """

    time_s: float
    values: Mapping[str, Mapping[_Labels, float]] = field(default_factory=dict)
    counts: Mapping[str, Mapping[float, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, time_s: float, found: list[Sample]) -> Reading:
        values: dict[str, dict[_Labels, float]] = defaultdict(dict)
        for sample in found:
            if "le" not in sample.labels:
                values[sample.name][tuple(sorted(sample.labels.items()))] = sample.value
        counts = {name: buckets(found, metric, **labels) for name, (metric, labels) in _HISTOGRAMS.items()}
        return cls(time_s, dict(values), counts)

    def total(self, metric: str) -> float:
        return sum(self.values[metric].values())

    def by_label(self, metric: str, label: str) -> dict[str, float]:
        """Return the values of a metric by its topic or group; a series without the label is left out."""
        found = ((dict(labels).get(label), value) for labels, value in self.values.get(metric, {}).items())
        return {name: value for name, value in found if name}

    @property
    def node(self) -> Mapping[str, str]:
        """The version of the gateway, its node id and the id of its cluster; empty for an unknown gateway."""
        return dict(next(iter(self.values.get(NODE, ())), ()))


def figures(before: Reading, after: Reading) -> dict[str, float | None]:
    """Return the figures of a gateway between two readings. A series that has fallen began again at zero: the
    gateway has started again, or a topic is a new one. A series that is gone, as that of a deleted topic,
    counts nothing.
    """
    passed = max(after.time_s - before.time_s, 1e-3)
    found: dict[str, float | None] = {}
    for name, metric in _PER_SECOND.items():
        if metric in after.values:
            known = before.values.get(metric, {})
            grown = (_growth(known.get(labels, 0.0), count) for labels, count in after.values[metric].items())
            found[name] = sum(grown) / passed
    for name, (metric, factor) in _AS_THEY_ARE.items():
        if metric in after.values:
            found[name] = after.total(metric) * factor
    for name in _HISTOGRAMS:
        found[name] = _p99_ms(before.counts.get(name, {}), after.counts.get(name, {}))
    return found


def united_figures(
    found: Iterable[Mapping[str, float | None]], *, sums: bool = True
) -> dict[str, float | None]:
    """Return the figures of a cluster from those of its gateways; without `sums` only the worst of times."""
    united: dict[str, float | None] = {}
    for figured in found:
        for name, value in figured.items():
            known = united.get(name)
            if name in _WORST_COUNTS:
                united[name] = max((each for each in (known, value) if each is not None), default=None)
            elif sums:
                united[name] = (known or 0.0) + (value or 0.0)
    return united


def labelled_figures(pairs: Sequence[tuple[Reading, Reading]]) -> dict[Key, float | None]:
    """Return the figures of topics and groups between two readings of each gateway: their sums."""
    found: dict[Key, float | None] = {}
    for name, metric in _PER_TOPIC.items():
        counts: dict[str, float] = defaultdict(float)
        rates: dict[str, float] = {}
        for before, after in pairs:
            known = before.by_label(metric, "topic")
            for topic, count in after.by_label(metric, "topic").items():
                counts[topic] += count
                if topic in known:
                    passed = max(after.time_s - before.time_s, 1e-3)
                    rates[topic] = rates.get(topic, 0.0) + _growth(known[topic], count) / passed
        for topic in largest(counts):
            if topic in rates:
                found[key_of(name, {"topic": topic})] = rates[topic]
    for name, (metric, label) in _LABELLED.items():
        sizes: dict[str, float] = defaultdict(float)
        for _, after in pairs:
            for value, size in after.by_label(metric, label).items():
                sizes[value] += size
        for value, size in largest(sizes).items():
            found[key_of(name, {label: value})] = size
    return found


def free_bytes(readings: Iterable[Reading]) -> dict[Key, float | None]:
    """Return the free bytes of the fullest disk; workers share one."""
    free = [reading.total(_FREE) for reading in readings if _FREE in reading.values]
    return {key_of(DISK_FREE, {"broker": ""}): min(free)} if free else {}


def largest(values: Mapping[str, float]) -> dict[str, float]:
    """Return the MOST_LABELLED entries with the highest values."""
    if len(values) <= MOST_LABELLED:
        return dict(values)
    return dict(heapq.nlargest(MOST_LABELLED, values.items(), key=lambda entry: entry[1]))


def _growth(counted: float, count: float) -> float:
    """Return by how much a counter has grown; one that has fallen began again at zero."""
    return count if count < counted else count - counted


def _p99_ms(before: Mapping[float, float], after: Mapping[float, float]) -> float | None:
    """Return the 99th percentile between two readings of a histogram; one that fell began again at zero."""
    if any(after.get(bound, 0.0) < count for bound, count in before.items()):
        before = {}
    slowest = quantile(before, after, 0.99)
    return None if slowest is None else slowest * 1_000


# The series that clients push about themselves (KIP-714), as the gateway's metrics show them.

PREFIXES: Final = ("kafka_client_", "client_")
"""The beginnings of the names that the gateway gives to pushed metrics."""
INSTANCE: Final = "client_instance_id"
OF_THE_CLIENT: Final = (
    "client_id",
    INSTANCE,
    "client_software_name",
    "client_software_version",
    "group_id",
    "transactional_id",
    "client_rack",
)
_TOTAL: Final = "_total"
_BUCKET: Final = "_bucket"


@dataclass(slots=True)
class PushingClient:
    """A client and its series at the gateway `node_id`."""

    node_id: int
    labels: dict[str, str] = field(default_factory=dict)
    series: list[Sample] = field(default_factory=list)

    @property
    def instance_id(self) -> str:
        """The id that the gateway gave this instance of the client."""
        return self.labels.get(INSTANCE, "")

    def own_labels(self, sample: Sample) -> dict[str, str]:
        """Return the labels of a series that other series of the client may have with other values."""
        return {name: value for name, value in sample.labels.items() if name not in OF_THE_CLIENT}


def clients_of(text: str, node_id: int = -1) -> dict[str, PushingClient]:
    """Return the clients in a gateway's metrics, by their instance ids, without buckets of histograms."""
    found: dict[str, PushingClient] = {}
    for sample in samples_of(text, PREFIXES):
        if INSTANCE not in sample.labels or sample.name.endswith(_BUCKET):
            continue
        client = found.setdefault(sample.labels[INSTANCE], PushingClient(node_id))
        client.labels |= {name: sample.labels[name] for name in OF_THE_CLIENT if name in sample.labels}
        client.series.append(sample)
    return found


def total_of(series: Iterable[Sample], name: str) -> float | None:
    """Return the sum of a metric over its labels; None where the client does not push it."""
    values = [sample.value for sample in series if sample.name == name]
    return sum(values) if values else None


def is_counter(name: str) -> bool:
    """Return whether a metric only grows, so that people want its growth."""
    return name.endswith(_TOTAL)


@dataclass(slots=True)
class FigureReader:
    """Reads one metric of a client again and again: the growth per second of a counter, or the value. `read`
    returns what each gateway tells, by node id. Each counts for itself: one that tells nothing for a while,
    or that the client has just come to, is no growth.
    """

    read: Callable[[], Mapping[int, str]]
    instance_id: str
    name: str
    _before: dict[int, tuple[float, float]] = field(default_factory=dict)

    def __call__(self) -> Mapping[str, float | None]:
        values: dict[int, float] = {}
        for node_id, text in self.read().items():
            client = clients_of(text, node_id).get(self.instance_id)
            value = None if client is None else total_of(client.series, self.name)
            if value is not None:
                values[node_id] = value
        if not values or not is_counter(self.name):
            return {self.name: sum(values.values()) if values else None}
        now_s = time.monotonic()
        before, self._before = (
            self._before,
            self._before | {node_id: (now_s, value) for node_id, value in values.items()},
        )
        growths = [
            max(0.0, value - before[node_id][1]) / max(now_s - before[node_id][0], 1e-3)
            for node_id, value in values.items()
            if node_id in before
        ]
        return {self.name: sum(growths) if growths else None}


# Records per second from the end offsets of all partitions, for a cluster without a metrics listener.

MOST_PARTITIONS: Final = 5_000
"""Partitions whose end offsets are asked for; the records of further ones are not counted."""


def end_offsets(cluster: Cluster) -> dict[TopicPartition, int]:
    """Return the log end offset of each partition. Raises ControlError."""
    return cluster.ends(cluster.led_partitions()[:MOST_PARTITIONS])


def new_records(before: Mapping[TopicPartition, int], after: Mapping[TopicPartition, int]) -> dict[str, int]:
    """Return the offsets that each topic gained; a new partition counts with its next reading."""
    gained: dict[str, int] = {}
    for (topic, partition), end in after.items():
        begin = before.get((topic, partition))
        if begin is not None:
            gained[topic] = gained.get(topic, 0) + max(0, end - begin)
    return gained


# The changes of leaders that the console has seen since its start: failovers and moves.

KEPT: Final = 20_000
"""Changes that are kept; the oldest are dropped first."""
MOST_KNOWN: Final = 500_000
"""Partitions whose leaders are remembered; beyond, those that the last look did not show are forgotten."""
NAMED: Final = 3
"""Partitions that a summary names; it counts the others."""


class LeaderChange(NamedTuple):
    """A partition that got another leader, or the same one again in a new epoch."""

    time_ms: int
    place: TopicPartition
    before: Leader
    after: Leader


class MovesSummary(NamedTuple):
    """The partitions that went from one leader to another between two looks. `examples` are some of them."""

    time_ms: int
    before: int
    after: int
    partitions: int
    examples: tuple[TopicPartition, ...]


class LeaderChanges:
    """Compares the leaders of each look with the look before; it may show a part. Thread-safe."""

    def __init__(self) -> None:
        self.since_ms = time.time_ns() // 1_000_000
        self._lock = threading.Lock()
        self._known: dict[TopicPartition, Leader] = {}
        self._changes: deque[LeaderChange] = deque(maxlen=KEPT)

    def see(self, time_ms: int, leaders: Mapping[TopicPartition, Leader]) -> None:
        """Note what has changed. A lower epoch is a new topic of the same name, no change of leader."""
        with self._lock:
            for place, after in leaders.items():
                before = self._known.get(place)
                if before is not None and before != after and after.epoch >= before.epoch:
                    self._changes.append(LeaderChange(time_ms, place, before, after))
                self._known[place] = after
            if len(self._known) > MOST_KNOWN:
                self._known = dict(leaders)

    def summaries(self, visible: Container[TopicPartition], most: int) -> list[MovesSummary]:
        """Return the newest changes of the partitions that somebody may see, the newest first."""
        with self._lock:
            changes = [change for change in reversed(self._changes) if change.place in visible]
        found: dict[tuple[int, int, int], list[TopicPartition]] = {}
        for change in changes:
            key = (change.time_ms, change.before.node_id, change.after.node_id)
            if key not in found and len(found) == most:
                break
            found.setdefault(key, []).append(change.place)
        return [
            MovesSummary(*key, len(places), tuple(sorted(places)[:NAMED])) for key, places in found.items()
        ]
