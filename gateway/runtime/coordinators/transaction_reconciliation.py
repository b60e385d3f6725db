"""Compares the open transactions of the partitions with those of the coordinator when its state is loaded.

A batch and the record that adds its partition to the transaction are flushed independently. A crash may keep only the
batch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from gateway.coordinator.places import TopicPartition
from gateway.coordinator.transaction.records import NO_PRODUCER_ID
from gateway.coordinator.transaction.rules import Producer
from gateway.coordinator.transaction.shard import TransactionShard
from gateway.metadata.image import INTERNAL_TOPICS, OFFSETS_TOPIC
from gateway.runtime.partitions.partition import Partition
from gateway.runtime.partitions.registry import Partitions

logger = logging.getLogger(__name__)


class OpenInPartition(NamedTuple):
    """A transaction that was open in a partition's log."""

    partition: Partition
    producer: Producer

    @property
    def place(self) -> TopicPartition:
        return self.partition.topic, self.partition.index

    @property
    def is_open(self) -> bool:
        """Whether the transaction is still open in the partition."""
        found = self.partition.log.transactions.open_transaction(self.producer.producer_id)
        return found is not None and found.producer_epoch == self.producer.producer_epoch


def open_in_partitions(partitions: Partitions) -> list[OpenInPartition]:
    """Return all transactions that are open in the partitions now."""
    return [
        OpenInPartition(partition, Producer(producer_id, found.producer_epoch))
        for partition in partitions
        if partition.topic not in INTERNAL_TOPICS or partition.topic == OFFSETS_TOPIC
        for producer_id, found in partition.log.transactions.open_transactions()
    ]


def owners(shard: TransactionShard) -> dict[int, str]:
    """Return the transactional ids by producer id, including the next producer id of a transaction that is ending."""
    found = dict(shard.by_producer_id)
    for transactional_id in shard.decided:
        next_producer_id = shard.transactions[transactional_id].next_producer_id
        if next_producer_id != NO_PRODUCER_ID:
            found[next_producer_id] = transactional_id
    return found


def warn_of_strangers(found: Iterable[OpenInPartition], shards: Iterable[TransactionShard]) -> None:
    """Log the open transactions that no coordinator will end."""
    known = {producer_id for shard in shards for producer_id in owners(shard)}
    for one in found:
        if one.is_open and one.producer.producer_id not in known:
            logger.warning(
                "%s-%d has an open transaction of producer %d, epoch %d, which belongs to no transactional "
                "id; end it with kafka-transactions abort",
                *one.place,
                *one.producer,
            )
