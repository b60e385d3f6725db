"""Turns two readings of counters into figures per second. Pure."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafka.admin import OffsetSpec

from seqgate.gateway.admin.remote.client_security import ClientSecurity
from seqgate.gateway.admin.remote.cluster import Cluster, led_partitions
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.console.asking.connections import ClusterLogin, Connections, Leader, leaders_of
from seqgate.gateway.console.metrics.history import History, Key
from seqgate.gateway.console.metrics.listener import (
    MetricsClient,
    ScrapedSample,
    buckets,
    quantile,
    samples,
    samples_of,
    totals,
)
from seqgate.gateway.coordinator.places import TopicPartition

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
    time_s: float
    totals: Mapping[str, float] = field(default_factory=dict)
    durations: Mapping[float, float] = field(default_factory=dict)
    delays: Mapping[float, float] = field(default_factory=dict)
    """The turns of the event loop by how late they were."""

    @classmethod
    def of(cls, time_s: float, found: list[ScrapedSample]) -> Reading:
        return cls(time_s, totals(found), buckets(found, DURATION, api="Produce"), buckets(found, LATENESS))


def figures(before: Reading, after: Reading) -> dict[str, float | None]:
    """Return the figures between two readings by series; a counter that has fallen began again at zero."""
    passed = max(after.time_s - before.time_s, 1e-3)
    found: dict[str, float | None] = {}
    for name, metric in _PER_SECOND.items():
        if metric in after.totals:
            counted, counts = before.totals.get(metric, 0.0), after.totals[metric]
            found[name] = (counts if counts < counted else counts - counted) / passed
    for name, (metric, factor) in _AS_THEY_ARE.items():
        if metric in after.totals:
            found[name] = after.totals[metric] * factor
    found[PRODUCE_P99] = _p99_ms(before.durations, after.durations)
    found[LOOP_DELAY] = _p99_ms(before.delays, after.delays)
    return found


def _p99_ms(before: Mapping[float, float], after: Mapping[float, float]) -> float | None:
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
    labels: dict[str, str] = field(default_factory=dict)
    series: list[ScrapedSample] = field(default_factory=list)

    @property
    def instance_id(self) -> str:
        """The id that the gateway gave this instance of the client."""
        return self.labels.get(INSTANCE, "")

    def own_labels(self, sample: ScrapedSample) -> dict[str, str]:
        """Return the labels of a series that other series of the client may have with other values."""
        return {name: value for name, value in sample.labels.items() if name not in OF_THE_CLIENT}


def clients_of(text: str) -> dict[str, PushingClient]:
    """Return the clients in a gateway's metrics, by their instance ids, without buckets of histograms."""
    found: dict[str, PushingClient] = {}
    for sample in samples_of(text, PREFIXES):
        if INSTANCE not in sample.labels or sample.name.endswith(_BUCKET):
            continue
        client = found.setdefault(sample.labels[INSTANCE], PushingClient())
        client.labels |= {name: sample.labels[name] for name in OF_THE_CLIENT if name in sample.labels}
        client.series.append(sample)
    return found


def total_of(series: Iterable[ScrapedSample], name: str) -> float | None:
    """Return the sum of a metric over its labels; None where the client does not push it."""
    values = [sample.value for sample in series if sample.name == name]
    return sum(values) if values else None


def is_counter(name: str) -> bool:
    """Return whether a metric only grows, so that people want its growth."""
    return name.endswith(_TOTAL)


@dataclass(slots=True)
class FigureReader:
    """Reads one metric of a client again and again: the growth per second of a counter, or the value."""

    read: Callable[[], str]
    instance_id: str
    name: str
    _before: tuple[float, float] | None = None

    def __call__(self) -> Mapping[str, float | None]:
        client = clients_of(self.read()).get(self.instance_id)
        value = None if client is None else total_of(client.series, self.name)
        if value is None or not is_counter(self.name):
            return {self.name: value}
        before, self._before = self._before, (time.monotonic(), value)
        growth = (
            None if before is None else max(0.0, value - before[1]) / max(self._before[0] - before[0], 1e-3)
        )
        return {self.name: growth}


# Records per second from the end offsets of all partitions, for a cluster without a metrics listener.

MOST_PARTITIONS: Final = 5_000
"""Partitions whose end offsets are asked for; the records of further ones are not counted."""


def end_offsets(cluster: Cluster) -> dict[tuple[str, int], int]:
    """Return the log end offset of each partition. Raises ControlError or an error of kafka-python."""
    return cluster.offsets(led_partitions(cluster, None, None)[:MOST_PARTITIONS], OffsetSpec.LATEST)


def new_records(before: dict[tuple[str, int], int], after: dict[tuple[str, int], int]) -> int:
    """Return the offsets that partitions gained; a new partition counts with its next reading."""
    return sum(max(0, end - before[place]) for place, end in after.items() if place in before)


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


# Figures that are sampled only while somebody looks, such as the lag of one group.

KEPT_S: Final = 15 * 60.0
"""Time after the last look in which a figure is still sampled, so that a reload of the page has its history.
"""
MOST_WATCHES: Final = 30
"""Figures that are watched at a time; the one that nobody has looked at for longest ends when another begins.
"""

MOST_WATCHED: Final = 400
"""Series of one watched figure."""

Read = Callable[[], Mapping[str, float | None]]


@dataclass(slots=True)
class _Watch:
    read: Read
    history: History = field(default_factory=lambda: History(MOST_WATCHED))
    seen: float = field(default_factory=time.monotonic)


class Watches:
    """The figures that pages watch, by a key of the page and the person. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: OrderedDict[str, _Watch] = OrderedDict()

    def history(self, key: str, read: Read, *, keeps_reader: bool = False) -> History:
        """Return the history of what `read` returns, sampled from now on. `keeps_reader`: the first look's
        function goes on, because it remembers what it has read.
        """
        with self._lock:
            watch = self._watches.setdefault(key, _Watch(read))
            if not keeps_reader:
                watch.read = read
            watch.seen = time.monotonic()
            self._watches.move_to_end(key)
            while len(self._watches) > MOST_WATCHES:
                self._watches.popitem(last=False)
            return watch.history

    def due(self) -> list[tuple[Read, History]]:
        """Return what to sample; forget what nobody has looked at for long."""
        before = time.monotonic() - KEPT_S
        with self._lock:
            for key in [key for key, watch in self._watches.items() if watch.seen < before]:
                del self._watches[key]
            return [(watch.read, watch.history) for watch in self._watches.values()]


# The thread that reads the figures for the charts, again and again.

EVERY_S: Final = 2.0
LEADERS_EVERY: Final = 5
IDLE_EVERY: Final = 20
"""A round costs at most one part in so many of the time: after a slow round the pause is longer."""
FIRST_ROUNDS: Final = 2
"""Rounds after which no longer pause follows: they open connections, and a chart begins with the second."""


class Sampler:
    """Reads figures every two seconds, from the metrics listener, or else from the end offsets. It asks as
    the login of --command-config; without it a cluster with logins has no figures.
    """

    def __init__(
        self,
        listener: MetricsClient | None,
        connections: Connections,
        cluster_login: ClusterLogin,
        security: ClientSecurity,
    ) -> None:
        self.history = History()
        self.watches = Watches()
        self.leader_changes = LeaderChanges()
        self.error: str | None = None
        self._listener = listener
        self._connections = connections
        self._cluster_login = cluster_login
        self._security = security
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._before: Reading | None = None
        self._ends: tuple[float, dict[tuple[str, int], int]] | None = None
        self._rounds = 0

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="console-sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the round that runs."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=10.0)

    def _run(self) -> None:
        while not self._stopping.is_set():
            begin = time.monotonic()
            self.sample()
            self._stopping.wait(pause_s(time.monotonic() - begin, self._rounds))

    def sample(self) -> None:
        now_ms = time.time_ns() // 1_000_000
        try:
            found = self._figures()
            self.error = None
        except ControlError as error:
            self.error = str(error)
            found = {}
        self.history.add(now_ms, {Key(name): value for name, value in found.items()})
        if self._rounds % LEADERS_EVERY == 0:
            self._see_leaders(now_ms)
        self._rounds += 1
        for read, history in self.watches.due():
            try:
                values = dict(read())
            except ControlError:
                values = {}
            history.add(now_ms, {Key(name): value for name, value in values.items()})

    def _figures(self) -> dict[str, float | None]:
        if self._listener is None:
            return self._figures_from_offsets()
        reading = Reading.of(time.monotonic(), samples(self._listener.metrics()))
        before, self._before = self._before, reading
        return {} if before is None else figures(before, reading)

    def _see_leaders(self, now_ms: int) -> None:
        """Look at the leaders if the console may ask; else only people who are logged in look."""
        try:
            if not self._needs_login():
                with self._connections.lend(self._security) as cluster:
                    self.leader_changes.see(now_ms, leaders_of(cluster))
        except ControlError:
            pass  # the page of the cluster shows why it does not answer

    def _needs_login(self) -> bool:
        return not self._security.mechanism and bool(self._cluster_login.mechanisms())

    def _figures_from_offsets(self) -> dict[str, float | None]:
        if self._needs_login():
            raise ControlError(
                "the charts need --metrics, or a login of the console's own by --command-config, because the "
                "cluster needs a login"
            )
        with self._connections.lend(self._security) as cluster:
            ends = end_offsets(cluster)
        now = time.monotonic()
        before, self._ends = self._ends, (now, ends)
        if before is None:
            return {}
        return {RECORDS: new_records(before[1], ends) / max(now - before[0], 1e-3)}


def pause_s(taken_s: float, rounds: int) -> float:
    """Return how long to pause after a round that took `taken_s`; `rounds` counts the rounds so far."""
    share_s = taken_s * IDLE_EVERY if rounds > FIRST_ROUNDS else 0.0
    return max(EVERY_S - taken_s, share_s, 0.1)
