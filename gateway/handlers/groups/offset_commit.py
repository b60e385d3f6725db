"""OffsetCommit (key 8, versions 2–10): commit the offsets of a group, or of a consumer outside any group.

The answer leaves when the offsets are as durable as a record under acks=all. From v10 on topics are named by id.
Source: Kafka's KafkaApis.handleOffsetCommitRequest, OffsetMetadataManager.commitOffset.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.coordinator.group.committer import Committer
from gateway.coordinator.group.records import CommittedOffset, OffsetCommitRecord
from gateway.handlers.answering.api import Api, RequestContext
from gateway.protocol.messages import build, milliseconds, response_module
from gateway.runtime.coordinators.shards import Unavailable

API_KEY: Final = 8
LAST_WITH_RETENTION_TIME: Final = 4
FIRST_WITH_LEADER_EPOCH: Final = 6
FIRST_WITH_INSTANCE_ID: Final = 7
FIRST_WITH_GROUP_ID_NOT_FOUND: Final = 9
FIRST_WITH_MEMBER_EPOCH: Final = 9
FIRST_WITH_TOPIC_IDS: Final = 10


async def handle(context: RequestContext, request: Any) -> Any:
    """Commit the valid offsets; each partition gets its own result."""
    refused, accepted = _sorted_out(context, request)
    committed: list[tuple[Any, list[tuple[int, ErrorCode]]]] = []
    if accepted:
        fitting = {id(entry) for _, entries in accepted for entry in entries if fits(context, entry)}
        records = [
            _record(context, request, _topic(context, key), entry)
            for key, entries in accepted
            for entry in entries
            if id(entry) in fitting
        ]
        error = await _commit(context, request, records)
        oversize = ErrorCode.offset_metadata_too_large if error is ErrorCode.none else error
        committed = [
            (key, [(entry.partition_index, error if id(entry) in fitting else oversize) for entry in entries])
            for key, entries in accepted
        ]
    if refused:
        for key, rows in committed:
            refused.setdefault(key, []).extend(rows)
        committed = list(refused.items())
    return _response(context.api_version, committed)


def _sorted_out(
    context: RequestContext, request: Any
) -> tuple[dict[Any, list[tuple[int, ErrorCode]]], list[tuple[Any, list[Any]]]]:
    """Split the request: (topics and partitions that do not exist, with their errors; the other entries by topic)."""
    by_id = context.api_version >= FIRST_WITH_TOPIC_IDS
    refused: dict[Any, list[tuple[int, ErrorCode]]] = {}
    accepted: list[tuple[Any, list[Any]]] = []
    for wanted in request.topics:
        key = wanted.topic_id if by_id else wanted.name
        topic = _topic(context, key)
        error = ErrorCode.unknown_topic_or_partition
        if topic is None:
            error = ErrorCode.unknown_topic_id if by_id else error
            refused.setdefault(key, [])
        entries = []
        for entry in wanted.partitions:
            if topic is None or not topic.has(entry.partition_index):
                refused.setdefault(key, []).append((entry.partition_index, error))
            else:
                entries.append(entry)
        if entries:
            accepted.append((key, entries))
    return refused, accepted


def _topic(context: RequestContext, key: Any) -> Any:
    partitions = context.services.partitions
    if context.api_version < FIRST_WITH_TOPIC_IDS:
        return partitions.by_name.get(key)
    return None if key is None else partitions.by_id.get(key)


def fits(context: RequestContext, entry: Any) -> bool:
    """Return whether the metadata of an offset is short enough.

    Kafka counts UTF-16 units, whatever the setting's name says.
    """
    units = len((entry.committed_metadata or "").encode("utf-16-le", "surrogatepass")) // 2
    return units <= context.services.config.int("offset.metadata.max.bytes")


def _record(context: RequestContext, request: Any, topic: Any, entry: Any) -> OffsetCommitRecord:
    version = context.api_version
    now_ms = context.services.clock.now_ms()
    retention_ms = -1
    if version <= LAST_WITH_RETENTION_TIME:
        retention_ms = milliseconds(request.retention_time)
    value = CommittedOffset(
        offset=entry.committed_offset,
        leader_epoch=entry.committed_leader_epoch if version >= FIRST_WITH_LEADER_EPOCH else -1,
        metadata=entry.committed_metadata or "",
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
        has_member_epoch=version >= FIRST_WITH_MEMBER_EPOCH,
    )
    try:
        error = await context.services.groups.commit(committer, records)
    except Unavailable as unavailable:
        return unavailable.error_code
    if error is ErrorCode.group_id_not_found and version < FIRST_WITH_GROUP_ID_NOT_FOUND:
        return ErrorCode.illegal_generation
    return error


def _response(version: int, answered: list[tuple[Any, list[tuple[int, ErrorCode]]]]) -> Any:
    module = response_module(API_KEY, version)
    topics = tuple(
        build(
            module.OffsetCommitResponseTopic,
            **({"topic_id": key} if version >= FIRST_WITH_TOPIC_IDS else {"name": key}),
            partitions=tuple(
                build(module.OffsetCommitResponsePartition, partition_index=index, error_code=error)
                for index, error in rows
            ),
        )
        for key, rows in answered
    )
    return build(module.OffsetCommitResponse, topics=topics)


API = Api(key=API_KEY, name="OffsetCommit", min_version=2, max_version=10, handle=handle, is_eager=True)
