"""OffsetCommit (key 8, versions 2–10): commit the offsets of a group, or of a consumer outside any group.

The answer leaves when the offsets are as durable as a record under acks=all. From v10 on topics are named by id.
Source: Kafka's KafkaApis.handleOffsetCommitRequest, OffsetMetadataManager.commitOffset.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from gateway.coordinator.group.committer import Committer
from gateway.coordinator.group.records import CommittedOffset, OffsetCommitRecord
from gateway.handlers.answering import reach
from gateway.handlers.answering.api import Answer, Api, Deferred, RequestContext
from gateway.handlers.answering.offset_metadata import metadata_fits
from gateway.protocol.messages import build, encode_response, milliseconds, response_module
from gateway.runtime.coordinators.operations import Unavailable
from gateway.runtime.services import Services

API_KEY: Final = 8
LAST_WITH_RETENTION_TIME: Final = 4
FIRST_WITH_LEADER_EPOCH: Final = 6
FIRST_WITH_INSTANCE_ID: Final = 7
FIRST_WITH_GROUP_ID_NOT_FOUND: Final = 9
FIRST_WITH_MEMBER_EPOCH: Final = 9
FIRST_WITH_TOPIC_IDS: Final = 10
ROWS_IN_CACHE: Final = 16
"""Answers with more partitions than this are encoded each time."""
ANSWERS_IN_CACHE: Final = 1024
"""Encoded answers that are kept; the least recently used one makes room for the next."""

logger = logging.getLogger(__name__)

Rows = list[tuple[Any, list[tuple[int, ErrorCode]]]]
"""Topics as the request names them, with the error of each partition."""


class _Accepted(NamedTuple):
    """A topic that exists: as the request names it, its name, and its partitions that exist."""

    key: Any
    name: str
    entries: list[Any]


class _Sorted(NamedTuple):
    """A request, split into the offsets to commit and the offsets that are refused at once."""

    accepted: list[_Accepted]
    records: list[OffsetCommitRecord]
    oversize: set[int]
    """The ids of the accepted entries whose metadata is too long."""
    refused: dict[Any, list[tuple[int, ErrorCode]]]

    def rows(self, error: ErrorCode) -> Rows:
        """Return the rows of the answer, given the error of the commit."""
        oversize_error = ErrorCode.offset_metadata_too_large if error is ErrorCode.none else error
        oversize = self.oversize
        committed: Rows = [
            (
                key,
                [
                    (entry.partition_index, oversize_error if id(entry) in oversize else error)
                    for entry in entries
                ],
            )
            for key, _, entries in self.accepted
        ]
        if not self.refused:
            return committed
        merged = dict(self.refused)
        for key, rows in committed:
            merged[key] = merged.get(key, []) + rows
        return list(merged.items())


def begin(context: RequestContext[Services], request: Any) -> Answer | Deferred:
    """Commit the valid offsets without a task; each partition gets its own result."""
    found = _sort(context, request)
    if not found.accepted:
        return _encoded(context, found, ErrorCode.none)
    deferred = Deferred(holds_back=True)

    def answer(error: ErrorCode) -> None:
        try:
            deferred.resolve(_encoded(context, found, error))
        except Exception:
            logger.exception("OffsetCommit v%d of %s failed", context.api_version, context.peer_host)
            deferred.fail()

    context.services.coordinators.groups.begin_commit(_committer(context, request), found.records, answer)
    return deferred


async def handle(context: RequestContext[Services], request: Any) -> Any:
    """Commit the valid offsets of a large request, whose answer a thread encodes."""
    found = _sort(context, request)
    error = ErrorCode.none
    if found.accepted:
        try:
            error = await context.services.coordinators.groups.commit(
                _committer(context, request), found.records
            )
        except Unavailable as unavailable:
            error = unavailable.error_code
    return _response(context.api_version, found.rows(_error_code_for(context, error)))


def _sort(context: RequestContext[Services], request: Any) -> _Sorted:
    by_id = context.api_version >= FIRST_WITH_TOPIC_IDS
    refused: dict[Any, list[tuple[int, ErrorCode]]] = {}
    accepted: list[_Accepted] = []
    partitions = context.services.partitions.registry
    for wanted in request.topics:
        if by_id:
            key = wanted.topic_id
            topic = None if key is None else partitions.by_id.get(key)
        else:
            key = wanted.name
            topic = partitions.by_name.get(key)
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
        if topic is not None and entries:
            accepted.append(_Accepted(key, topic.name, entries))
    oversize: set[int] = set()
    records = _records(context, request, accepted, oversize) if accepted else []
    return _Sorted(accepted, records, oversize, refused)


def _records(
    context: RequestContext[Services], request: Any, accepted: list[_Accepted], oversize: set[int]
) -> list[OffsetCommitRecord]:
    """Return the records of the accepted offsets; add the ids of entries with too long metadata to `oversize`."""
    version, group_id = context.api_version, request.group_id
    now_ms = context.node.clock.now_ms()
    expire_ms = -1
    if version <= LAST_WITH_RETENTION_TIME:
        retention_ms = milliseconds(request.retention_time)
        expire_ms = -1 if retention_ms < 0 else now_ms + retention_ms
    has_leader_epoch = version >= FIRST_WITH_LEADER_EPOCH
    records = []
    for _, name, entries in accepted:
        for entry in entries:
            if entry.committed_metadata and not metadata_fits(context.node, entry):
                oversize.add(id(entry))
                continue
            leader_epoch = entry.committed_leader_epoch if has_leader_epoch else -1
            value = CommittedOffset(
                entry.committed_offset, leader_epoch, entry.committed_metadata or "", now_ms, expire_ms
            )
            records.append(OffsetCommitRecord(group_id, name, entry.partition_index, value))
    return records


def _committer(context: RequestContext[Services], request: Any) -> Committer:
    version = context.api_version
    return Committer(
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id if version >= FIRST_WITH_INSTANCE_ID else None,
        has_member_epoch=version >= FIRST_WITH_MEMBER_EPOCH,
    )


def _error_code_for(context: RequestContext[Services], error: ErrorCode) -> ErrorCode:
    """Return the error as clients of this version know it."""
    if error is ErrorCode.group_id_not_found and context.api_version < FIRST_WITH_GROUP_ID_NOT_FOUND:
        return ErrorCode.illegal_generation
    return error


def _encoded(context: RequestContext[Services], found: _Sorted, error: ErrorCode) -> bytes:
    """Return the frame of the answer. Consumers commit the same partitions repeatedly, so usual answers are kept."""
    version, correlation_id = context.api_version, context.correlation_id
    rows = found.rows(_error_code_for(context, error))
    if found.refused or len(found.records) > ROWS_IN_CACHE:
        return encode_response(API_KEY, correlation_id, _response(version, rows))
    frame = _frame(version, tuple((key, tuple(of_topic)) for key, of_topic in rows))
    return frame[:4] + correlation_id.to_bytes(4, "big", signed=True) + frame[8:]


@lru_cache(maxsize=ANSWERS_IN_CACHE)
def _frame(version: int, rows: tuple[tuple[Any, tuple[tuple[int, ErrorCode], ...]], ...]) -> bytes:
    """Return the frame of an answer with correlation id 0."""
    return encode_response(API_KEY, 0, _response(version, rows))


def _response(version: int, answered: Iterable[tuple[Any, Iterable[tuple[int, ErrorCode]]]]) -> Any:
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


API = Api(
    key=API_KEY,
    name="OffsetCommit",
    min_version=2,
    max_version=10,
    reaches=reach.everything,
    begin=begin,
    handle=handle,
    names_much=True,
)
