"""The node's topics as the group coordinator sees them."""

from __future__ import annotations

import uuid

from gateway.runtime.partitions.registry import Partitions


class RegisteredTopics:
    """The topics of this node whose partitions can be assigned to members of consumer and share groups.

    Internal topics are included, because a regular expression may match them. Source: Kafka's
    `GroupMetadataManager.refreshRegularExpressions`.
    """

    def __init__(self, partitions: Partitions) -> None:
        self._topics = partitions.by_name

    def describe(self, name: str) -> tuple[uuid.UUID, int] | None:
        topic = self._topics.get(name)
        return None if topic is None else (topic.topic_id, topic.count)

    def names(self) -> list[str]:
        return list(self._topics)
