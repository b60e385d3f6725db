"""The state that the metadata log describes: topics, configurations, producer-id blocks.

The image changes only by `replay`, live and at start alike. It changes in place and every look-up is O(1),
so that a hundred thousand partitions cost nothing per change.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from gateway.metadata.topic_names import unify_collision_characters

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
GROUP_RESOURCE: Final = 32
#: Not in the image: nothing of them is stored.
BROKER_LOGGER_RESOURCE: Final = 8
CLIENT_METRICS_RESOURCE: Final = 16
#: The resource name of the configuration that holds for all brokers.
ALL_BROKERS: Final = ""

_NOTHING: Mapping[str, str] = {}
_NO_RESOURCES: Mapping[str, Mapping[str, str]] = {}


@dataclass(slots=True)
class PartitionImage:
    """Where a partition is and who leads it."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int


@dataclass(slots=True)
class TopicImage:
    """A topic; `partitions` by partition index, which are dense from 0."""

    name: str
    topic_id: uuid.UUID
    partitions: dict[int, PartitionImage] = field(default_factory=dict)


class MetadataImage:
    """All of the metadata at one point of the log."""

    def __init__(self) -> None:
        self.topics_by_name: dict[str, TopicImage] = {}
        self.topics_by_id: dict[uuid.UUID, TopicImage] = {}
        self.partition_count = 0
        self.producer_id_blocks: list[ProducerIdsRecord] = []
        self.next_producer_id = 0
        self.removed_topic_ids: set[uuid.UUID] | None = set()
        """Of the topics that are gone; None when nobody asks for it any more."""
        self._configs: dict[int, dict[str, dict[str, str]]] = {}
        self._unified_names: dict[str, set[str]] = {}

    def configs(self, resource_type: int, resource_name: str) -> Mapping[str, str]:
        """The values set on a resource, by name; empty when none is. Not to be changed by the caller."""
        return self._configs.get(resource_type, _NO_RESOURCES).get(resource_name, _NOTHING)

    def configured(self, resource_type: int) -> Collection[str]:
        """The names of the resources of a type on which a value is set."""
        return self._configs.get(resource_type, _NO_RESOURCES).keys()

    def topic_configs(self, topic: str) -> Mapping[str, str]:
        """The values set on a topic."""
        return self.configs(TOPIC_RESOURCE, topic)

    def colliding_topic(self, name: str) -> str | None:
        """An existing topic whose name differs only in '.' and '_', or is the same; None when there is none."""
        names = self._unified_names.get(unify_collision_characters(name))
        return min(names) if names else None

    def replay(self, record: MetadataRecord) -> None:
        """Fold one record in. A record about a topic that is gone changes nothing."""
        if isinstance(record, PartitionRecord):
            self._replay_partition(record)
        elif isinstance(record, TopicRecord):
            self._replay_topic(record)
        elif isinstance(record, ConfigRecord):
            self._replay_config(record)
        elif isinstance(record, RemoveTopicRecord):
            self._replay_removal(record)
        else:
            self._replay_producer_ids(record)

    def _replay_topic(self, record: TopicRecord) -> None:
        topic = TopicImage(record.name, record.topic_id)
        self.topics_by_name[record.name] = topic
        self.topics_by_id[record.topic_id] = topic
        self._unified_names.setdefault(unify_collision_characters(record.name), set()).add(record.name)

    def _replay_partition(self, record: PartitionRecord) -> None:
        topic = self.topics_by_id.get(record.topic_id)
        if topic is None:
            return
        if record.partition_id not in topic.partitions:
            self.partition_count += 1
        topic.partitions[record.partition_id] = PartitionImage(
            record.replicas, record.isr, record.leader, record.leader_epoch, record.partition_epoch
        )

    def _replay_removal(self, record: RemoveTopicRecord) -> None:
        topic = self.topics_by_id.pop(record.topic_id, None)
        if topic is None:
            return
        if self.removed_topic_ids is not None:
            self.removed_topic_ids.add(record.topic_id)
        del self.topics_by_name[topic.name]
        self.partition_count -= len(topic.partitions)
        self._configs.get(TOPIC_RESOURCE, {}).pop(topic.name, None)
        unified = unify_collision_characters(topic.name)
        names = self._unified_names[unified]
        names.discard(topic.name)
        if not names:
            del self._unified_names[unified]

    def _replay_config(self, record: ConfigRecord) -> None:
        resources = self._configs.setdefault(record.resource_type, {})
        if record.value is not None:
            resources.setdefault(record.resource_name, {})[record.name] = record.value
            return
        values = resources.get(record.resource_name)
        if values is not None:
            values.pop(record.name, None)
            if not values:
                del resources[record.resource_name]

    def _replay_producer_ids(self, record: ProducerIdsRecord) -> None:
        if record.first_producer_id >= 0:
            self.producer_id_blocks.append(record)
        self.next_producer_id = max(self.next_producer_id, record.next_producer_id)
