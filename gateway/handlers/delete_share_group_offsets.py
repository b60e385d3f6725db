"""DeleteShareGroupOffsets (key 92, version 0): have a share group without members forget topics.

Source: Kafka's GroupCoordinatorService.deleteShareGroupOffsets, KIP-932.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.handlers.api import Api, RequestContext
from gateway.handlers.share_group_offsets import group_error
from gateway.protocol.messages import build, response_module
from gateway.runtime.coordinator_shards import Unavailable

API_KEY: Final = 92


async def handle(context: RequestContext, request: Any) -> Any:
    """Forget each topic durably."""
    module = response_module(API_KEY, context.api_version)
    error, message = group_error(context, request.group_id)
    responses = []
    for topic in request.topics if error is ErrorCode.none else ():
        known = context.services.partitions.by_name.get(topic.topic_name)
        row_error = ErrorCode.unknown_topic_or_partition
        if known is not None:
            row_error = await _forget(context, request.group_id, known.topic_id)
        responses.append(
            build(
                module.DeleteShareGroupOffsetsResponseTopic,
                topic_name=topic.topic_name,
                topic_id=None if known is None else known.topic_id,
                error_code=row_error,
                error_message=None,
            )
        )
    return build(
        module.DeleteShareGroupOffsetsResponse,
        error_code=error,
        error_message=message,
        responses=tuple(responses),
    )


async def _forget(context: RequestContext, group_id: str, topic_id: Any) -> ErrorCode:
    shares = context.services.shares
    keys = [key for key in shares.known(group_id) if key.topic_id == topic_id]
    try:
        await shares.forget(keys)
    except Unavailable as error:
        return error.error_code
    return ErrorCode.none


API = Api(key=API_KEY, name="DeleteShareGroupOffsets", min_version=0, max_version=0, handle=handle)
