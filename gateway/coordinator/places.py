"""Partitions by topic id, as group members are assigned them, and by topic name, as offsets are committed."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Final, Protocol, TypeVar

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


class Topics(Protocol):
    """The topics of the cluster, internal ones too: name to (topic id, number of partitions)."""

    def describe(self, name: str) -> tuple[uuid.UUID, int] | None: ...

    def names(self) -> list[str]: ...


class _NoTopics:
    def describe(self, name: str) -> None:
        """Return None, as for a topic that does not exist."""

    def names(self) -> list[str]:
        return []


NO_TOPICS: Final[Topics] = _NoTopics()


def ids_of(names: Iterable[str], topics: Topics) -> frozenset[uuid.UUID]:
    """Return the ids of those topics that exist."""
    return frozenset(topic[0] for topic in map(topics.describe, names) if topic is not None)


def places_of(partitions: Iterable[TopicPartition], topics: Topics) -> frozenset[Place]:
    """Return the partitions by topic id; partitions of topics that no longer exist are left out."""
    found = ((topics.describe(name), partition) for name, partition in partitions)
    return frozenset((topic[0], partition) for topic, partition in found if topic is not None)
