"""OffsetCommit (key 8, versions 2–10): how far a group, or a consumer outside any, has come.

A commit is answered when it is as durable as a record. From v10 on topics are named by id.
Source: Kafka's KafkaApis.handleOffsetCommitRequest, OffsetMetadataManager.commitOffset.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.coordinator.group.records import CommittedOffset, OffsetCommitRecord
from gateway.coordinator.group.shard import Committer
from gateway.handlers.api import Api, RequestContext
from gateway.handlers.join_group import milliseconds
from gateway.protocol.messages import build, response_module
from gateway.runtime.group_coordinator import Unavailable

API_KEY: Final = 8
LAST_WITH_RETENTION_TIME: Final = 4
FIRST_WITH_LEADER_EPOCH: Final = 6
FIRST_WITH_INSTANCE_ID: Final = 7
FIRST_WITH_TOPIC_IDS: Final = 10


async def handle(context: RequestContext, request: Any) -> Any:
    """Commit what can be; each partition has its own answer."""
    version = context.api_version
    module = response_module(API_KEY, version)
    records: list[OffsetCommitRecord] = []
    refused: dict[tuple[Any, int], ErrorCode] = {}
    for topic in request.topics:
        key = _key(version, topic)
        for entry in topic.partitions:
            outcome = _record(context, request, key, entry)
            if isinstance(outcome, ErrorCode):
                refused[key, entry.partition_index] = outcome
            else:
                records.append(outcome)
    error = ErrorCode.none
    if records or not refused:
        error = await _commit(context, request, records)
    topics = tuple(
        build(
            module.OffsetCommitResponseTopic,
            **_named(version, _key(version, topic)),
            partitions=tuple(
                build(
                    module.OffsetCommitResponsePartition,
                    partition_index=entry.partition_index,
                    error_code=refused.get((_key(version, topic), entry.partition_index), error),
                )
                for entry in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return build(module.OffsetCommitResponse, topics=topics)


def _key(version: int, topic: Any) -> Any:
    return topic.topic_id if version >= FIRST_WITH_TOPIC_IDS else topic.name


def _named(version: int, key: Any) -> dict[str, Any]:
    return {"topic_id": key} if version >= FIRST_WITH_TOPIC_IDS else {"name": key}


def _record(context: RequestContext, request: Any, key: Any, entry: Any) -> OffsetCommitRecord | ErrorCode:
    version = context.api_version
    partitions = context.services.partitions
    if version >= FIRST_WITH_TOPIC_IDS:
        topic = None if key is None else partitions.by_id.get(key)
        if topic is None:
            return ErrorCode.unknown_topic_id
    else:
        topic = partitions.by_name.get(key)
    if topic is None or topic.get(entry.partition_index) is None:
        return ErrorCode.unknown_topic_or_partition
    metadata = entry.committed_metadata or ""
    if len(metadata.encode()) > context.services.config.int("offset.metadata.max.bytes"):
        return ErrorCode.offset_metadata_too_large
    now_ms = context.services.clock.now_ms()
    retention_ms = -1
    if version <= LAST_WITH_RETENTION_TIME:
        retention_ms = milliseconds(request.retention_time)
    value = CommittedOffset(
        offset=entry.committed_offset,
        leader_epoch=entry.committed_leader_epoch if version >= FIRST_WITH_LEADER_EPOCH else -1,
        metadata=metadata,
        commit_timestamp_ms=now_ms,
        expire_timestamp_ms=-1 if retention_ms < 0 else now_ms + retention_ms,
    )
    return OffsetCommitRecord(request.group_id, topic.name, entry.partition_index, value)


async def _commit(context: RequestContext, request: Any, records: list[OffsetCommitRecord]) -> ErrorCode:
    version = context.api_version
    committer = Committer(
        group_id=request.group_id,
        generation_id=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id if version >= FIRST_WITH_INSTANCE_ID else None,
    )
    try:
        return await context.services.groups.commit(committer, records)
    except Unavailable as error:
        return error.error_code


API = Api(key=API_KEY, name="OffsetCommit", min_version=2, max_version=10, handle=handle)
