"""WriteTxnMarkers (key 27, versions 1–2): end a transaction in the named partitions, bypassing the
coordinator. Rights: `CLUSTER_ACTION` on the cluster; `ALTER` on the cluster (or this).

`kafka-transactions abort` sends this for a hanging transaction. Source: Kafka's
KafkaApis.handleWriteTxnMarkersRequest.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.places import TopicPartition
from seqgate.gateway.coordinator.transaction.rules import Producer
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.changes import log_change
from seqgate.gateway.handlers.answering.rights import has_on_cluster, is_from_gateway
from seqgate.gateway.metadata.image import INTERNAL_TOPICS, OFFSETS_TOPIC
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.security.acls.access import Operation
from seqgate.log import LogError

MarkerResult = ErrorCode | tuple[Partition, int]
"""An error, or the partition and offset that must become durable."""


async def handle(context: RequestContext[Services], request: Any) -> Any:
    """Append all markers at once, and answer when they are durable."""
    is_allowed = has_on_cluster(context, Operation.ALTER) or context.may_cluster(Operation.CLUSTER_ACTION)
    outcomes = [
        {
            (topic.name, index): _append(context, marker, (topic.name, index))
            if is_allowed
            else ErrorCode.cluster_authorization_failed
            for topic in marker.topics
            for index in topic.partition_indexes
        }
        for marker in request.markers
    ]
    # the markers of other gateways end the transactions of producers as usual
    is_change = not is_from_gateway(context)
    rows = []
    for marker, outcome in zip(request.markers, outcomes, strict=True):
        if not outcome:
            continue
        errors = {place: await _when_durable(one) for place, one in outcome.items()}
        if is_change:
            _note(context, marker, errors)
        topics = [_topic(topic, errors) for topic in marker.topics]
        rows.append({"producer_id": marker.producer_id, "topics": topics})
    return context.answer(markers=rows)


def _append(context: RequestContext[Services], marker: Any, place: TopicPartition) -> MarkerResult:
    registry = context.services.partitions.registry
    partition = registry.get(*place)
    if partition is None:
        return registry.error_without(*place)
    if partition.topic in INTERNAL_TOPICS and partition.topic != OFFSETS_TOPIC:
        return ErrorCode.invalid_topic_exception
    if marker.producer_epoch < 0:
        return ErrorCode.invalid_producer_epoch
    producer = Producer(marker.producer_id, marker.producer_epoch)
    try:
        offset = context.services.partitions.markers.append(
            partition,
            producer,
            commit=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=getattr(marker, "transaction_version", 0),
        )
    except LogError as error:
        return ErrorCode(error.kafka_error_code)
    return partition, offset


async def _when_durable(outcome: MarkerResult) -> ErrorCode:
    if isinstance(outcome, ErrorCode):
        return outcome
    partition, offset = outcome
    return ErrorCode.none if await partition.persisted(offset) else ErrorCode.kafka_storage_error


def _note(context: RequestContext[Services], marker: Any, errors: dict[TopicPartition, ErrorCode]) -> None:
    """Log a marker that a client has written, with its partitions."""
    ended = "committed" if marker.transaction_result else "aborted"
    written = [f"{topic}-{index}" for (topic, index), error in errors.items() if error is ErrorCode.none]
    log_change(context, f"{ended} the transaction of producer {marker.producer_id} in", written)


def _topic(topic: Any, errors: dict[TopicPartition, ErrorCode]) -> dict[str, Any]:
    rows = [
        {"partition_index": index, "error_code": errors[topic.name, index]}
        for index in topic.partition_indexes
    ]
    return {"name": topic.name, "partitions": rows}


API = Api(key=27, versions=(1, 2), reaches=api.everything, handle=handle)
