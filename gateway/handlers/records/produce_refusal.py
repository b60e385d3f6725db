"""Refuses a Produce for all its partitions, and names the error of a partition that is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kio.schema.errors import ErrorCode

from gateway.handlers.answering.api import Answer, CloseConnection, RequestContext
from gateway.handlers.records.pending_answer import TopicRows, Topics
from gateway.handlers.records.produce_answer import produce_frame
from gateway.handlers.records.produce_order import Refusals
from gateway.handlers.records.produce_services import ProduceServices
from gateway.protocol.produce_codec import ProduceRequest, ProduceRow
from gateway.runtime.partitions.registry import TopicPartitions

UNKNOWN_TOPIC: Final = int(ErrorCode.unknown_topic_or_partition)
UNKNOWN_TOPIC_ID: Final = int(ErrorCode.unknown_topic_id)
_WRONG_ACKS: Final = int(ErrorCode.invalid_required_acks)


def refuse_or_close(
    context: RequestContext[ProduceServices],
    request: ProduceRequest,
    error: ErrorCode,
    message: str,
    *,
    refused: Sequence[TopicRows] = (),
) -> Answer:
    """Refuse the request for all its partitions. Raises CloseConnection under acks=0, which has no answer."""
    if request.acks == 0:
        raise CloseConnection(f"an acks=0 request is refused: {message}")
    return refuse_all(context, request, error, message, refused=refused)


def refuse_all(
    context: RequestContext[ProduceServices],
    request: ProduceRequest,
    error: ErrorCode,
    message: str | None = None,
    *,
    refused: Sequence[TopicRows] = (),
) -> Answer:
    """Return the answer with the error for all partitions of the request, and with the rows of partitions
    that were refused earlier.
    """
    topics: Topics = [
        (key, [ProduceRow(entry.partition, int(error), -1, -1, -1, message) for entry in entries])
        for key, entries in request.topics
    ]
    refusals = Refusals(context.services.refusals, context.peer, context.client_id)
    for key, entries in request.topics:
        for entry in entries:
            refusals.note(key, entry.partition, entry.records, int(error))
    topics += refused
    return produce_frame(context, topics)


def refuse_acks(
    context: RequestContext[ProduceServices], request: ProduceRequest, refused: Sequence[TopicRows]
) -> Answer:
    """Refuse the request for its number of acknowledgements.

    As in Kafka, unknown partitions get their own error first.
    """
    topics: Topics = []
    for key, entries in request.topics:
        topic = context.services.partitions.by_key.get(key)
        rows = [
            ProduceRow(
                entry.partition,
                _WRONG_ACKS
                if topic is not None and topic.has(entry.partition)
                else missing(key, topic, entry.partition),
                -1,
                -1,
                -1,
            )
            for entry in entries
        ]
        topics.append((key, rows))
    return produce_frame(context, [*topics, *refused])


def missing(key: str | bytes, topic: TopicPartitions | None, index: int) -> int:
    """Return the error for a partition that can't be appended to."""
    if topic is not None:
        return int(topic.error_without(index))
    return UNKNOWN_TOPIC_ID if isinstance(key, bytes) else UNKNOWN_TOPIC
