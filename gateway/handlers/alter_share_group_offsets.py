"""AlterShareGroupOffsets (key 91, version 0): have a share group without members begin elsewhere.

Source: Kafka's GroupCoordinatorService.alterShareGroupOffsets, KIP-932.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.coordinator.share.records import SharePartitionKey
from gateway.handlers.api import Api, RequestContext
from gateway.handlers.share_group_offsets import group_error
from gateway.protocol.messages import build, response_module
from gateway.runtime.coordinator_shards import Unavailable

API_KEY: Final = 91


async def handle(context: RequestContext, request: Any) -> Any:
    """Begin each partition anew at its offset, durably."""
    module = response_module(API_KEY, context.api_version)
    error, message = group_error(context, request.group_id)
    responses = []
    for topic in request.topics if error is ErrorCode.none else ():
        known = context.services.partitions.by_name.get(topic.topic_name)
        rows = []
        for entry in topic.partitions:
            row_error = ErrorCode.unknown_topic_or_partition
            if known is not None and known.get(entry.partition_index) is not None:
                key = SharePartitionKey(request.group_id, known.topic_id, entry.partition_index)
                row_error = await _begin(context, key, entry.start_offset)
            rows.append(
                build(
                    module.AlterShareGroupOffsetsResponsePartition,
                    partition_index=entry.partition_index,
                    error_code=row_error,
                    error_message=None,
                )
            )
        responses.append(
            build(
                module.AlterShareGroupOffsetsResponseTopic,
                topic_name=topic.topic_name,
                topic_id=None if known is None else known.topic_id,
                partitions=tuple(rows),
            )
        )
    return build(
        module.AlterShareGroupOffsetsResponse,
        error_code=error,
        error_message=message,
        responses=tuple(responses),
    )


async def _begin(context: RequestContext, key: SharePartitionKey, offset: int) -> ErrorCode:
    try:
        await context.services.shares.begin_at(key, max(0, offset))
    except Unavailable as error:
        return error.error_code
    return ErrorCode.none


API = Api(key=API_KEY, name="AlterShareGroupOffsets", min_version=0, max_version=0, handle=handle)
