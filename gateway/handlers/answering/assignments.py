"""Encodes the assignments of members of consumer and share groups."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from gateway.coordinator.places import Place, by_topic
from gateway.protocol.messages import build
from gateway.runtime.partitions.registry import TopicPartitions

Topics: TypeAlias = Mapping[uuid.UUID, TopicPartitions]


def assignment(module: Any, places: Iterable[Place]) -> Any:
    """Return the assignment for the answer to a heartbeat."""
    topics = tuple(
        build(module.TopicPartitions, topic_id=topic_id, partitions=tuple(partitions))
        for topic_id, partitions in by_topic(places).items()
    )
    return build(module.Assignment, topic_partitions=topics)


def named_assignment(module: Any, places: Iterable[Place], topics: Topics) -> Any:
    """Return the assignment for a description: with topic names, and without topics that no longer exist."""
    found = tuple(
        build(
            module.TopicPartitions,
            topic_id=topic_id,
            topic_name=topics[topic_id].name,
            partitions=tuple(partitions),
        )
        for topic_id, partitions in by_topic(places).items()
        if topic_id in topics
    )
    return build(module.Assignment, topic_partitions=found)
