"""Who leads a partition as Metadata and DescribeTopicPartitions tell it."""

from __future__ import annotations

from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from gateway.handlers.api import RequestContext
from gateway.metadata.image import PartitionImage
from gateway.runtime.partition import Partition

NO_LEADER: Final = -1


class PartitionState(NamedTuple):
    """What clients are told of a partition."""

    error_code: ErrorCode
    leader_id: int
    leader_epoch: int
    offline_replicas: tuple[int, ...]


def partition_state(
    context: RequestContext, image: PartitionImage, partition: Partition | None
) -> PartitionState:
    """The state of a partition of the image; without a usable log it has no leader, as with Kafka's failed disks."""
    if partition is None or partition.log.offline:
        return PartitionState(
            ErrorCode.leader_not_available, NO_LEADER, image.leader_epoch, (context.services.node_id,)
        )
    return PartitionState(ErrorCode.none, image.leader, partition.leader_epoch, ())
