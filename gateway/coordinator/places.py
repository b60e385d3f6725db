"""Partitions by topic id, as the members of consumer and share groups are assigned them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

Place = tuple[uuid.UUID, int]
"""A partition by topic id and index."""


def by_topic(places: Iterable[Place]) -> dict[uuid.UUID, list[int]]:
    """The partitions of each topic, in order."""
    topics: dict[uuid.UUID, list[int]] = {}
    for topic_id, partition in sorted(places):
        topics.setdefault(topic_id, []).append(partition)
    return topics
