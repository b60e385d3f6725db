"""Turns an image of the metadata back into records: their replay gives the same image.

An image needs at most as many records as the log had that made it, because each entry of the image stands for at least one of them.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator

from gateway.metadata.acls import record_of
from gateway.metadata.brokers import CLUSTER_VERSION_FEATURE, StoredBrokers
from gateway.metadata.image import MetadataImage, TopicImage
from gateway.metadata.records import (
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)

_NO_INCARNATION = uuid.UUID(int=0)


def records_of(image: MetadataImage, sessions: Collection[int] | None = None) -> Iterator[MetadataRecord]:
    """Yield the records of an image, which must not change meanwhile.

    Of sessions that have ended, only those in `sessions` are named; None names all. The ids of deleted topics are left out.
    """
    yield from _brokers(image.brokers, sessions)
    for topic in image.topics_by_name.values():
        yield from _topic(topic)
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
            yield UserScramCredentialRecord(
                user,
                int(hashing),
                credential.salt,
                credential.stored_key,
                credential.server_key,
                credential.iterations,
            )
    yield from image.tokens.by_id.values()
    for entity, quotas in image.client_quotas.items():
        for key, quota in quotas.items():
            yield ClientQuotaRecord(entity, key, quota)


def _topic(topic: TopicImage) -> Iterator[MetadataRecord]:
    yield TopicRecord(topic.name, topic.topic_id)
    for index, partition in topic.partitions.items():
        yield PartitionRecord(
            index,
            topic.topic_id,
            partition.replicas,
            partition.isr,
            partition.leader,
            partition.leader_epoch,
            partition.partition_epoch,
            partition.adding_replicas,
            partition.removing_replicas,
            partition.next_leader,
        )


def _brokers(brokers: StoredBrokers, sessions: Collection[int] | None) -> Iterator[MetadataRecord]:
    """Yield the brokers. A session that has ended shows by a later registration of its node, or by the removal of the node."""
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
