"""Splits a Produce into the topics that the client may write to, and the answer for the others.

Kafka checks the right before it looks for the partition, so the answer for a topic without WRITE is the same whether or not
the topic exists. A topic id that nobody has is not secret: it gets UNKNOWN_TOPIC_ID.
Source: Kafka's KafkaApis.handleProduceRequest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from kio.schema.errors import ErrorCode

from gateway.handlers.answering.api import Answer, Deferred, RequestContext
from gateway.handlers.records.pending_answer import Topics
from gateway.handlers.records.produce_later import failing
from gateway.handlers.records.produce_order import Refusals
from gateway.handlers.records.produce_quota import copied
from gateway.handlers.records.produce_services import ProduceServices
from gateway.protocol.produce_codec import ProduceRequest, ProduceRow
from gateway.runtime.loop.slices import in_slices
from gateway.security.acls.codes import Operation

GoOn: TypeAlias = Callable[
    [RequestContext[ProduceServices], ProduceRequest, Topics], Answer | Deferred | None
]
"""Carries out a request whose rights were checked."""

_DENIED: Final = int(ErrorCode.topic_authorization_failed)
_UNKNOWN_ID: Final = int(ErrorCode.unknown_topic_id)


def split_by_right(
    context: RequestContext[ProduceServices], request: ProduceRequest
) -> tuple[ProduceRequest, Topics]:
    """Return the request with the topics that the client may write to, and the rows of the other topics."""
    keys = {topic.key for topic in request.topics}
    errors = {key: error for key in keys if (error := _error(context, key))}
    return _split(context, request, errors)


def split_in_slices(
    context: RequestContext[ProduceServices], request: ProduceRequest, go_on: GoOn
) -> Deferred | None:
    """Split a request that names many topics in later turns, then go on with it; None where there is no room to keep it."""
    room = context.services.backlog.held.room
    kept_bytes = sum(len(entry.records or b"") for _, entries in request.topics for entry in entries)
    if not room.try_keep(kept_bytes):
        return None
    kept = copied(request)
    deferred = Deferred(holds_back=True)

    async def work() -> None:
        try:
            with failing(context, deferred):
                keys = {topic.key for topic in kept.topics}
                errors = {key: error async for key in in_slices(keys) if (error := _error(context, key))}
                deferred.follow(go_on(context, *_split(context, kept, errors)))
        finally:
            room.release_kept(kept_bytes)

    context.node.tasks.start(context.node.tasks.begin("produce to many topics", is_brief=True), work())
    return deferred


def _error(context: RequestContext[ProduceServices], key: str | bytes) -> int:
    """Return the error of a topic that the request can't write to; 0 if the client may write to it."""
    if isinstance(key, str):
        return 0 if context.may_topic(Operation.WRITE, key) else _DENIED
    topic = context.services.partitions.by_key.get(key)
    if topic is None:
        # Refuse the unknown id now. Otherwise a topic that gets this id while the request waits would be
        # written to without a check.
        return _UNKNOWN_ID
    return 0 if context.may_topic(Operation.WRITE, topic.name) else _DENIED


def _split(
    context: RequestContext[ProduceServices], request: ProduceRequest, errors: Mapping[str | bytes, int]
) -> tuple[ProduceRequest, Topics]:
    if not errors:
        return request, []
    refusals = Refusals(context.services.refusals, context.peer, context.client_id)
    refused: dict[str | bytes, dict[int, ProduceRow]] = {}
    for key, entries in request.topics:
        if key in errors:
            rows = refused.setdefault(key, {})
            for entry in entries:
                refusals.note(key, entry.partition, entry.records, errors[key])
                rows[entry.partition] = _row(entry.partition, errors[key])
    allowed = [topic for topic in request.topics if topic.key not in errors]
    return request._replace(topics=allowed), [(key, list(rows.values())) for key, rows in refused.items()]


def _row(index: int, code: int) -> ProduceRow:
    return ProduceRow(index, code, -1, -1, -1)
