"""The leader and state of a partition, as Metadata and DescribeTopicPartitions report them."""

from __future__ import annotations

from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from gateway.handlers.answering.api import RequestContext
from gateway.metadata.image import PartitionImage
from gateway.runtime.partitions.registry import TopicPartitions
from gateway.runtime.topics.brokers import NO_LEADER, Brokers


class PartitionState(NamedTuple):
    """The state of a partition as clients see it."""

    error_code: ErrorCode
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


def partition_state(
    context: RequestContext[Any], image: PartitionImage, topic: TopicPartitions | None, index: int
) -> PartitionState:
    """Return the state of a partition; one without a usable log has no leader, as with Kafka's failed disks."""
    brokers = context.node.brokers
    if brokers.leads(image) and _is_unusable(topic, index):
        return _state(brokers, image, NO_LEADER, (context.node.node_id,))
    return _state(brokers, image, brokers.leader_of(image), brokers.fenced_replicas_of(image))


def _is_unusable(topic: TopicPartitions | None, index: int) -> bool:
    if topic is None or not topic.has(index) or index in topic.failed:
        return True
    partition = topic.peek(index)
    return partition is not None and partition.log.offline


def _state(brokers: Brokers, image: PartitionImage, leader: int, offline: tuple[int, ...]) -> PartitionState:
    return PartitionState(
        ErrorCode.leader_not_available if leader == NO_LEADER else ErrorCode.none,
        leader,
        image.leader_epoch,
        brokers.replicas_of(image),
        brokers.isr_of(image),
        offline,
    )
