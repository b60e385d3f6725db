"""Changes metadata for administrative handlers: within a time limit, with storage errors as answers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol, TypeVar

from kio.schema.errors import ErrorCode

from gateway.handlers.answering.api import RequestContext
from gateway.handlers.answering.time_limit import TimeLimit
from gateway.metadata.decision import ApiError
from gateway.runtime.topics.metadata_log import Decide, MetadataLog
from gateway.runtime.topics.metadata_news import WAIT_S
from log import LogError

logger = logging.getLogger(__name__)

T = TypeVar("T")


class WithMetadata(Protocol):
    """Services through which a handler changes metadata."""

    metadata_log: MetadataLog


S = TypeVar("S", bound=WithMetadata)


async def change_metadata(
    context: RequestContext[S],
    decide: Decide[T],
    time_limit: timedelta | None = None,
    *,
    note: Callable[[T], object] | None = None,
) -> T | ApiError:
    """Carry out a decision. Return its answer, or the error because of which the change may not be durable.

    `time_limit` is the request's, bounded by `seqgate.admin.timeout.ms`. A change that takes longer continues. A
    request without any time left begins no change, as in Kafka. `note` is called with the answer once the change is
    durable, however late, so that no change stays out of the logs.
    """
    limit = TimeLimit(context, time_limit)
    if limit.left_s <= 0:
        return ApiError(ErrorCode.request_timed_out)
    try:
        answer = await limit.run(context.services.metadata_log.commit(decide), late=note)
    except TimeoutError:
        return ApiError(ErrorCode.request_timed_out, "The change is not durable yet and continues.")
    except LogError as error:
        logger.error("a metadata change failed: %s", error)  # noqa: TRY400 - an expected failure of the disk
        return ApiError(ErrorCode(error.kafka_error_code), str(error))
    if note is not None:
        note(answer)
    # A client expects that any gateway knows what this one has acknowledged.
    await context.node.news.settled(min(WAIT_S, limit.left_s))
    return answer
