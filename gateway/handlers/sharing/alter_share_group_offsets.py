"""AlterShareGroupOffsets (key 91, version 0): set the start offsets of a share group without members.

A group that does not exist is created. A client needs READ on the group and on each topic. Source: Kafka's GroupCoordinatorService.alterShareGroupOffsets, KIP-932.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.coordinator.share.records import SharePartitionKey
from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext, TimeLimit
from gateway.handlers.answering.changes import log_change
from gateway.handlers.answering.rights import refused_topics
from gateway.handlers.sharing.share_group_offsets import MESSAGES, group_error
from gateway.protocol.messages import build, response_module
from gateway.runtime.operations.operations import Unavailable
from gateway.runtime.services import Services
from gateway.security.acls.codes import Operation

API_KEY: Final = 91


async def handle(context: RequestContext[Services], request: Any) -> Any:
    """Start each partition again at its new offset, durably."""
    module = response_module(API_KEY, context.api_version)
    limit = TimeLimit(context)
    error, message = await group_error(context, limit, request.group_id, Operation.READ)
    wanted: dict[str, list[Any]] = {}
    for topic in request.topics if error is ErrorCode.none else ():
        wanted.setdefault(topic.topic_name, []).extend(topic.partitions)
    hidden = await refused_topics(context, Operation.READ, wanted)
    responses = []
    for name, entries in wanted.items():
        # the id of a topic that the client may not read stays secret
        topic = None if name in hidden else context.services.partitions.registry.by_name.get(name)
        rows = []
        for entry in entries:
            if name in hidden:
                row_error = ErrorCode.topic_authorization_failed
            else:
                row_error = await _begin_in_time(context, limit, request.group_id, topic, entry)
            rows.append(
                build(
                    module.AlterShareGroupOffsetsResponsePartition,
                    partition_index=entry.partition_index,
                    error_code=row_error,
                    error_message=MESSAGES.get(row_error),
                )
            )
        responses.append(
            build(
                module.AlterShareGroupOffsetsResponseTopic,
                topic_name=name,
                topic_id=None if topic is None else topic.topic_id,
                partitions=tuple(rows),
            )
        )
    return build(
        module.AlterShareGroupOffsetsResponse,
        error_code=error,
        error_message=message,
        responses=tuple(responses),
    )


async def _begin_in_time(
    context: RequestContext[Services], limit: TimeLimit, group_id: str, topic: Any, entry: Any
) -> ErrorCode:
    def note(error: ErrorCode) -> None:
        if error is ErrorCode.none:
            what = f"{topic.name}-{entry.partition_index} (to {max(0, entry.start_offset)})"
            log_change(context, f"set the start offset of share group {group_id} in", [what])

    try:
        error = await limit.run(_begin(context, group_id, topic, entry), group_id, late=note)
    except TimeoutError:
        return ErrorCode.request_timed_out
    note(error)
    return error


async def _begin(context: RequestContext[Services], group_id: str, topic: Any, entry: Any) -> ErrorCode:
    if topic is None or not topic.has(entry.partition_index):
        return ErrorCode.unknown_topic_or_partition
    key = SharePartitionKey(group_id, topic.topic_id, entry.partition_index)
    try:
        await context.services.coordinators.shares.begin_group(key, topic.name, max(0, entry.start_offset))
    except Unavailable as error:
        return error.error_code
    return ErrorCode.none


API = Api(
    key=API_KEY,
    name="AlterShareGroupOffsets",
    min_version=0,
    max_version=0,
    reaches=api.everything,
    handle=handle,
)
