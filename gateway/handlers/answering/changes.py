"""Logs who changed what: one line for each request that changed metadata, groups or records on purpose.

created topic orders (4 partitions), by User:ANONYMOUS at 192.0.2.7:50312 (client 'admin-1')
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering.api import RequestContext
from seqgate.gateway.handlers.answering.limits import TimeLimit
from seqgate.gateway.metadata.decision import ApiError
from seqgate.gateway.protocol.frames import topic_id_text
from seqgate.gateway.runtime.loop.log_output import UNLIMITED
from seqgate.gateway.runtime.services import SecurityServices, TopicServices
from seqgate.gateway.runtime.topics.metadata_log import Decide
from seqgate.gateway.runtime.topics.metadata_news import OTHERS_WAIT_S
from seqgate.log import LogError

logger = logging.getLogger(__name__)


NAMES_IN_A_LINE = 20
"""The most changed resources that a log line names; the line counts the others."""

_changes = logging.getLogger(UNLIMITED)


def log_change(context: RequestContext[Any], action: str, things: Sequence[object]) -> None:
    """Log that this request did `action` to the resources of these names; without any, log nothing."""
    if not things:
        return
    more = len(things) - NAMES_IN_A_LINE
    names = [str(thing) for thing in things[:NAMES_IN_A_LINE]]
    listed = ", ".join(names) + (f" and {more} more" if more > 0 else "")
    context.node.audit.changed(context.requester(), action.rstrip(":"), names, others=max(more, 0))
    _changes.info(
        "%s %s, by %s at %s (client %r)",
        action,
        listed,
        context.peer.principal,
        context.peer.name,
        context.client_id,
    )


def partitions_text(count: int) -> str:
    """Return a number of partitions as text for a log line."""
    return f"{count} partition" if count == 1 else f"{count} partitions"


# Changes metadata for administrative handlers: within a time limit, with storage errors as answers.

T = TypeVar("T")


S = TypeVar("S", TopicServices, SecurityServices)
"""Services through which a handler changes metadata."""


async def change_metadata_until_it_counts(
    context: RequestContext[S],
    decide: Decide[T],
    time_limit: timedelta | None = None,
    *,
    note: Callable[[T], object] | None = None,
) -> T | ApiError:
    """Carry out a decision. Return its answer once the change is durable and takes effect here, and once the
    other gateways have it or are late; or the error because of which the change may not be durable.

    `time_limit` is the request's, bounded by `seqgate.admin.timeout.ms`. A change that takes longer
    continues. A request without any time left begins no change, as in Kafka. `note` is called with the answer
    once the change is durable, however late, so that no change stays out of the logs.
    """
    limit = TimeLimit(context, time_limit)
    if limit.left_s <= 0:
        return ApiError(ErrorCode.request_timed_out)
    try:
        answer = await limit.run(context.services.metadata_log.commit(decide), late=note)
    except TimeoutError:
        return ApiError(ErrorCode.request_timed_out, "The change is not durable yet and continues.")
    except LogError as error:
        return _failed(error)
    if note is not None:
        note(answer)
    # A client expects that any gateway knows what this one has acknowledged.
    await context.node.news.settled(min(OTHERS_WAIT_S, limit.left_s))
    return answer


async def read_metadata(context: RequestContext[S], limit: TimeLimit) -> ApiError | None:
    """Fold in what other gateways changed, for a search that is too long for a decision. Return the error
    because of which the image may be old, or None.
    """
    try:
        await limit.run(context.services.metadata_log.catch_up())
    except TimeoutError:
        return ApiError(ErrorCode.request_timed_out)
    except LogError as error:
        return _failed(error)
    return None


def _failed(error: LogError) -> ApiError:
    logger.error("a metadata change failed: %s", error)
    return ApiError(ErrorCode(error.kafka_error_code), str(error))


def fresh_id() -> uuid.UUID:
    """Return a random id for a topic, or for a client that pushes metrics. Like that of Kafka's
    Uuid.randomUuid, its text does not begin with '-', which tools take for an option.
    """
    while True:
        fresh = uuid.uuid4()
        if not topic_id_text(fresh).startswith("-"):
            return fresh
