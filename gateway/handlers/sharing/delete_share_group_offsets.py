"""DeleteShareGroupOffsets (key 92, version 0): delete the offsets of topics in a share group without members.

A client needs DELETE on the group and READ on each topic. Source: Kafka's
GroupCoordinatorService.deleteShareGroupOffsets, KIP-932.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext, TimeLimit
from gateway.handlers.answering.changes import log_change
from gateway.handlers.answering.rights import refused_topics
from gateway.handlers.sharing.share_group_offsets import MESSAGES, group_error
from gateway.protocol.messages import build, response_module
from gateway.runtime.operations.operations import Unavailable
from gateway.runtime.services import Services
from gateway.security.acls.codes import Operation

API_KEY: Final = 92


async def handle(context: RequestContext[Services], request: Any) -> Any:
    """Delete the share group's state of each topic durably."""
    module = response_module(API_KEY, context.api_version)
    limit = TimeLimit(context)
    error, message = await group_error(context, limit, request.group_id, Operation.DELETE)
    if error is ErrorCode.none and context.services.coordinators.shares.group(request.group_id) is None:
        error, message = ErrorCode.group_id_not_found, f"Group {request.group_id} not found."
    hidden = await refused_topics(context, Operation.READ, (topic.topic_name for topic in request.topics))
    responses = []
    for topic in request.topics if error is ErrorCode.none else ():
        note = partial(_note, context, request.group_id, topic.topic_name)
        try:
            result = await limit.run(
                _forget(context, request.group_id, topic.topic_name, hidden), request.group_id, late=note
            )
        except TimeoutError:
            topic_id, row_error = None, ErrorCode.request_timed_out
        else:
            note(result)
            topic_id, row_error = result
        responses.append(
            build(
                module.DeleteShareGroupOffsetsResponseTopic,
                topic_name=topic.topic_name,
                topic_id=None if row_error in MESSAGES else topic_id,
                error_code=row_error,
                error_message=MESSAGES.get(row_error),
            )
        )
    return build(
        module.DeleteShareGroupOffsetsResponse,
        error_code=error,
        error_message=message,
        responses=tuple(responses),
    )


def _note(context: RequestContext[Services], group_id: str, name: str, result: tuple[Any, ErrorCode]) -> None:
    if result[1] is ErrorCode.none:
        log_change(context, f"deleted the offsets of share group {group_id} for", [name])


async def _forget(
    context: RequestContext[Services], group_id: str, name: str, hidden: AbstractSet[str]
) -> tuple[Any, ErrorCode]:
    if name in hidden:
        return None, ErrorCode.topic_authorization_failed
    shares = context.services.coordinators.shares
    topic = context.services.partitions.registry.by_name.get(name)
    if topic is None:
        return None, ErrorCode.unknown_topic_or_partition
    try:
        if not any(topic_id == topic.topic_id for topic_id, _ in shares.begun(group_id)):
            return None, ErrorCode.unknown_topic_or_partition
        await shares.forget_topic(group_id, topic.topic_id)
    except Unavailable as error:
        return topic.topic_id, error.error_code
    return topic.topic_id, ErrorCode.none


API = Api(
    key=API_KEY,
    name="DeleteShareGroupOffsets",
    min_version=0,
    max_version=0,
    reaches=api.everything,
    handle=handle,
)
