"""Partitions by topic id, as group members are assigned them, and by topic name, as offsets are committed."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

Place = tuple[uuid.UUID, int]
"""A partition by topic id and index."""

TopicPartition = tuple[str, int]
"""A partition by topic name and index."""


def by_topic(places: Iterable[Place]) -> dict[uuid.UUID, list[int]]:
    """Return the partition indexes of each topic, in order."""
    topics: dict[uuid.UUID, list[int]] = {}
    for topic_id, partition in sorted(places):
        topics.setdefault(topic_id, []).append(partition)
    return topics
