"""The state that the metadata log describes: topics, configurations, producer-id blocks, access control
entries, client quotas, SCRAM users, delegation tokens, brokers.

Only `replay` changes the image, live and at the start. It changes in place and every look-up is O(1), so that
a change costs the same with a hundred thousand partitions.

Turns an image of the metadata back into records: their replay gives the same image.

An image needs at most as many records as the log had that made it, because each entry of the image stands for
at least one of them.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from seqgate.gateway.metadata.acls import StoredAcls, record_of
from seqgate.gateway.metadata.brokers import CLUSTER_VERSION_FEATURE, StoredBrokers
from seqgate.gateway.metadata.java_hash_map import in_java_hash_map_order, string_hash
from seqgate.gateway.metadata.records import (
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
    SnapshotRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from seqgate.gateway.metadata.tokens import StoredTokens
from seqgate.gateway.metadata.users import StoredUsers, record_of_credential

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


class TopicImage(msgspec.Struct):
    """A topic; `partitions` has the newest record of every index from 0 on."""

    name: str
    topic_id: uuid.UUID
    partitions: dict[int, PartitionRecord] = msgspec.field(default_factory=dict)


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
        """Return the values set on a resource, by name. The caller must not change them."""
        return self._configs.get(resource_type, _NO_RESOURCES).get(resource_name, _NOTHING)

    def configured(self, resource_type: int) -> Collection[str]:
        """Return the names of the resources of a type that have values set."""
        return self._configs.get(resource_type, _NO_RESOURCES).keys()

    @property
    def resource_types(self) -> Collection[int]:
        """The types of the resources that have, or had, values set."""
        return self._configs.keys()

    def partition(self, topic_id: uuid.UUID, index: int) -> PartitionRecord | None:
        """Return the newest record of a partition; None for an unknown one."""
        topic = self.topics_by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(index)

    def partition_named(self, topic_name: str, index: int) -> PartitionRecord | None:
        """Return a partition as `partition` does, by the name of its topic."""
        topic = self.topics_by_name.get(topic_name)
        return None if topic is None else topic.partitions.get(index)

    def topic_configs(self, topic: str) -> Mapping[str, str]:
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
        elif isinstance(record, SnapshotRecord):
            vars(self).update(vars(MetadataImage()), removed_topic_ids=self.removed_topic_ids)
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
        # All partitions of a topic share its id, which takes a hundred bytes.
        topic.partitions[record.partition_id] = msgspec.structs.replace(record, topic_id=topic.topic_id)

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
        values = self.client_quotas.get(record.entity, {})
        # The other keys move to a new table in the order of the old one, as in Kafka's ClientQuotaDelta.
        kept = [key for key in in_java_hash_map_order(values, string_hash, capacity=1) if key != record.key]
        if kept:
            self.client_quotas[record.entity] = {key: values[key] for key in kept}
        else:
            self.client_quotas.pop(record.entity, None)

    def _replay_producer_ids(self, record: ProducerIdsRecord) -> None:
        if record.first_producer_id >= 0:
            self.producer_id_blocks.append(record)
        self.next_producer_id = max(self.next_producer_id, record.next_producer_id)


# Validates topic names (Kafka's org.apache.kafka.common.internals.Topic).

MAX_NAME_LENGTH: Final = 249
METADATA_TOPIC: Final = "__cluster_metadata"
OFFSETS_TOPIC: Final = "__consumer_offsets"
SHARE_STATE_TOPIC: Final = "__share_group_state"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
#: The topics that clients see marked as internal.
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_STATE_TOPIC})

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def name_complaint(name: str) -> str | None:
    """Return why a topic can't have this name, or None when it can."""
    if not name:
        return "Topic name is invalid: it is empty"
    if name in (".", ".."):
        return f"Topic name is invalid: {name!r} is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return (
            f"Topic name is invalid: it has {len(name)} characters, more than the {MAX_NAME_LENGTH} allowed"
        )
    if not _LEGAL.fullmatch(name):
        return (
            f"Topic name is invalid: {name!r} has other characters than "
            "ASCII letters, digits, '.', '_' and '-'"
        )
    return None


def unify_collision_characters(name: str) -> str:
    """Return the name with every '.' replaced by '_', which metric names can't tell apart."""
    return name.replace(".", "_")


_NO_INCARNATION = uuid.UUID(int=0)


def records_of(image: MetadataImage, sessions: Collection[int] | None = None) -> Iterator[MetadataRecord]:
    """Yield the records of an image, which must not change meanwhile. Of sessions that have ended, only those
    in `sessions` are named; None names all. The ids of deleted topics are left out.
    """
    yield from _brokers(image.brokers, sessions)
    for topic in image.topics_by_name.values():
        yield TopicRecord(topic.name, topic.topic_id)
        yield from topic.partitions.values()
    for resource_type in image.resource_types:
        for name in image.configured(resource_type):
            for key, value in image.configs(resource_type, name).items():
                yield ConfigRecord(resource_type, name, key, value)
    yield from image.producer_id_blocks
    claimed = max((block.next_producer_id for block in image.producer_id_blocks), default=0)
    if image.next_producer_id > claimed:
        yield ProducerIdsRecord(broker_id=-1, broker_epoch=0, next_producer_id=image.next_producer_id)
    for entry_id, entry in image.acls.by_id.items():
        yield record_of(entry_id, entry)
    for user, credentials in image.users.by_name.items():
        for hashing, credential in credentials.items():
            yield record_of_credential(user, hashing, credential)
    yield from image.tokens.by_id.values()
    for entity, quotas in image.client_quotas.items():
        for key, quota in quotas.items():
            yield ClientQuotaRecord(entity, key, quota)


def _brokers(brokers: StoredBrokers, sessions: Collection[int] | None) -> Iterator[MetadataRecord]:
    """Yield the brokers. An ended session shows by a later registration, or the removal, of its node."""
    if brokers.cluster_version:
        yield FeatureLevelRecord(CLUSTER_VERSION_FEATURE, brokers.cluster_version)
    ended: dict[int, list[int]] = {}
    for session, node_id in sorted(brokers.ended.items()):
        known = brokers.by_id.get(node_id)
        is_named = sessions is None or session in sessions
        if is_named and (known is None or known.broker_epoch != session):
            ended.setdefault(node_id, []).append(session)
    for node_id, numbers in ended.items():
        for session in numbers:
            yield RegisterBrokerRecord(node_id, _NO_INCARNATION, session, ())
        if node_id not in brokers.by_id:
            yield UnregisterBrokerRecord(node_id, numbers[-1])
    yield from brokers.by_id.values()
