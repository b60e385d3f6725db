"""The active producers of a cluster over the Kafka protocol. Raises ControlError or kafka-python's errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kio.schema.describe_producers.v0.request import DescribeProducersRequest, TopicRequest
from kio.schema.types import TopicName
from kio.static.primitive import i32

from seqgate.gateway.admin.producers.command import ListProducersRequest, ProducerPage, ProducerRow
from seqgate.gateway.admin.remote.cluster import Cluster, led_partitions, topic_partition
from seqgate.gateway.admin.request import Request
from seqgate.gateway.coordinator.places import TopicPartition
from seqgate.gateway.protocol.messages import response_type
from seqgate.gateway.security.principals import ClientIdentity

_API: Final = 61, 0
"""The key and the version of DescribeProducers."""


def list_producers(cluster: Cluster, request: ListProducersRequest) -> ProducerPage:
    """Return all active producers by topic, partition and id, as DescribeProducers reports them."""
    rows = active_producers(cluster, led_partitions(cluster, request.topic, request.partition))
    rows.sort(key=lambda row: (row.topic, row.partition, row.producer_id))
    return ProducerPage(rows, True, None)


def active_producers(cluster: Cluster, places: Sequence[TopicPartition]) -> list[ProducerRow]:
    """Return the active producers of partitions, in no order."""
    answers = cluster.ask_leaders(places, _question, response_type(*_API))
    rows = [
        (topic.name, row) for answer in answers or () for topic in answer.topics for row in topic.partitions
    ]
    if answers is not None and not any(row.error_code for _, row in rows):
        return [
            _row(
                (topic, row.partition_index),
                producer,
                producer.current_txn_start_offset,
                ClientIdentity.from_json(producer.client),
            )
            for topic, row in rows
            for producer in row.active_producers
        ]
    found = cluster.admin.describe_producers([topic_partition(*place) for place in places])
    return [
        _row(place, producer, producer.current_transaction_start_offset, client)
        for place, producers in found.items()
        for producer, client in producers
    ]


def _question(topics: Mapping[str, Sequence[int]]) -> DescribeProducersRequest:
    return DescribeProducersRequest(
        topics=tuple(
            TopicRequest(name=TopicName(topic), partition_indexes=tuple(map(i32, partitions)))
            for topic, partitions in topics.items()
        )
    )


def _row(
    place: TopicPartition, producer: Any, first_offset: int, client: ClientIdentity | None
) -> ProducerRow:
    return ProducerRow(
        *place,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        last_sequence=producer.last_sequence,
        last_offset=None,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=first_offset,
        age_ms=None,
        retained_batches=None,
        client=client,
    )


OPERATIONS: Final[Mapping[type[Request[Any]], Callable[[Cluster, Any], Any]]] = {
    ListProducersRequest: list_producers
}
"""The answers to the requests of commands."""
