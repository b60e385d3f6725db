"""The topics of a cluster with their sizes, for lists. Raises ControlError or an error of kafka-python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kio.schema.describe_log_dirs.v4.request import DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v4.response import DescribeLogDirsResponse

from gateway.admin.remote.cluster import Cluster, ask_broker, metadata
from gateway.admin.request import ControlError
from gateway.console.asking.cache import Cache

TIMEOUT_S: Final = 10.0
KEPT_S: Final = 5.0
MOST_BROKERS: Final = 20
"""Brokers that are asked for sizes; partitions that others lead have no size."""

Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class TopicLine:
    """A topic in a list. `size_bytes` is that of the leaders' copies; None where no leader tells it."""

    name: str
    partitions: int
    replication_factor: int
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


topic_lists: Final[Cache[list[TopicLine]]] = Cache(KEPT_S)


def topic_lines(cluster: Cluster) -> list[TopicLine]:
    """Return all topics, by name; a list that is a few seconds old counts."""
    return topic_lists.get(cluster.reached.security, cluster.addresses, lambda: _asked(cluster))


def _asked(cluster: Cluster) -> list[TopicLine]:
    found = metadata(cluster.reached, TIMEOUT_S)
    sizes: dict[Place, dict[int, int]] = {}
    for broker in found.brokers[:MOST_BROKERS]:
        for place, size in sizes_at(cluster, broker.host, int(broker.port)).items():
            sizes.setdefault(place, {})[int(broker.node_id)] = size
    lines = [_line(topic, sizes) for topic in found.topics if topic.name is not None]
    return sorted(lines, key=lambda line: line.name)


def sizes_at(cluster: Cluster, host: str, port: int) -> dict[Place, int]:
    """Return the bytes of each partition that a broker holds; nothing when the broker does not answer or refuses."""
    try:
        answer = ask_broker(
            cluster.reached.other(host, port),
            DescribeLogDirsRequest(topics=None),
            DescribeLogDirsResponse,
            timeout_s=TIMEOUT_S,
        )
    except ControlError:
        return {}
    return {
        (str(topic.name), int(row.partition_index)): int(row.partition_size)
        for directory in answer.results
        for topic in directory.topics
        for row in topic.partitions
        if not row.is_future_key
    }


def _line(topic: Any, sizes: Mapping[Place, Mapping[int, int]]) -> TopicLine:
    known = [
        size
        for row in topic.partitions
        if (size := sizes.get((topic.name, int(row.partition_index)), {}).get(int(row.leader_id))) is not None
    ]
    return TopicLine(
        name=str(topic.name),
        partitions=len(topic.partitions),
        replication_factor=max((len(row.replica_nodes) for row in topic.partitions), default=0),
        is_internal=topic.is_internal,
        size_bytes=sum(known) if known else None,
        offline=sum(row.leader_id < 0 for row in topic.partitions),
        under_replicated=sum(
            row.leader_id >= 0 and len(row.isr_nodes) < len(row.replica_nodes) for row in topic.partitions
        ),
    )
