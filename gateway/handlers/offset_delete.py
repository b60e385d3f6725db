"""OffsetDelete (key 47, version 0): forget a group's offsets, but for topics that its members subscribe to.

Source: Kafka's OffsetMetadataManager.deleteOffsets, KIP-496.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.handlers.api import Api, RequestContext
from gateway.protocol.messages import build, response_module
from gateway.runtime.group_coordinator import Unavailable

API_KEY: Final = 47


async def handle(context: RequestContext, request: Any) -> Any:
    """Delete durably; a partition that does not exist has its own error."""
    module = response_module(API_KEY, context.api_version)
    partitions = context.services.partitions
    group_id = request.group_id
    asked = [(topic.name, entry.partition_index) for topic in request.topics for entry in topic.partitions]
    known = [place for place in asked if partitions.get(*place) is not None]
    try:
        outcome = await context.services.groups.change(
            group_id, lambda shard, effects: shard.delete_offsets(group_id, known, effects)
        )
    except Unavailable as error:
        outcome = error.error_code
    if isinstance(outcome, ErrorCode):
        return build(module.OffsetDeleteResponse, error_code=outcome, topics=())
    errors = dict(zip(known, outcome, strict=True))
    topics = tuple(
        build(
            module.OffsetDeleteResponseTopic,
            name=topic.name,
            partitions=tuple(
                build(
                    module.OffsetDeleteResponsePartition,
                    partition_index=entry.partition_index,
                    error_code=errors.get(
                        (topic.name, entry.partition_index), ErrorCode.unknown_topic_or_partition
                    ),
                )
                for entry in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return build(module.OffsetDeleteResponse, error_code=ErrorCode.none, topics=topics)


API = Api(key=API_KEY, name="OffsetDelete", min_version=0, max_version=0, handle=handle)
