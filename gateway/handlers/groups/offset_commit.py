"""OffsetCommit (key 8, versions 2–10): commit the offsets of a group, or of a consumer outside any group.

The answer leaves when the offsets are as durable as a record under acks=all. From v10 on topics are named by id.
A client needs READ on the group and on each topic.
Source: Kafka's KafkaApis.handleOffsetCommitRequest, OffsetMetadataManager.commitOffset.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from gateway.coordinator.group.records import CommittedOffset, OffsetCommitRecord
from gateway.handlers.answering import api
from gateway.handlers.answering.api import Answer, Api, Deferred, RequestContext
from gateway.handlers.answering.named_twice import metadata_fits
from gateway.handlers.answering.rights import NOTHING, refused_topics, refused_topics_now
from gateway.handlers.groups.commit_repeats import CommitRepeats
from gateway.handlers.groups.commit_request import committer_of, known_error
from gateway.handlers.groups.moved_offsets import Errors, begin_move
from gateway.protocol.messages import build, response_module
from gateway.protocol.offset_commit_codec import (
    OffsetCommitRequest,
    PartitionOffset,
    TopicErrors,
    TopicKey,
    encode_offset_commit_response,
    offset_commit_reader,
)
from gateway.runtime.coordinators.moving import MOVER
from gateway.runtime.operations.operations import Unavailable, error_code_of
from gateway.runtime.services import Services
from gateway.security.acls.codes import Operation

API_KEY: Final = 8
_LAST_TIME_MS: Final = 2**63 - 1

logger = logging.getLogger(__name__)


class _Accepted(NamedTuple):
    """A topic that exists: as the request names it, its name, and its partitions that exist."""

    key: TopicKey
    name: str
    entries: list[PartitionOffset]


class _Sorted(NamedTuple):
    """A request, split into the offsets to commit and the offsets that are refused at once."""

    accepted: list[_Accepted]
    records: list[OffsetCommitRecord]
    oversize: set[int]
    """The ids of the accepted entries whose metadata is too long."""
    refused: dict[TopicKey, list[tuple[int, int]]]

    def rows(self, error: ErrorCode) -> list[TopicErrors]:
        """Return the rows of the answer, given the error of the commit."""
        code = int(error)
        if self.oversize:
            oversize, oversize_code = self.oversize, code or int(ErrorCode.offset_metadata_too_large)
            committed = [
                (key, [(entry[0], oversize_code if id(entry) in oversize else code) for entry in entries])
                for key, _, entries in self.accepted
            ]
        else:
            committed = [(key, [(entry[0], code) for entry in entries]) for key, _, entries in self.accepted]
        if not self.refused:
            return [*committed]
        merged = dict(self.refused)
        for key, rows in committed:
            merged[key] = merged.get(key, []) + rows
        return [*merged.items()]


def begin(context: RequestContext[Services], request: OffsetCommitRequest) -> Answer | Deferred:
    """Commit the valid offsets without a task; each partition gets its own result."""
    hidden: AbstractSet[str] = NOTHING
    if context.node.access.is_on:
        if not context.may_group(Operation.READ, request.group_id):
            return _encoded(context, _all_refused(request), ErrorCode.none)
        hidden = refused_topics_now(context, Operation.READ, _names(context, request))
    found = _sort(context, request, hidden)
    if not found.accepted:
        return _encoded(context, found, ErrorCode.none)
    deferred = Deferred(holds_back=True)
    context.services.coordinators.groups.begin_commit(
        committer_of(context.api_version, request),
        found.records,
        partial(_answer, context, request, found, deferred),
    )
    return deferred


def _answer(
    context: RequestContext[Services],
    request: OffsetCommitRequest,
    found: _Sorted,
    deferred: Deferred,
    error_code: ErrorCode | None,
    error: Exception | None,
) -> None:
    if error_code is not ErrorCode.none and error is None and request.member_id == MOVER:
        begin_move(context, request.group_id, found.records, partial(_answer_move, context, found, deferred))
        return
    try:
        deferred.resolve(_encoded(context, found, error_code_of(error) if error_code is None else error_code))
    except Exception:
        logger.exception("OffsetCommit v%d of %s failed", context.api_version, context.peer.name)
        deferred.fail()


def _answer_move(
    context: RequestContext[Services], found: _Sorted, deferred: Deferred, error_of: Errors
) -> None:
    rows: list[TopicErrors] = [
        (key, [(entry[0], int(error_of((name, entry[0])))) for entry in entries])
        for key, name, entries in found.accepted
    ]
    rows += found.refused.items()
    deferred.resolve(encode_offset_commit_response(context.api_version, context.correlation_id, rows))


async def handle(context: RequestContext[Services], request: OffsetCommitRequest) -> Any:
    """Commit the valid offsets of a large request, whose answer a thread encodes."""
    if context.may_group(Operation.READ, request.group_id):
        hidden = await refused_topics(context, Operation.READ, _names(context, request))
        found = _sort(context, request, hidden)
    else:
        found = _all_refused(request)
    error = ErrorCode.none
    if found.accepted:
        try:
            error = await context.services.coordinators.groups.commit(
                committer_of(context.api_version, request), found.records
            )
        except Unavailable as unavailable:
            error = unavailable.error_code
    return _response(context.api_version, found.rows(known_error(context.api_version, error)))


def _sort(
    context: RequestContext[Services], request: OffsetCommitRequest, hidden: AbstractSet[str]
) -> _Sorted:
    by_key = context.services.partitions.registry.by_key
    refused: dict[TopicKey, list[tuple[int, int]]] = {}
    accepted: list[_Accepted] = []
    for key, entries in request.topics:
        topic = by_key.get(key)
        if hidden and _name(context, key) in hidden:
            error = ErrorCode.topic_authorization_failed
            refused.setdefault(key, []).extend((entry.partition, int(error)) for entry in entries)
            continue
        if topic is None:
            error = (
                ErrorCode.unknown_topic_or_partition if isinstance(key, str) else ErrorCode.unknown_topic_id
            )
            refused.setdefault(key, []).extend((entry.partition, int(error)) for entry in entries)
            continue
        count = topic.count
        known = [entry for entry in entries if 0 <= entry[0] < count]
        if len(known) < len(entries):
            unknown = int(ErrorCode.unknown_topic_or_partition)
            missing = [entry.partition for entry in entries if not 0 <= entry.partition < count]
            refused.setdefault(key, []).extend((index, unknown) for index in missing)
        if known:
            accepted.append(_Accepted(key, topic.name, known))
    oversize: set[int] = set()
    records = _records(context, request, accepted, oversize) if accepted else []
    return _Sorted(accepted, records, oversize, refused)


def _all_refused(request: OffsetCommitRequest) -> _Sorted:
    """Return a request whose client may not commit offsets of the group."""
    error = ErrorCode.group_authorization_failed
    refused: dict[TopicKey, list[tuple[int, int]]] = {}
    for key, entries in request.topics:
        refused.setdefault(key, []).extend((entry.partition, int(error)) for entry in entries)
    return _Sorted([], [], set(), refused)


def _names(context: RequestContext[Services], request: OffsetCommitRequest) -> Iterator[str]:
    """Yield the names of the topics of a request, but for ids that nobody has."""
    for key, _ in request.topics:
        name = _name(context, key)
        if name is not None:
            yield name


def _name(context: RequestContext[Services], key: TopicKey) -> str | None:
    """Return the name of the topic that a request names; None for an id that nobody has."""
    if isinstance(key, str):
        return key
    topic = context.services.partitions.registry.by_key.get(key)
    return None if topic is None else topic.name


def _records(
    context: RequestContext[Services],
    request: OffsetCommitRequest,
    accepted: list[_Accepted],
    oversize: set[int],
) -> list[OffsetCommitRecord]:
    """Return the records of the accepted offsets; add the ids of entries with too long metadata to `oversize`."""
    group_id, retention_ms = request.group_id, request.retention_ms
    now_ms = context.node.clock.now_ms()
    expire_ms = -1 if retention_ms < 0 else min(now_ms + retention_ms, _LAST_TIME_MS)
    records = []
    for _, name, entries in accepted:
        for entry in entries:
            index, offset, leader_epoch, metadata, _ = entry
            if metadata and not metadata_fits(context.node, metadata):
                oversize.add(id(entry))
                continue
            value = CommittedOffset(offset, leader_epoch, metadata, now_ms, expire_ms)
            records.append(OffsetCommitRecord(group_id, name, index, value))
    return records


def _encoded(context: RequestContext[Services], found: _Sorted, error: ErrorCode) -> bytes:
    rows = found.rows(known_error(context.api_version, error))
    return encode_offset_commit_response(context.api_version, context.correlation_id, rows)


def _response(version: int, answered: Iterable[TopicErrors]) -> Any:
    """Return the answer as kio's entity: a thread encodes it."""
    module = response_module(API_KEY, version)
    topics = tuple(
        build(
            module.OffsetCommitResponseTopic,
            **({"name": key} if isinstance(key, str) else {"topic_id": uuid.UUID(bytes=key)}),
            partitions=tuple(
                build(
                    module.OffsetCommitResponsePartition,
                    partition_index=index,
                    error_code=ErrorCode(code),
                )
                for index, code in rows
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
    reaches=api.everything,
    begin=begin,
    handle=handle,
    reader=offset_commit_reader,
    repeats=CommitRepeats,
    names_much=True,
)
