"""Partitions by topic id, as group members are assigned them, and by topic name, as offsets are committed."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import TypeVar

Place = tuple[uuid.UUID, int]
"""A partition by topic id and index."""

TopicPartition = tuple[str, int]
"""A partition by topic name and index."""


Name = TypeVar("Name", uuid.UUID, str)


def by_topic(places: Iterable[tuple[Name, int]]) -> dict[Name, list[int]]:
    """Return the partition indexes of each topic, or the partitions of each subtopology, both in order."""
    topics: dict[Name, list[int]] = {}
    for topic_id, partition in sorted(places):
        topics.setdefault(topic_id, []).append(partition)
    return topics
