"""The node's topics as the group coordinator sees them."""

from __future__ import annotations

import uuid

from gateway.metadata.topic_names import INTERNAL_TOPICS
from gateway.runtime.partitions.registry import Partitions


class RegisteredTopics:
    """The topics of this node, without internal ones, as members of consumer and share groups can be assigned them."""

    def __init__(self, partitions: Partitions) -> None:
        self._topics = partitions.by_name

    def describe(self, name: str) -> tuple[uuid.UUID, int] | None:
        topic = self._topics.get(name)
        return None if topic is None else (topic.topic_id, topic.count)

    def names(self) -> list[str]:
        return [name for name in self._topics if name not in INTERNAL_TOPICS]
