"""The state that the metadata log describes: topics, configurations, producer-id blocks, access control entries,
client quotas, SCRAM users, delegation tokens, brokers.

Only `replay` changes the image, live and at the start. It changes in place and every look-up is O(1), so that a change
costs the same with a hundred thousand partitions.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.metadata.acls import StoredAcls
from gateway.metadata.brokers import StoredBrokers
from gateway.metadata.records import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from gateway.metadata.tokens import StoredTokens
from gateway.metadata.topic_names import unify_collision_characters
from gateway.metadata.users import StoredUsers

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
GROUP_RESOURCE: Final = 32
CLIENT_METRICS_RESOURCE: Final = 16
#: The resource type that the image lacks: the levels of loggers are not stored.
BROKER_LOGGER_RESOURCE: Final = 8
#: The resource name of the configurations that apply to all brokers.
ALL_BROKERS: Final = ""

_NOTHING: Mapping[str, str] = {}
_NO_RESOURCES: Mapping[str, Mapping[str, str]] = {}


@dataclass(slots=True)
class PartitionImage:
    """The replicas of a partition, its leader and its epochs, and the move that was ordered (see `PartitionRecord`)."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    next_leader: int = -1


@dataclass(slots=True)
class TopicImage:
    """A topic; `partitions` has every index from 0 on."""

    name: str
    topic_id: uuid.UUID
    partitions: dict[int, PartitionImage] = field(default_factory=dict)


class MetadataImage:
    """The whole metadata at one offset of the metadata log."""

    def __init__(self) -> None:
        self.topics_by_name: dict[str, TopicImage] = {}
        self.topics_by_id: dict[uuid.UUID, TopicImage] = {}
        self.partition_count = 0
        self.producer_id_blocks: list[ProducerIdsRecord] = []
        self.next_producer_id = 0
        self.removed_topic_ids: set[uuid.UUID] | None = set()
        """The ids of deleted topics; None once the start no longer needs them."""
        self.acls = StoredAcls()
        self.users = StoredUsers()
        self.tokens = StoredTokens()
        self.brokers = StoredBrokers()
        self.client_quotas: dict[QuotaEntity, dict[str, float]] = {}
        """The quotas of each entity that has any, by their keys."""
        self._configs: dict[int, dict[str, dict[str, str]]] = {}
        self._unified_names: dict[str, set[str]] = {}

    @property
    def tables(self) -> list[dict[Any, Any]]:
        """The tables with entries for topics. They may be rebuilt in place."""
        return [self.topics_by_name, self.topics_by_id, self._unified_names]

    def configs(self, resource_type: int, resource_name: str) -> Mapping[str, str]:
        """Return the values set on a resource, by name; empty when none is set. The caller must not change them."""
        return self._configs.get(resource_type, _NO_RESOURCES).get(resource_name, _NOTHING)

    def configured(self, resource_type: int) -> Collection[str]:
        """Return the names of the resources of a type that have values set."""
        return self._configs.get(resource_type, _NO_RESOURCES).keys()

    @property
    def resource_types(self) -> Collection[int]:
        """The types of the resources that have, or had, values set."""
        return self._configs.keys()

    def topic_configs(self, topic: str) -> Mapping[str, str]:
        """Return the values set on a topic."""
        return self.configs(TOPIC_RESOURCE, topic)

    def colliding_topic(self, name: str) -> str | None:
        """Return an existing topic whose name is the same but for '.' and '_', or None."""
        names = self._unified_names.get(unify_collision_characters(name))
        return min(names) if names else None

    def replay(self, record: MetadataRecord) -> None:
        """Replay one record. A record about a deleted topic changes nothing."""
        if isinstance(record, PartitionRecord):
            self._replay_partition(record)
        elif isinstance(record, TopicRecord):
            self._replay_topic(record)
        elif isinstance(record, ConfigRecord):
            self._replay_config(record)
        elif isinstance(record, RemoveTopicRecord):
            self._replay_removal(record)
        elif isinstance(record, AccessControlEntryRecord | RemoveAccessControlEntryRecord):
            self.acls.replay(record)
        elif isinstance(record, UserScramCredentialRecord | RemoveUserScramCredentialRecord):
            self.users.replay(record)
        elif isinstance(record, DelegationTokenRecord | RemoveDelegationTokenRecord):
            self.tokens.replay(record)
        elif isinstance(record, ClientQuotaRecord):
            self._replay_client_quota(record)
        elif isinstance(
            record,
            RegisterBrokerRecord
            | BrokerRegistrationChangeRecord
            | UnregisterBrokerRecord
            | FeatureLevelRecord,
        ):
            self.brokers.replay(record)
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
            record.replicas,
            record.isr,
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            record.adding_replicas,
            record.removing_replicas,
            record.next_leader,
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

    def _replay_client_quota(self, record: ClientQuotaRecord) -> None:
        if not record.remove:
            self.client_quotas.setdefault(record.entity, {})[record.key] = record.value
            return
        values = self.client_quotas.get(record.entity)
        if values is not None:
            values.pop(record.key, None)
            if not values:
                del self.client_quotas[record.entity]

    def _replay_producer_ids(self, record: ProducerIdsRecord) -> None:
        if record.first_producer_id >= 0:
            self.producer_id_blocks.append(record)
        self.next_producer_id = max(self.next_producer_id, record.next_producer_id)
