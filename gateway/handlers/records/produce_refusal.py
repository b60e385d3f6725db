"""Refuses a Produce for all its partitions."""

from __future__ import annotations

from collections.abc import Sequence

from kio.schema.errors import ErrorCode

from gateway.handlers.answering.api import Answer, CloseConnection, RequestContext
from gateway.handlers.records.produce_append import TopicRows, Topics
from gateway.handlers.records.produce_services import ProduceServices
from gateway.protocol.produce_codec import ProduceRequest, ProduceRow, encode_produce_response


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
    """Return the answer with the error for all partitions of the request, and with the rows refused before."""
    topics: Topics = [
        (key, [ProduceRow(entry.partition, int(error), -1, -1, -1, message) for entry in entries])
        for key, entries in request.topics
    ]
    topics += refused
    return encode_produce_response(context.api_version, context.correlation_id, topics)
