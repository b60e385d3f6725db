"""Splits a Produce into the topics that the client may write to, and the answer for the others.

Kafka checks the right before it looks for the partition, so the answer for a topic without WRITE is the same whether or not
the topic exists. A topic id that nobody has is not secret: it gets UNKNOWN_TOPIC_ID.
Source: Kafka's KafkaApis.handleProduceRequest.
"""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from gateway.handlers.answering.api import RequestContext
from gateway.handlers.records.produce_append import Topics
from gateway.handlers.records.produce_services import ProduceServices
from gateway.protocol.produce_codec import ProduceRequest, ProduceRow
from gateway.security.acls.codes import Operation

_DENIED: Final = int(ErrorCode.topic_authorization_failed)
_UNKNOWN_ID: Final = int(ErrorCode.unknown_topic_id)


def split_by_right(
    context: RequestContext[ProduceServices], request: ProduceRequest
) -> tuple[ProduceRequest, Topics]:
    """Return the request with the topics that the client may write to, and the rows of the other topics."""
    by_key = context.services.partitions.by_key
    errors: dict[str | bytes, int] = {}
    for key in {topic.key for topic in request.topics}:
        topic = by_key.get(key)
        if isinstance(key, str):
            name = key
        elif topic is not None:
            name = topic.name
        else:
            # decided now: a topic that gets this id while the request waits has not been checked
            errors[key] = _UNKNOWN_ID
            continue
        if not context.may_topic(Operation.WRITE, name):
            errors[key] = _DENIED
    if not errors:
        return request, []
    refused: dict[str | bytes, dict[int, ProduceRow]] = {}
    for key, entries in request.topics:
        if key in errors:
            rows = refused.setdefault(key, {})
            rows.update((entry.partition, _row(entry.partition, errors[key])) for entry in entries)
    allowed = [topic for topic in request.topics if topic.key not in errors]
    return request._replace(topics=allowed), [(key, list(rows.values())) for key, rows in refused.items()]


def _row(index: int, code: int) -> ProduceRow:
    return ProduceRow(index, code, -1, -1, -1)
