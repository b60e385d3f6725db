"""Images of clusters for tests: registered brokers, topics, and what decisions make of them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TypeVar

from seqgate.gateway.metadata.decision import Decision
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.membership import register_broker
from seqgate.gateway.metadata.records import BrokerEndpoint, RegisterBrokerRecord, TopicRecord
from seqgate.gateway.metadata.topics import new_partitions

T = TypeVar("T")
VERSION = 3


def broker(node_id: int, epoch: int, version: int = VERSION) -> RegisterBrokerRecord:
    place = BrokerEndpoint("PLAINTEXT", f"host-{node_id}.example", 9092)
    return RegisterBrokerRecord(node_id, uuid.UUID(int=epoch), epoch, (place,), cluster_version=version)


def carry_out(image: MetadataImage, decision: Decision[T]) -> T:
    for record in decision.records:
        image.replay(record)
    return decision.answer


def cluster(
    node_ids: Sequence[int], topics: Sequence[int] = (), replication_factor: int = 1
) -> MetadataImage:
    """Return an image with these brokers, registered in this order from epoch 1 on, and with a topic for each
    number of partitions.
    """
    image = MetadataImage()
    for epoch, node_id in enumerate(node_ids, start=1):
        assert carry_out(image, register_broker(image, broker(node_id, epoch))) is None
    for number, count in enumerate(topics, start=1):
        add_topic(image, number, count, replication_factor)
    return image


def add_topic(image: MetadataImage, number: int, count: int, replication_factor: int = 1) -> uuid.UUID:
    topic_id = uuid.UUID(int=number << 8)
    image.replay(TopicRecord(f"t{number}", topic_id))
    brokers = image.brokers.live(1)
    for record in new_partitions(topic_id, range(count), brokers, min(replication_factor, len(brokers))):
        image.replay(record)
    return topic_id


def leaders(image: MetadataImage) -> dict[tuple[str, int], int]:
    return {
        (topic.name, index): partition.leader
        for topic in image.topics_by_id.values()
        for index, partition in topic.partitions.items()
    }
