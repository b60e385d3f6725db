"""Removed topics whose directories a worker may still use. No new topic gets the name before all left.

A partition's directory has the name of its topic, and a worker that learns late of the deletion works by that
name: it appends, begins segments, and renames the directory. So the name is free only when each worker that
led partitions of the topic has let their logs go and taken their directories away, or is dead.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from seqgate.gateway.metadata.image import TopicImage


class LeftDirectory(NamedTuple):
    """The directory of a partition whose worker died before it could take the directory away."""

    topic: str
    partition: int
    topic_id: uuid.UUID


@dataclass(slots=True)
class _Leaving:
    topic_id: uuid.UUID
    partitions: dict[int, list[int]]
    """The partitions of each worker, by its node id."""


class LeavingTopics:
    def __init__(self) -> None:
        self._topics: dict[str, _Leaving] = {}

    def __len__(self) -> int:
        return len(self._topics)

    def removed(self, topic: TopicImage) -> None:
        """Note a topic that was removed now: its leaders must leave it."""
        partitions: dict[int, list[int]] = defaultdict(list)
        for index, partition in topic.partitions.items():
            partitions[partition.leader].append(index)
        if partitions:
            self._topics[topic.name] = _Leaving(topic.topic_id, dict(partitions))

    def left(self, node_id: int, topic_id: uuid.UUID) -> None:
        for name, topic in list(self._topics.items()):
            if topic.topic_id == topic_id:
                self._leave(name, node_id)

    def left_by_the_dead(self, alive: Iterable[int]) -> list[LeftDirectory]:
        """Forget the workers that are not alive; return the directories that nobody else takes away."""
        living, found = frozenset(alive), []
        for name, topic in list(self._topics.items()):
            for node_id in topic.partitions.keys() - living:
                found += [LeftDirectory(name, index, topic.topic_id) for index in topic.partitions[node_id]]
                self._leave(name, node_id)
        return found

    def _leave(self, name: str, node_id: int) -> None:
        topic = self._topics[name]
        topic.partitions.pop(node_id, None)
        if not topic.partitions:
            del self._topics[name]

    def users(self, names: Iterable[str]) -> dict[str, list[int]]:
        """Return which workers still use directories of removed topics with these names, by name."""
        return {name: sorted(self._topics[name].partitions) for name in names if name in self._topics}
