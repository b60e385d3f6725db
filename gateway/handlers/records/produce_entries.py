"""The batches of a Produce by topic."""

from __future__ import annotations

from collections import deque

from gateway.protocol.produce_codec import PartitionRecords, ProduceRequest
from gateway.runtime.partitions.registry import Partitions, TopicPartitions


def entries_by_topic(
    partitions: Partitions, request: ProduceRequest
) -> list[tuple[str | bytes, TopicPartitions | None, deque[PartitionRecords]]]:
    """Return the entries of the partitions by topic.

    Of a partition named twice only the last entry counts, as in Kafka.
    """
    grouped: dict[str | bytes, dict[int, PartitionRecords]] = {}
    for key, entries in request.topics:
        last = grouped.setdefault(key, {})
        for entry in entries:
            last[entry.partition] = entry
    return [(key, partitions.by_key.get(key), deque(last.values())) for key, last in grouped.items()]
