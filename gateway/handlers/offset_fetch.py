"""OffsetFetch (key 9, versions 1–10): how far groups have come; from v8 on several groups at once.

A partition without a committed offset has −1. No topics (null, from v2 on) asks for all that is committed.
Nothing is told before it is durable. From v10 on topics are named by id.
Source: Kafka's KafkaApis.handleOffsetFetchRequest, OffsetMetadataManager.fetchOffsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.coordinator.group.offsets import TopicPartition
from gateway.coordinator.group.records import CommittedOffset
from gateway.handlers.api import Api, RequestContext
from gateway.protocol.messages import build, response_module
from gateway.runtime.coordinator_shards import Unavailable

API_KEY: Final = 9
FIRST_WITH_ERROR: Final = 2
FIRST_BATCHED_VERSION: Final = 8
FIRST_WITH_MEMBER: Final = 9
FIRST_WITH_TOPIC_IDS: Final = 10
NOTHING: Final = CommittedOffset(-1, -1, "", -1)


async def handle(context: RequestContext, request: Any) -> Any:
    """Look up every group that is asked for."""
    version = context.api_version
    module = response_module(API_KEY, version)
    if version >= FIRST_BATCHED_VERSION:
        groups = tuple([await _group(context, module, group) for group in request.groups])
        return build(module.OffsetFetchResponse, groups=groups)
    committed = await _committed(context, request.group_id)
    if isinstance(committed, ErrorCode):
        error, committed = committed, {}
    else:
        error = ErrorCode.none
    topics = _topics(context, request.topics, committed, None if version >= FIRST_WITH_ERROR else error)
    return build(
        module.OffsetFetchResponse,
        topics=_built(
            module.OffsetFetchResponseTopic, module.OffsetFetchResponsePartition, topics, by_id=False
        ),
        error_code=error,
    )


async def _group(context: RequestContext, module: Any, group: Any) -> Any:
    committed = await _committed(context, group.group_id)
    if context.api_version >= FIRST_WITH_MEMBER and not isinstance(committed, ErrorCode):
        error = context.services.groups.check_fetch(group.group_id, group.member_id, group.member_epoch)
        committed = committed if error is ErrorCode.none else error
    if isinstance(committed, ErrorCode):
        return build(
            module.OffsetFetchResponseGroup, group_id=group.group_id, topics=(), error_code=committed
        )
    topics = _topics(context, group.topics, committed, None)
    by_id = context.api_version >= FIRST_WITH_TOPIC_IDS
    return build(
        module.OffsetFetchResponseGroup,
        group_id=group.group_id,
        topics=_built(
            module.OffsetFetchResponseTopics, module.OffsetFetchResponsePartitions, topics, by_id=by_id
        ),
        error_code=ErrorCode.none,
    )


async def _committed(
    context: RequestContext, group_id: str
) -> Mapping[TopicPartition, CommittedOffset] | ErrorCode:
    try:
        shard = await context.services.groups.settled_shard(group_id)
    except Unavailable as error:
        return error.error_code
    return shard.fetch_offsets(group_id)


def _topics(
    context: RequestContext,
    asked: Iterable[Any] | None,
    committed: Mapping[TopicPartition, CommittedOffset],
    error: ErrorCode | None,
) -> list[tuple[Any, list[tuple[int, CommittedOffset, ErrorCode]]]]:
    """(topic as it was named, rows). `error` is that of every row where the version has no other place for it."""
    by_id = context.api_version >= FIRST_WITH_TOPIC_IDS
    partitions = context.services.partitions
    topics: list[tuple[Any, list[tuple[int, CommittedOffset, ErrorCode]]]] = []
    if asked is None:
        found: dict[str, list[tuple[int, CommittedOffset, ErrorCode]]] = {}
        for (name, partition), value in committed.items():
            found.setdefault(name, []).append((partition, value, ErrorCode.none))
        for name, rows in found.items():
            topic = partitions.by_name.get(name)
            if not by_id:
                topics.append((name, rows))
            elif topic is not None:
                topics.append((topic.topic_id, rows))
        return topics
    for wanted in asked:
        key: Any = wanted.topic_id if by_id else wanted.name
        name = key
        row_error = error or ErrorCode.none
        if by_id:
            topic = None if key is None else partitions.by_id.get(key)
            name = "" if topic is None else topic.name
            row_error = ErrorCode.unknown_topic_id if topic is None else ErrorCode.none
        rows = [
            (
                index,
                committed.get((name, index), NOTHING) if row_error is ErrorCode.none else NOTHING,
                row_error,
            )
            for index in wanted.partition_indexes
        ]
        topics.append((key, rows))
    return topics


def _built(
    topic_type: Any,
    row_type: Any,
    topics: list[tuple[Any, list[tuple[int, CommittedOffset, ErrorCode]]]],
    *,
    by_id: bool,
) -> tuple[Any, ...]:
    return tuple(
        build(
            topic_type,
            **({"topic_id": key} if by_id else {"name": key}),
            partitions=tuple(
                build(
                    row_type,
                    partition_index=index,
                    committed_offset=value.offset,
                    committed_leader_epoch=value.leader_epoch,
                    metadata=value.metadata,
                    error_code=error,
                )
                for index, value, error in rows
            ),
        )
        for key, rows in topics
    )


API = Api(key=API_KEY, name="OffsetFetch", min_version=1, max_version=10, handle=handle, is_eager=True)
