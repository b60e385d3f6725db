"""The leader and state of a partition, as Metadata and DescribeTopicPartitions report them."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from gateway.handlers.answering.api import RequestContext
from gateway.metadata.image import PartitionImage
from gateway.runtime.partitions.partition import Partition
from gateway.runtime.partitions.registry import TopicPartitions

NO_LEADER: Final = -1


class PartitionState(NamedTuple):
    """The state of a partition as clients see it."""

    error_code: ErrorCode
    leader_id: int
    leader_epoch: int
    offline_replicas: tuple[int, ...]


def partition_state(
    context: RequestContext[Any], image: PartitionImage, topic: TopicPartitions | None, index: int
) -> PartitionState:
    """Return the state of a partition; one without a usable log has no leader, as with Kafka's failed disks."""
    if topic is None or not topic.has(index) or index in topic.failed or _is_offline(topic.peek(index)):
        return PartitionState(
            ErrorCode.leader_not_available, NO_LEADER, image.leader_epoch, (context.node.node_id,)
        )
    return PartitionState(ErrorCode.none, image.leader, image.leader_epoch, ())


def _is_offline(partition: Partition | None) -> bool:
    return partition is not None and partition.log.offline
