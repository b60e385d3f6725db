"""DescribeProducers (key 61, version 0): list the producers that partitions track. Rights: `READ` on the
topic; `DESCRIBE` on the cluster (tells the clients of producers).

Who may DESCRIBE the cluster is told the client of each producer, too, in a tagged field of Seqgate.

Source: KIP-664, Kafka's KafkaApis.handleDescribeProducersRequest, Partition.activeProducerState.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.limits import TimeLimit, places_to_answer
from seqgate.gateway.metadata.decision import UNKNOWN_TOPIC_MESSAGE, ApiError, told
from seqgate.gateway.metadata.image import name_complaint
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.security.acls.access import CLUSTER_NAME, Operation, ResourceType


async def handle(context: RequestContext[Services], request: Any) -> Any:
    """List the producers of each partition of the request."""
    limit = TimeLimit(context)
    find_client = client_finder(context)
    asked = [(topic.name, topic.partition_indexes) for topic in request.topics]
    answers: dict[tuple[str, int], Any] = {}
    topics = []
    for topic, indexes in places_to_answer(asked):
        async for index in in_slices(indexes):
            if (topic, index) not in answers:
                answers[topic, index] = await _partition(context, limit, find_client, topic, index)
        partitions = tuple([answers[topic, index] for index in indexes])
        topics.append(context.row("TopicResponse", name=topic, partitions=partitions))
    return context.answer(topics=tuple(topics))


def _topic_error(context: RequestContext[Services], topic: str) -> ApiError | None:
    complaint = name_complaint(topic)
    if complaint:
        return ApiError(ErrorCode.invalid_topic_exception, complaint)
    if not context.may_topic(Operation.READ, topic):
        return ApiError(ErrorCode.topic_authorization_failed, "Topic authorization failed.")
    if topic not in context.services.topics.metadata_log.image.topics_by_name:
        return ApiError(ErrorCode.unknown_topic_or_partition, UNKNOWN_TOPIC_MESSAGE)
    return None


async def _partition(
    context: RequestContext[Services],
    limit: TimeLimit,
    find_client: Callable[[int, int], str | None],
    topic: str,
    index: int,
) -> Any:
    error = _topic_error(context, topic)
    registry = context.services.partitions.registry
    partition = registry.get(topic, index) if error is None else None
    producers: list[Any] = []
    if partition is None:
        error = error or ApiError(registry.error_without(topic, index))
    elif partition.log.offline:
        error = ApiError(ErrorCode.kafka_storage_error)
    else:
        try:
            producers = [
                context.row(
                    "ProducerState",
                    producer_id=entry.producer_id,
                    producer_epoch=entry.producer_epoch,
                    last_sequence=entry.last_sequence,
                    last_timestamp=entry.last_timestamp,
                    coordinator_epoch=entry.coordinator_epoch,
                    current_txn_start_offset=entry.current_transaction_first_offset,
                    client=find_client(entry.producer_id, entry.producer_epoch),
                )
                async for entry in limit.each(list(partition.log.producers))
            ]
        except TimeoutError:
            error = ApiError(ErrorCode.request_timed_out)
    return context.row(
        "PartitionResponse", partition_index=index, **told(error), active_producers=tuple(producers)
    )


def client_finder(context: RequestContext[Services]) -> Callable[[int, int], str | None]:
    """Return the function that finds the client of a producer id and epoch, as JSON for `CLIENT_TAG`; None
    where nobody knows the client, or the requester may not DESCRIBE the cluster.
    """
    if not context.could(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return lambda _id, _epoch: None
    clients = context.services.partitions.counters.clients

    def find(producer_id: int, producer_epoch: int) -> str | None:
        client = clients.find(producer_id, producer_epoch)
        return None if client is None else client.to_json()

    return find


API = Api(key=61, versions=(0, 0), reaches=api.everything, handle=handle, is_long=True, may_be_given_up=True)
