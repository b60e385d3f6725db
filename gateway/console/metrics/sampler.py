"""Samples the cluster and the gateway again and again, whether or not somebody looks."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from seqgate.gateway.admin.groups.describing import EMPTY_STATES
from seqgate.gateway.admin.producers import ListProducersRequest, ProducerPage, list_producers_remote
from seqgate.gateway.admin.remote.broker import metadata
from seqgate.gateway.admin.remote.client_security import ClientSecurity
from seqgate.gateway.admin.remote.cluster import Cluster
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.console.asking.connections import ClusterLogin, Connections, leaders_of
from seqgate.gateway.console.asking.groups import ends_of, group_lines, lags_by_topic, progress_of
from seqgate.gateway.console.asking.topics import lines_of, log_dirs
from seqgate.gateway.console.metrics.gateways import GatewayFigures, GatewayMetrics, Summary
from seqgate.gateway.console.metrics.history import (
    DISK_FREE,
    DISK_USED,
    LAG,
    TOPIC_LAG,
    TOPIC_RECORDS,
    TOPIC_SIZE,
    History,
    HistoryFile,
    Key,
    key_of,
)
from seqgate.gateway.console.metrics.listener import MetricsClient
from seqgate.gateway.console.metrics.producer_events import ProducerEvents
from seqgate.gateway.console.metrics.rates import (
    MOST_PARTITIONS,
    RECORDS,
    LeaderChanges,
    end_offsets,
    largest,
    new_records,
)
from seqgate.gateway.coordinator.places import TopicPartition

logger = logging.getLogger(__name__)

Values = dict[Key, float | None]

# What each round asks. A round has at most one request for the metrics and one for producers to each gateway,
# or to each listener, and over the Kafka protocol a few to each broker; pause_s keeps all of it below a
# twentieth of the time.

EVERY_S: Final = 5.0
FIRST_EVERY_S: Final = 1.0
"""Time between the first rounds: they open connections, and a chart begins with the second."""
FIRST_ROUNDS: Final = 3
"""Rounds after which no longer pause follows."""
IDLE_EVERY: Final = 20
"""A round costs at most one part in so many of the time: after a slow round the pause is longer."""
LEADERS_EVERY: Final = 3
DISKS_EVERY: Final = 12
"""Rounds between two questions about disks and the sizes of topics."""
MOST_GROUPS: Final = 200
"""Groups whose lag is sampled, those with members first; others only while somebody looks at them."""
MOST_GROUP_TOPICS: Final = 20
"""Topics of a group that have a lag of their own: those with the most."""
MOST_PRODUCERS: Final = 1_000
"""Producers that are sampled, by topic, partition and id; others while somebody looks at them."""
MOST_ASKED_PARTITIONS: Final = 500
"""Partitions whose producers are asked for over the Kafka protocol; in a larger cluster only --metrics tells
them, or a look at one topic.
"""
TIMEOUT_S: Final = 5.0


def _clock_ms() -> int:
    return time.time_ns() // 1_000_000


def pause_s(taken_s: float, rounds: int) -> float:
    """Return how long to pause after a round that took `taken_s`; `rounds` counts the rounds so far."""
    if rounds <= FIRST_ROUNDS:
        return max(FIRST_EVERY_S - taken_s, 0.1)
    return max(EVERY_S - taken_s, taken_s * IDLE_EVERY)


class Sampler:
    """Samples what the gateways, their metrics listeners and the cluster tell into a history. It asks the
    cluster as the login of --command-config; without it a cluster with logins is sampled only while people
    look, as they.
    """

    def __init__(
        self,
        listeners: Sequence[MetricsClient],
        connections: Connections,
        cluster_login: ClusterLogin,
        security: ClientSecurity,
        history_path: Path | None = None,
        now_ms: Callable[[], int] = _clock_ms,
    ) -> None:
        self.history = History()
        self.producers = ProducerEvents()
        self.file = None if history_path is None else HistoryFile(history_path, self.history, self.producers)
        self.watches = Watches()
        self.leader_changes = LeaderChanges()
        self.error: str | None = None
        self.asks_cluster = False
        """Whether the console may ask the cluster by itself."""
        self.cluster_id: str | None = None
        self.gateways = Summary()
        """The newest figures of each gateway; no rows where none tells any."""
        self._listeners = listeners
        self._metrics = GatewayMetrics(connections.addresses, security, listeners, connections.memory)
        self._figures = GatewayFigures()
        self._connections = connections
        self._cluster_login = cluster_login
        self._security = security
        self._now_ms = now_ms
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._sampling = threading.Lock()
        self._ends: tuple[int, Mapping[TopicPartition, int]] | None = None
        self._disks: Values = {}
        self._sees_producers = False
        self._rounds = 0

    def learn_cluster(self, cluster_id: str) -> None:
        """Take the id of the cluster from a page: the sampler may not ask a cluster with logins."""
        self.cluster_id = cluster_id

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="console-sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the round that runs."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=10.0)
        self._metrics.close()
        if self.file is not None:
            self.file.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            begin = time.monotonic()
            try:
                self.sample()
            except Exception:
                logger.exception("a round of samples failed")  # one wrong answer must not end the charts
            # a round that waits for one of several gateways costs the others nothing
            taken_s = 0.0 if self.gateways.is_partial else time.monotonic() - begin
            self._stopping.wait(pause_s(taken_s, self._rounds))

    def sample(self) -> None:
        with self._sampling:
            now_ms = self._now_ms()
            values: Values = {}
            error: str | None = None
            for ask in (self._ask_gateways, self._check_cluster, self._see_producers, self._ask_cluster):
                try:
                    values |= ask(now_ms)
                except ControlError as failed:
                    error = error or str(failed)
            self.error = error or (self.gateways.trouble if self._listeners else None)
            written = {
                key.labels[1]: now_ms
                for key, value in values.items()
                if key.metric == TOPIC_RECORDS and value
            }
            self.history.add(now_ms, values)
            for topic in written:
                self.history.wrote(topic, now_ms)
            if self.file is not None:
                self.file.append(now_ms, values, written)
            self._rounds += 1
            self._look_for_people(now_ms)

    def _look_for_people(self, now_ms: int) -> None:
        for read, history in self.watches.due():
            try:
                values = dict(read())
            except ControlError:
                values = {}
            history.add(now_ms, {Key(name): value for name, value in values.items()})

    def _ask_gateways(self, now_ms: int) -> Values:
        """Return the sums of all gateways' metrics. Raises ControlError."""
        answers, note = self._metrics.ask(asks_cluster=not self._needs_login())
        self.gateways, found = self._figures.see(now_ms, answers, note)
        self.cluster_id = self.gateways.cluster_id or self.cluster_id
        return found

    def _check_cluster(self, _: int) -> Values:
        """Let the history be that of this cluster. The first round reads the file, so that no page shows the
        samples of another cluster.
        """
        if self.file is None:
            if self.history.belongs_to(self.cluster_id):
                self.producers.begin()
        elif self._rounds:
            self.file.belongs_to(self.cluster_id)
        else:
            self.file.open(self.cluster_id)
        return {}

    def _see_producers(self, now_ms: int) -> Values:
        """Note what the producers of all gateways wrote, or of those behind --metrics."""
        pages: list[ProducerPage] = []
        asked = 0
        with suppress(ControlError):
            if not self._needs_login():
                rows = self._metrics.producers(MOST_PRODUCERS).rows
                asked = len(rows)
                pages = [row.answer for row in rows if row.answer is not None]
        with suppress(ControlError):
            if not pages:
                request = ListProducersRequest(limit=MOST_PRODUCERS)
                pages = [listener.view(request) for listener in self._listeners]
        self._sees_producers = bool(pages)
        if pages:
            producers = [row for page in pages for row in page.producers]
            is_all = all(page.complete for page in pages)
            # those of a gateway that is silent for a while are no new ones when it answers again
            self.producers.see(now_ms, producers, is_all=None if is_all and len(pages) < asked else is_all)
        return {}

    def _ask_cluster(self, now_ms: int) -> Values:
        self.asks_cluster = not self._needs_login()
        if not self.asks_cluster:
            if not self._listeners:
                raise ControlError(
                    "the charts need --metrics, or a login of the console's own by --command-config, because "
                    "the cluster needs a login"
                )
            return {}
        with self._connections.lend(self._security) as cluster:
            ends = end_offsets(cluster)
        found = self._records(now_ms, ends)
        with suppress(ControlError), self._connections.lend(self._security) as cluster:
            found |= lags(cluster, ends)
        if self._rounds % DISKS_EVERY == 0:
            self._disks = {}
            with suppress(ControlError), self._connections.lend(self._security) as cluster:
                self._disks = disks(cluster)
        if self._rounds % LEADERS_EVERY == 0:
            with suppress(ControlError), self._connections.lend(self._security) as cluster:
                self.leader_changes.see(now_ms, leaders_of(cluster))
        if not self._sees_producers and len(ends) <= MOST_ASKED_PARTITIONS:
            with suppress(ControlError), self._connections.lend(self._security) as cluster:
                self.producers.see(
                    now_ms, list_producers_remote(cluster, ListProducersRequest()).producers, is_all=True
                )
        return found | self._disks

    def _needs_login(self) -> bool:
        return not self._security.mechanism and bool(self._cluster_login.mechanisms())

    def _records(self, now_ms: int, ends: Mapping[TopicPartition, int]) -> Values:
        before, self._ends = self._ends, (now_ms, ends)
        if before is None or before[0] >= now_ms:
            return {}
        passed_s = (now_ms - before[0]) / 1_000
        gained = new_records(before[1], ends)
        found: Values = {}
        if not self.gateways.is_partial and RECORDS not in self.gateways.values:  # nobody told any
            found[Key(RECORDS)] = sum(gained.values()) / passed_s
        stored: Counter[str] = Counter()
        for (topic, _), end in ends.items():
            stored[topic] += end
        for topic in largest(stored):
            if topic in gained:
                found[key_of(TOPIC_RECORDS, {"topic": topic})] = gained[topic] / passed_s
        return found


def lags(cluster: Cluster, ends: Mapping[TopicPartition, int]) -> Values:
    """Return the lag of each group, and of its topics. Raises ControlError."""
    lines = sorted(group_lines(cluster), key=lambda line: (line.state in EMPTY_STATES, line.group))[
        :MOST_GROUPS
    ]
    read = progress_of(cluster, lines)
    places = {place for each in read.values() for place in (*each.committed, *each.delivered)}
    if len(ends) >= MOST_PARTITIONS:
        ends = {**ends, **ends_of(cluster, places - ends.keys())}
    found: Values = {}
    for group, progress in read.items():
        by_topic = lags_by_topic(progress, ends)
        found[key_of(LAG, {"group": group})] = by_topic.total()
        for topic, lag in by_topic.most_common(MOST_GROUP_TOPICS):
            found[key_of(TOPIC_LAG, {"group": group, "topic": topic})] = lag
    return found


def disks(cluster: Cluster) -> Values:
    """Return the bytes used and free at brokers, and of topics at their leaders. Raises ControlError."""
    known = metadata(cluster.reached, TIMEOUT_S)
    told = log_dirs(cluster, known, TIMEOUT_S)
    found: Values = {}
    for node_id, answer in told.items():
        directories = [directory for directory in answer.results if not directory.error_code]
        rows = [row for directory in directories for topic in directory.topics for row in topic.partitions]
        labels = {"broker": str(node_id)}
        if directories:
            found[key_of(DISK_USED, labels)] = sum(int(row.partition_size) for row in rows)
        free = [int(getattr(directory, "usable_bytes", -1)) for directory in directories]
        if directories and min(free) >= 0:
            found[key_of(DISK_FREE, labels)] = sum(free)
    sizes = {line.name: line.size_bytes for line in lines_of(known, told) if line.size_bytes is not None}
    return found | {key_of(TOPIC_SIZE, {"topic": topic}): size for topic, size in largest(sizes).items()}


# Figures that are sampled only while somebody looks, such as the lag of one group.

KEPT_S: Final = 15 * 60.0
"""Time after the last look in which a figure is still sampled, for a reload of the page."""
MOST_WATCHES: Final = 30
"""Figures that are watched at a time; the one whose last look is the oldest ends when another begins."""
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
