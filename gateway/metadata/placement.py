"""Chooses the brokers of new partitions: neighbouring partitions of a topic go to different brokers."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence

from gateway.metadata.records import PartitionRecord


def new_partitions(
    topic_id: uuid.UUID, indexes: Iterable[int], brokers: Sequence[int], replication_factor: int = 1
) -> Iterator[PartitionRecord]:
    """Yield the records of new partitions. The first replica leads, from leader epoch 0 on.

    The brokers take turns; the topic id chooses which of them has partition 0, so that topics of one partition are
    spread, too. Partitions that are added later continue the turns. Source: Kafka's StripedReplicaPlacer, without racks.
    """
    first = int.from_bytes(topic_id.bytes[-8:], "big")
    for index in indexes:
        replicas = tuple(
            brokers[(first + index + number) % len(brokers)] for number in range(replication_factor)
        )
        yield new_partition(topic_id, index, replicas)


def new_partition(topic_id: uuid.UUID, index: int, replicas: tuple[int, ...]) -> PartitionRecord:
    """Return the record of a new partition on these replicas. The first one leads."""
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=replicas,
        isr=replicas,
        leader=replicas[0],
        leader_epoch=0,
    )
