"""How far a group is behind the ends of its partitions. Raises ControlError or an error of kafka-python."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kafka.admin import OffsetSpec
from kio.schema.metadata.v9.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v9.response import MetadataResponse
from kio.schema.types import TopicName

from gateway.admin.groups.remote import committed_offsets, offsets_of
from gateway.admin.remote.cluster import Cluster, ask_broker
from gateway.console.asking.group_coordinators import share_lags

TIMEOUT_S: Final = 10.0
TOTAL: Final = "lag"
"""The name of the series of all topics together; a topic may have the same name, so topics' series begin with `topic:`."""

Place = tuple[str, int]


def series_of(topic: str) -> str:
    """Return the name of the series of a topic's lag."""
    return f"topic:{topic}"


def ends_of(cluster: Cluster, places: Iterable[Place]) -> dict[Place, int]:
    """Return the high watermark of each partition that has a leader."""
    wanted = set(places)
    if not wanted:
        return {}
    asked = MetadataRequest(
        topics=tuple(
            MetadataRequestTopic(name=TopicName(topic)) for topic in sorted({topic for topic, _ in wanted})
        ),
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    led = {
        (str(topic.name), int(row.partition_index))
        for topic in ask_broker(cluster.reached, asked, MetadataResponse, timeout_s=TIMEOUT_S).topics
        for row in topic.partitions
        if not row.error_code.value and row.leader_id >= 0
    }
    return offsets_of(cluster, sorted(wanted & led), OffsetSpec.LATEST)


def lag_by_topic(cluster: Cluster, group: str, *, is_share: bool) -> dict[str, float | None]:
    """Return the lag of a group, and of each of its topics, by the names of their series."""
    if is_share:
        lags = {place: lag or 0 for place, lag in share_lags(cluster, [group]).get(group, {}).items()}
    else:
        committed = committed_offsets(cluster, [group]).get(group, {})
        ends = ends_of(cluster, committed)
        lags = {place: max(0, ends[place] - row.offset) for place, row in committed.items() if place in ends}
    found: dict[str, float | None] = {TOTAL: float(sum(lags.values()))}
    for (topic, _), lag in lags.items():
        found[series_of(topic)] = (found.get(series_of(topic)) or 0.0) + lag
    return found
