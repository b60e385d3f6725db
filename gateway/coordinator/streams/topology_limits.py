"""Limits of what a topology may hold, so that neither its heartbeats nor its records grow without bound."""

from __future__ import annotations

from itertools import chain
from typing import Final

from kio.schema.errors import ErrorCode

from gateway.coordinator.group.consumer_heartbeat import HeartbeatRefused
from gateway.coordinator.streams.topology import Subtopology, Topology

MAX_SUBTOPOLOGIES: Final = 1_000
"""Subtopologies of a topology; a topology with more is refused."""
MAX_SUBTOPOLOGY_ID_BYTES: Final = 32
"""Longest id of a subtopology: a member's records repeat the id of each subtopology. Kafka Streams numbers them."""
MAX_NAMED_TOPICS: Final = 10_000
"""Topics that all subtopologies list, each as often as it is listed; a topology that lists more is refused."""
MAX_COPARTITIONED: Final = 10_000
"""Copartition groups and the topics that they list, of all subtopologies; a topology with more is refused."""
MAX_TASKS: Final = 10_000
"""Active tasks of a group; a group that would have more gets none."""
MAX_STANDBY_TASKS: Final = 20_000
"""Standby tasks of a group; each task gets fewer where `num.standby.replicas` asks for more."""


def refused(message: str) -> HeartbeatRefused:
    """Return the error for a topology that no topics could fit."""
    return HeartbeatRefused(ErrorCode.streams_invalid_topology, message)


def check_extent(topology: Topology) -> None:
    """Refuse a topology that holds more than the limits. Raises HeartbeatRefused."""
    found = topology.subtopologies
    for what, count, limit in (
        ("has {} subtopologies", len(found), MAX_SUBTOPOLOGIES),
        ("lists {} topics", sum(map(_named_topics, found)), MAX_NAMED_TOPICS),
        ("has {} copartition groups and topics in them", sum(map(_copartitioned, found)), MAX_COPARTITIONED),
    ):
        if count > limit:
            raise refused(f"The topology {what.format(count)}; at most {limit} are allowed.")
    for subtopology in found:
        if len(subtopology.subtopology_id.encode()) > MAX_SUBTOPOLOGY_ID_BYTES:
            raise refused(f"The id of a subtopology can't be longer than {MAX_SUBTOPOLOGY_ID_BYTES} bytes.")


def too_many_tasks(tasks: int) -> str | None:
    """Return why a group can't have so many active tasks; None when it can."""
    if tasks <= MAX_TASKS:
        return None
    return (
        f"The topology has {tasks} tasks; a streams group may have at most {MAX_TASKS}. Give the source topics fewer "
        "partitions, or split the application."
    )


def standby_replicas_within(asked: int, stateful_tasks: int) -> int:
    """Return the number of standby tasks for each stateful task: as many as asked for, or fewer to stay within the limit."""
    return min(asked, MAX_STANDBY_TASKS // stateful_tasks) if stateful_tasks else asked


def _named_topics(subtopology: Subtopology) -> int:
    return (
        len(subtopology.source_topics)
        + len(subtopology.state_changelog_topics)
        + len(subtopology.repartition_sink_topics)
        + len(subtopology.repartition_source_topics)
    )


def _copartitioned(subtopology: Subtopology) -> int:
    groups = subtopology.copartition_groups
    return len(groups) + sum(map(len, chain.from_iterable(groups)))
