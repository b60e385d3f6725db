"""Chooses the brokers of new partitions: neighbouring partitions of a topic go to different brokers."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from gateway.metadata.records import PartitionRecord

MOST_REPLICAS_BY_DEFAULT: Final = 3
"""Replicas of a partition that is created without a number of them, where as many gateways are live. All gateways share the records, so
the replicas only say which of them lead the partition first."""


def default_replication_factor(brokers: Sequence[int]) -> int:
    """Return the number of replicas of a partition that is created without one."""
    return min(MOST_REPLICAS_BY_DEFAULT, len(brokers))


def new_partitions(
    topic_id: uuid.UUID,
    indexes: Iterable[int],
    brokers: Sequence[int],
    replication_factor: int = 1,
    avoided: Collection[int] = (),
) -> Iterator[PartitionRecord]:
    """Yield the records of new partitions. The first replica leads, from leader epoch 0 on.

    The brokers take turns; the topic id chooses which of them has partition 0, so that topics of one partition are
    spread, too. Partitions that are added later continue the turns. The `avoided` brokers lead none, unless all are avoided. Source:
    Kafka's StripedReplicaPlacer, without racks.
    """
    first = int.from_bytes(topic_id.bytes[-8:], "big")
    leaders = [broker for broker in brokers if broker not in avoided] or brokers
    last = [broker for broker in brokers if broker not in leaders]
    for index in indexes:
        begin = (first + index) % len(leaders)
        replicas = (*leaders[begin:], *leaders[:begin], *last)[:replication_factor]
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
