"""All partitions this node leads, by topic name and by topic id."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from gateway.runtime.partition import Partition


class TopicPartitions:
    """The partitions of one topic, dense by index."""

    __slots__ = ("name", "partitions", "topic_id", "topic_id_bytes")

    def __init__(self, name: str, topic_id: uuid.UUID) -> None:
        self.name = name
        self.topic_id = topic_id
        self.topic_id_bytes = topic_id.bytes
        self.partitions: list[Partition] = []

    def get(self, index: int) -> Partition | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


class Partitions:
    """The registry that handlers look partitions up in."""

    def __init__(self) -> None:
        self.by_name: dict[str, TopicPartitions] = {}
        self.by_id: dict[uuid.UUID, TopicPartitions] = {}
        self.by_key: dict[str | bytes, TopicPartitions] = {}
        """By name and by the 16 bytes of the id, as requests name topics."""

    def get(self, topic: str, index: int) -> Partition | None:
        found = self.by_name.get(topic)
        return None if found is None else found.get(index)

    def add(self, partition: Partition) -> None:
        """Add the next partition of its topic. Raises ValueError when an index is left out."""
        topic = self.by_name.get(partition.topic)
        if topic is None:
            topic = TopicPartitions(partition.topic, partition.topic_id)
            self.by_name[topic.name] = topic
            self.by_id[topic.topic_id] = topic
            self.by_key[topic.name] = self.by_key[topic.topic_id_bytes] = topic
        if partition.index != len(topic.partitions):
            raise ValueError(f"{partition.topic}-{partition.index} added out of order")
        topic.partitions.append(partition)

    def remove_topic(self, name: str) -> TopicPartitions | None:
        topic = self.by_name.pop(name, None)
        if topic is None:
            return None
        self.by_id.pop(topic.topic_id, None)
        self.by_key.pop(topic.name, None)
        self.by_key.pop(topic.topic_id_bytes, None)
        for partition in topic.partitions:
            partition.close()
        return topic

    def __iter__(self) -> Iterator[Partition]:
        for topic in self.by_name.values():
            yield from topic.partitions

    def __len__(self) -> int:
        return sum(len(topic.partitions) for topic in self.by_name.values())
