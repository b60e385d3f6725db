"""The active producers of a cluster over the Kafka protocol. Raises ControlError or kafka-python's errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from seqgate.gateway.admin.producers.command import ListProducersRequest, ProducerPage, ProducerRow
from seqgate.gateway.admin.remote.cluster import Cluster, led_partitions
from seqgate.gateway.admin.request import Request


def list_producers(cluster: Cluster, request: ListProducersRequest) -> ProducerPage:
    """Return all active producers by topic, partition and id, as DescribeProducers reports them."""
    found = cluster.admin.describe_producers(led_partitions(cluster, request.topic, request.partition))
    rows = [
        ProducerRow(
            topic=place.topic,
            partition=place.partition,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            last_sequence=producer.last_sequence,
            last_offset=None,
            last_timestamp=producer.last_timestamp,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=producer.current_transaction_start_offset,
            age_ms=None,
            retained_batches=None,
        )
        for place, state in found.items()
        for producer in state.active_producers
    ]
    rows.sort(key=lambda row: (row.topic, row.partition, row.producer_id))
    return ProducerPage(rows, True, None)


OPERATIONS: Final[Mapping[type[Request[Any]], Callable[[Cluster, Any], Any]]] = {
    ListProducersRequest: list_producers
}
"""The answers to the requests of commands."""
