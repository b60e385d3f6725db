"""Topics of a cluster, with leaders, offsets and sizes. Raises ControlError."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from seqgate.gateway.admin.configs import described
from seqgate.gateway.admin.remote.broker import ask_broker, metadata
from seqgate.gateway.admin.remote.cluster import Cluster, no_topic, refusal
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.console.asking.connections import kept
from seqgate.gateway.coordinator.places import TopicPartition
from seqgate.gateway.protocol.frames import topic_id_text

_UNKNOWN_TOPIC: Final = 3
_INVALID_TOPIC: Final = 17


@dataclass(frozen=True, slots=True)
class PartitionPlace:
    """A partition and where it is. `leader` is None where no broker leads it."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicPlaces:
    """A topic, its partitions by number, and the brokers' addresses by node id."""

    name: str
    topic_id: str
    is_internal: bool
    partitions: tuple[PartitionPlace, ...]
    brokers: Mapping[int, tuple[str, int]]

    @property
    def led(self) -> list[int]:
        return [place.partition for place in self.partitions if place.leader is not None]

    @property
    def unled(self) -> list[int]:
        return [place.partition for place in self.partitions if place.leader is None]

    def by_leader(self, partitions: Container[int]) -> dict[tuple[str, int], list[int]]:
        found: dict[tuple[str, int], list[int]] = {}
        for place in self.partitions:
            address = None if place.leader is None else self.brokers.get(place.leader)
            if address is not None and place.partition in partitions:
                found.setdefault(address, []).append(place.partition)
        return found


@dataclass(frozen=True, slots=True)
class PartitionFigures:
    """The offsets and the size of a partition; None where no leader tells them."""

    log_start_offset: int | None
    log_end_offset: int | None
    size_bytes: int | None


def topic_places(cluster: Cluster, name: str) -> TopicPlaces:
    answer = cluster.ask_reached(cluster.metadata_request([name]), timeout_s=TIMEOUT_S)
    (found,) = answer.topics
    code = found.error_code
    if code in {_UNKNOWN_TOPIC, _INVALID_TOPIC}:
        names = [line.name for line in topic_lines(cluster)]
        raise no_topic(name, names, may_be_hidden=bool(cluster.reached.security.mechanism))
    refused = refusal(code)
    if refused is not None:
        raise ControlError(f"topic {name}: {refused}")
    return TopicPlaces(
        name=name,
        topic_id="" if found.topic_id is None else topic_id_text(found.topic_id),
        is_internal=found.is_internal,
        partitions=tuple(
            sorted((_place(row) for row in found.partitions), key=lambda place: place.partition)
        ),
        brokers={int(broker.node_id): (broker.host, int(broker.port)) for broker in answer.brokers},
    )


def _place(row: Any) -> PartitionPlace:
    return PartitionPlace(
        partition=int(row.partition_index),
        leader=int(row.leader_id) if row.leader_id >= 0 and not row.error_code else None,
        leader_epoch=int(row.leader_epoch),
        replicas=tuple(int(node_id) for node_id in row.replica_nodes),
        in_sync=tuple(int(node_id) for node_id in row.isr_nodes),
    )


def partition_figures(
    cluster: Cluster, topic: TopicPlaces, places: Sequence[PartitionPlace]
) -> dict[int, PartitionFigures]:
    led = [place.partition for place in places if place.leader is not None]
    starts, ends = offsets(cluster, topic.name, led)
    sizes = _sizes(cluster, topic, {place.partition for place in places})
    return {
        place.partition: PartitionFigures(
            starts.get(place.partition), ends.get(place.partition), sizes.get(place.partition)
        )
        for place in places
    }


def offsets(cluster: Cluster, topic: str, partitions: Sequence[int]) -> tuple[dict[int, int], dict[int, int]]:
    """Return the log start offsets and the log end offsets; none where a leader does not answer."""
    spans = cluster.spans((topic, partition) for partition in partitions)
    starts = {partition: start for (_, partition), (start, _) in spans.items()}
    return starts, {partition: end for (_, partition), (_, end) in spans.items()}


def known_offsets(
    cluster: Cluster, topic: str, partitions: Sequence[int]
) -> tuple[dict[int, int], dict[int, int]]:
    """Return what `offsets` returns. Raises ControlError where a leader does not answer."""
    starts, ends = offsets(cluster, topic, partitions)
    if partitions and not ends:
        raise ControlError(
            f"the offsets of topic {topic} are not known: the leader of a partition does not answer; try "
            "again, or choose one partition"
        )
    return starts, ends


def _sizes(cluster: Cluster, topic: TopicPlaces, partitions: Container[int]) -> dict[int, int]:
    """Return the bytes of partitions at their leaders; nothing for leaders that don't answer or refuse."""
    found: dict[int, int] = {}
    for leader, led in topic.by_leader(partitions).items():
        with suppress(ControlError):
            request = cluster.request(35, 4, topics=[{"topic": topic.name, "partitions": led}])
            answer = ask_broker(cluster.reached.other(*leader), request, timeout_s=TIMEOUT_S)
            sizes = _sizes_in(answer).items()
            found |= {partition: size for (name, partition), size in sizes if name == topic.name}
    return found


# The topics of a cluster with their sizes, for lists. Raises ControlError.

TIMEOUT_S: Final = 10.0
KEPT_S: Final = 5.0
MOST_COUNTED: Final = 5_000
"""Partitions whose records a list counts; a page of topics with more has no counts."""
MOST_BROKERS: Final = 20
"""Brokers that are asked for sizes; partitions that others lead have no size."""


@dataclass(frozen=True, slots=True)
class TopicLine:
    """A topic in a list. `size_bytes` is that of the leaders' copies; None where no leader tells it."""

    name: str
    partitions: int
    is_internal: bool
    size_bytes: int | None
    offline: int
    under_replicated: int

    @property
    def trouble(self) -> str:
        """The problems of the topic in words; empty for a sound topic."""
        if self.offline:
            return f"{self.offline} offline"
        return f"{self.under_replicated} under-replicated" if self.under_replicated else ""


@kept(KEPT_S)
def topic_lines(cluster: Cluster) -> list[TopicLine]:
    """Return all topics, by name; a list that is a few seconds old counts."""
    found = metadata(cluster.reached, TIMEOUT_S)
    return lines_of(found, log_dirs(cluster, found, TIMEOUT_S))


def log_dirs(cluster: Cluster, found: Any, timeout_s: float) -> dict[int, Any]:
    """Return what the brokers of an answer to Metadata tell of their log directories, by node id; nothing of
    those that don't answer or refuse.
    """
    told: dict[int, Any] = {}
    for broker in found.brokers[:MOST_BROKERS]:
        with suppress(ControlError):
            place = cluster.reached.other(broker.host, int(broker.port))
            answer = ask_broker(place, cluster.request(35, 4, topics=None), timeout_s=timeout_s)
            told[int(broker.node_id)] = answer
    return told


def lines_of(found: Any, told: Mapping[int, Any]) -> list[TopicLine]:
    """Return the topics of an answer to Metadata, by name, with their sizes as `log_dirs` tells them."""
    sizes = {node_id: _sizes_in(answer) for node_id, answer in told.items()}
    lines = [_line(topic, sizes) for topic in found.topics if topic.name is not None]
    return sorted(lines, key=lambda line: line.name)


def _sizes_in(answer: Any) -> dict[TopicPartition, int]:
    return {
        (str(topic.name), int(row.partition_index)): int(row.partition_size)
        for directory in answer.results
        for topic in directory.topics
        for row in topic.partitions
        if not row.is_future_key
    }


def _line(topic: Any, sizes: Mapping[int, Mapping[TopicPartition, int]]) -> TopicLine:
    known = [
        size
        for row in topic.partitions
        if (size := sizes.get(row.leader_id, {}).get((topic.name, row.partition_index))) is not None
    ]
    return TopicLine(
        name=str(topic.name),
        partitions=len(topic.partitions),
        is_internal=topic.is_internal,
        size_bytes=sum(known) if known else None,
        offline=sum(row.leader_id < 0 for row in topic.partitions),
        under_replicated=sum(
            row.leader_id >= 0 and len(row.isr_nodes) < len(row.replica_nodes) for row in topic.partitions
        ),
    )


def record_counts(cluster: Cluster, lines: Sequence[TopicLine]) -> dict[str, int]:
    """Return the log end offsets minus the log start offsets; none where a leader does not answer."""
    places = [
        (line.name, partition) for line in lines if not line.offline for partition in range(line.partitions)
    ]
    if len(places) > MOST_COUNTED:
        return {}
    found: Counter[str] = Counter()
    for (topic, _), (start, end) in cluster.spans(places).items():
        found[topic] += end - start
    return found


# A few settings of all topics, for pages that list the topics with one of them. Raises ControlError.

TOPICS_AT_ONCE: Final = 500
"""Topics in one request; the rest go with the next one."""

Settings = Mapping[str, str]


@kept(KEPT_S)
def topic_settings(cluster: Cluster, names: tuple[str, ...]) -> dict[str, Settings]:
    """Return these settings of each topic but internal ones; Apache Kafka has none of Seqgate's own."""
    found = metadata(cluster.reached, TIMEOUT_S).topics
    topics = sorted(str(topic.name) for topic in found if topic.name is not None and not topic.is_internal)
    return settings_of(cluster, topics, names)


def settings_of(cluster: Cluster, topics: Sequence[str], names: Sequence[str]) -> dict[str, Settings]:
    """Return these settings of some topics; none of a topic that the user may not describe."""
    found: dict[str, Settings] = {topic: {} for topic in topics}
    for first in range(0, len(topics), TOPICS_AT_ONCE):
        some = topics[first : first + TOPICS_AT_ONCE]
        for topic, rows in described(cluster, "topic", some, names).items():
            found[topic] = {row.name: row.value for row in rows if row.value is not None}
    return found
