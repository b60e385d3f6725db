"""OffsetCommit (key 8, versions 2–10): commit the offsets of a group, or of a consumer outside any group.
Rights: `READ` on the group; `READ` on the topic.

The answer leaves when the offsets are as durable as a record under acks=all. From v10 on topics are named by
id. `OffsetCommits` in `coordinator/group/offsets.py` decides whether the sender may commit to the group
(`check`), and whether the offsets fit (`check_room`). Source: Kafka's KafkaApis.handleOffsetCommitRequest,
OffsetMetadataManager.commitOffset.

`CommitRepeats` is the fast path for requests that equal an earlier one except for correlation id, offsets and
leader epochs: a consumer commits the same partitions again and again. The gateway decodes the first such
request, and caches its shape: the sender, the group, the partitions, and the bytes of the answer. A later
request of the same shape is compared with it byte for byte, and its numbers are taken out, by one `struct`
call. The commit itself is judged by the same code as any other commit. With an authorizer, each repeat asks
for its rights anew, because clients with other rights may send the same request. After its api key, version
and correlation id a request is

    v6, v7   client_id | group_id | generation | member_id ‖ group_instance_id (v7) | topics
    v8–v10   client_id | 0 | group_id | generation | member_id ‖ group_instance_id | topics | 0

where ‖ marks the end of the prefix that finds the shape. Source: Kafka's OffsetCommitRequest.json.

The codec is written by hand because consumers commit as often as they fetch. Request:

    v2–v4    group_id, int32 generation, member_id, int64 retention_ms,
             topics[name, partitions[int32 index, int64 offset, nullable metadata]]
    v5       … without retention_ms
    v6       … int32 leader_epoch after offset
    v7       … nullable group_instance_id after member_id
    v8, v9   compact lengths and tagged fields
    v10      topic_id (16 bytes) instead of the name

Answer:

    v2       topics[name, partitions[int32 index, int16 error]]
    v3–v7    int32 throttle_ms before topics
    v8, v9   compact lengths and tagged fields
    v10      topic_id (16 bytes) instead of the name

Source: Kafka's OffsetCommitRequest.json and OffsetCommitResponse.json.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import uuid
import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from struct import Struct
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.change import Change
from seqgate.gateway.coordinator.group.offsets import Committer, TargetOffset
from seqgate.gateway.coordinator.group.records import CommittedOffset, OffsetCommitRecord
from seqgate.gateway.coordinator.group.shard import GroupShard
from seqgate.gateway.coordinator.places import TopicPartition
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import (
    NOT_REPEATED,
    Api,
    Deferred,
    HoldingBack,
    NotRepeated,
    Peer,
    RequestContext,
    ResponseBytes,
)
from seqgate.gateway.handlers.answering.limits import metadata_fits
from seqgate.gateway.handlers.answering.rights import NOTHING, refused_topics
from seqgate.gateway.protocol.frames import (
    FIXED_HEADER_BYTES,
    MAX_ITEMS,
    NO_TAGS,
    ONE_BYTE,
    MalformedRequest,
    TooManyItems,
    compact_string,
    read_unsigned_varint,
    skip_tagged_fields,
    string,
    text_of,
    unsigned_varint,
)
from seqgate.gateway.protocol.schema import Read
from seqgate.gateway.runtime.coordinators.group_coordinator import GroupCoordinator
from seqgate.gateway.runtime.coordinators.group_moves import MOVER, NOT_MOVED
from seqgate.gateway.runtime.coordinators.shards import Answered, LoadedShard, Unavailable, error_code_of
from seqgate.gateway.runtime.loop.clock import NS_PER_MS
from seqgate.gateway.runtime.partitions.registry import TopicPartitions
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.security.acls.access import Access, Operation, ResourceType

logger = logging.getLogger(__name__)

_LAST_TIME_MS: Final = 2**63 - 1
_new_tuple = tuple.__new__

TopicKey = str | bytes
"""The topic name, or from v10 on the 16 bytes of the topic id."""

LAST_WITH_RETENTION_TIME: Final = 4
FIRST_WITH_LEADER_EPOCH: Final = 6
FIRST_WITH_INSTANCE_ID: Final = 7
FIRST_FLEXIBLE: Final = 8
_FIRST_WITH_TOPIC_IDS: Final = 10
_FIRST_WITH_THROTTLE: Final = 3
_TOPIC_ID_BYTES: Final = 16
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_OFFSET: Final = Struct(">iq")
_HEAD: Final = Struct(">ii")
_ROW: Final = Struct(">ih")
_NO_THROTTLE: Final = bytes(4)


class PartitionOffset(NamedTuple):
    """The offset to commit in one partition."""

    partition: int
    offset: int
    leader_epoch: int
    """-1 when the request names none."""
    metadata: str
    position: int
    """The position of the offset in the frame."""


class TopicOffsets(NamedTuple):
    """The offsets to commit in one topic."""

    key: TopicKey
    partitions: list[PartitionOffset]


class OffsetCommitRequest(NamedTuple):
    """An OffsetCommit. `generation_id` is the member epoch in a group of the consumer protocol."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    retention_ms: int
    """The retention time that the client asks for; -1 in versions without it."""
    topics: list[TopicOffsets]


TopicErrors = tuple[TopicKey, Sequence[tuple[int, int]]]
"""A topic as the request names it, and the (partition, error code) rows of the answer."""


class _Accepted(NamedTuple):
    """A topic that exists: as the request names it, its name and id, and its partitions that exist."""

    key: TopicKey
    name: str
    topic_id: bytes
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
                for key, _, _, entries in self.accepted
            ]
        else:
            committed = [
                (key, [(entry[0], code) for entry in entries]) for key, _, _, entries in self.accepted
            ]
        if not self.refused:
            return [*committed]
        merged = dict(self.refused)
        for key, rows in committed:
            merged[key] = merged.get(key, []) + rows
        return [*merged.items()]


def begin(context: RequestContext[Services], request: OffsetCommitRequest) -> ResponseBytes | Deferred:
    """Commit the valid offsets without a task; each partition gets its own result."""
    hidden: AbstractSet[str] = NOTHING
    if context.node.access.is_on:
        if not context.may_group(Operation.READ, request.group_id):
            return _encoded(context, _all_refused(request), ErrorCode.none)
        names = set(_names(context, request))
        hidden = {name for name in names if not context.may_topic(Operation.READ, name)}
    found = _sort(context, request, hidden)
    if not found.accepted:
        return _encoded(context, found, ErrorCode.none)
    deferred = HoldingBack()
    begin_commit(
        context.services.coordinators.groups,
        committer_of(context.api_version, request),
        found.records,
        partial(_answer, context, request, found, deferred),
    )
    return deferred


def begin_commit(
    groups: GroupCoordinator,
    committer: Committer,
    records: Sequence[OffsetCommitRecord],
    answer_once_durable: Answered,
    known: LoadedShard[GroupShard] | None = None,
) -> LoadedShard[GroupShard] | None:
    """Commit offsets with the next round of the group's shard: call `answer_once_durable` with the error once
    the round is persisted (`CoordinatorShards._run_round`).

    Return the shard that holds the group, if any. The next commit of this group may name it as `known`.
    """
    group_id = committer.group_id
    try:
        loaded = groups.loaded(group_id) if known is None else groups.shards.again(known, group_id)
    except Unavailable as error:
        answer_once_durable(None, error)
        return None
    groups.shards.ask(loaded, partial(_judge, groups, loaded, committer, records), answer_once_durable)
    return loaded


async def commit_offsets(
    groups: GroupCoordinator, committer: Committer, records: Sequence[OffsetCommitRecord]
) -> ErrorCode:
    """Commit offsets durably; return one error for all of them. Raises Unavailable."""
    loaded = groups.loaded(committer.group_id)
    return await groups.shards.run(loaded, partial(_judge, groups, loaded, committer, records))


def _judge(
    groups: GroupCoordinator,
    loaded: LoadedShard[GroupShard],
    committer: Committer,
    records: Sequence[OffsetCommitRecord],
    shard: GroupShard,
    now_ms: int,
) -> Change[ErrorCode]:
    """Return the error, or the offsets as records to write."""
    commits, max_bytes = shard.commits, loaded.max_batch_bytes
    error = commits.check(committer, records, now_ms)
    if error is ErrorCode.none:
        error = commits.check_room(records, max_bytes, groups.largest_offset_bytes)
    # the constructor of a NamedTuple takes three times as long, and this line runs for every commit
    return _new_tuple(Change, (error, records if error is ErrorCode.none else (), False, (), None))


def _answer(
    context: RequestContext[Services],
    request: OffsetCommitRequest,
    found: _Sorted,
    deferred: Deferred,
    error_code: ErrorCode | None,
    error: Exception | None,
) -> None:
    if error_code is not ErrorCode.none and error is None and request.member_id == MOVER:
        task = context.node.loop.create_task(_move(context, request.group_id, found, deferred))
        _moving.add(task)
        task.add_done_callback(_moving.discard)
        return
    try:
        deferred.resolve(_encoded(context, found, error_code_of(error) if error_code is None else error_code))
    except Exception:
        logger.exception("OffsetCommit v%d of %s failed", context.api_version, context.peer.name)
        deferred.fail()


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
            error = await commit_offsets(
                context.services.coordinators.groups,
                committer_of(context.api_version, request),
                found.records,
            )
        except Unavailable as unavailable:
            error = unavailable.error_code
    return _response(context, found.rows(known_error(context.api_version, error)))


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
            accepted.append(_Accepted(key, topic.name, topic.topic_id_bytes, known))
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
    """Return the records of accepted offsets; add ids of entries with too long metadata to `oversize`."""
    group_id, retention_ms = request.group_id, request.retention_ms
    now_ms = context.node.clock.now_ms()
    expire_ms = -1 if retention_ms < 0 else min(now_ms + retention_ms, _LAST_TIME_MS)
    records = []
    for _, name, topic_id, entries in accepted:
        stored_id = topic_id if expire_ms < 0 else b""  # the record of an own retention time has no field
        for entry in entries:
            index, offset, leader_epoch, metadata, _ = entry
            if metadata and not metadata_fits(context.node, metadata):
                oversize.add(id(entry))
                continue
            value = CommittedOffset(offset, leader_epoch, metadata, now_ms, expire_ms, stored_id)
            records.append(OffsetCommitRecord(group_id, name, index, value))
    return records


def _encoded(context: RequestContext[Services], found: _Sorted, error: ErrorCode) -> bytes:
    rows = found.rows(known_error(context.api_version, error))
    return encode_offset_commit_response(context.api_version, context.correlation_id, rows)


def _response(context: RequestContext[Services], answered: Iterable[TopicErrors]) -> Any:
    """Return the answer as kio's entity: a thread encodes it."""
    topics = [
        {
            **({"name": key} if isinstance(key, str) else {"topic_id": uuid.UUID(bytes=key)}),
            "partitions": [{"partition_index": index, "error_code": ErrorCode(code)} for index, code in rows],
        }
        for key, rows in answered
    ]
    return context.answer(topics=topics)


FIRST_VERSION: Final = FIRST_WITH_LEADER_EPOCH
"""The first version whose requests name leader epochs. Older requests are always decoded."""
PREFIX_START: Final = 8
_NUMBERS_BYTES: Final = 12
MAX_SHAPES: Final = 2048
"""Shapes cached for each version. One more empties the table."""
MAX_FRAME_BYTES: Final = 1024
"""Longer requests are not cached, and are decoded each time."""
MAX_CHANGES: Final = 8
"""Shapes cached for each sender. If a sender uses more shapes, all its later requests are decoded."""


def prefix_end(frame: memoryview, api_version: int, client_id_bytes: int) -> int:
    """Return the end of the prefix of a request whose texts are short. Raises IndexError. For any other
    request the result is meaningless: its prefix is then found, if at all, with a shape that differs.
    """
    body = FIXED_HEADER_BYTES
    if client_id_bytes > 0:
        body += client_id_bytes
    if api_version >= FIRST_FLEXIBLE:
        generation = body + 1 + frame[body + 1]
        return generation + 4 + frame[generation + 4]
    member = body + 2 + (frame[body] << 8 | frame[body + 1]) + 4
    return member + 2 + (frame[member] << 8 | frame[member + 1])


class CommitShape:
    """All bytes of a request after its correlation id but the offsets and leader epochs."""

    __slots__ = ("_constant", "_size_bytes", "_unpack")

    def __init__(self, frame: bytes, positions: Sequence[int]) -> None:
        """Take the shape of a frame, given the positions of its offsets, in order and at least one."""
        ends = [PREFIX_START, *(position + _NUMBERS_BYTES for position in positions)]
        gaps = [position - end for end, position in zip(ends, positions, strict=False)]
        layout = "".join(f"{gap}sqi" for gap in gaps) + f"{len(frame) - ends[-1]}s"
        self._size_bytes = len(frame)
        self._unpack = Struct(f">{layout}").unpack_from
        self._constant = self._unpack(frame, PREFIX_START)[0::3]

    def numbers(self, frame: memoryview) -> tuple[Sequence[int], Sequence[int]] | None:
        """Return the offsets and leader epochs of a request of this shape; None if it has another shape."""
        if len(frame) != self._size_bytes:
            return None
        values = self._unpack(frame, PREFIX_START)
        if values[0::3] != self._constant:
            return None
        return values[1::3], values[2::3]


class _Target:
    """The group, partitions and answer of the requests of one shape."""

    __slots__ = (
        "_answer_end",
        "_answer_size",
        "_api_version",
        "_last_indexes",
        "_names",
        "_places",
        "_topics",
        "changes",
        "committer",
        "loaded",
        "shape",
    )

    def __init__(
        self,
        context: RequestContext[Services],
        request: OffsetCommitRequest,
        topics: list[TopicPartitions],
        shape: CommitShape,
        changes: int,
    ) -> None:
        self.shape = shape
        self.changes = changes
        """The number of shapes that the same sender had before."""
        self.committer = committer_of(context.api_version, request)
        self.loaded: Callable[[], LoadedShard[Any] | None] = lambda: None
        """Returns the shard of the last commit. A lost shard must not stay in memory for it."""
        self._names = dict.fromkeys(topic.name for topic in topics)
        self._places = [
            (topic.name, topic.topic_id_bytes, entry.partition, entry.metadata)
            for topic, (_, entries) in zip(topics, request.topics, strict=True)
            for entry in entries
        ]
        self._topics = [(key, [entry.partition for entry in entries]) for key, entries in request.topics]
        self._last_indexes = [
            (key, topic.topic_id_bytes, max(indexes))
            for topic, (key, indexes) in zip(topics, self._topics, strict=True)
        ]
        self._api_version = context.api_version
        answer = self._frame(0, ErrorCode.none)
        self._answer_size, self._answer_end = answer[:4], answer[8:]
        """The answer to a commit that succeeded, but for the correlation id between them."""

    def is_served(self, topics: dict[str | bytes, TopicPartitions]) -> bool:
        """Whether all partitions exist, of the topics that had these names when the shape was learned."""
        for key, topic_id, last_index in self._last_indexes:
            topic = topics.get(key)
            if topic is None or topic.count <= last_index or topic.topic_id_bytes != topic_id:
                return False
        return True

    def is_allowed(self, access: Access, peer: Peer) -> bool:
        """Return whether the client may commit these offsets of the group."""
        principal, host = peer.principal, peer.peer_host
        return access.allows(
            principal, host, Operation.READ, ResourceType.GROUP, self.committer.group_id
        ) and all(
            access.allows(principal, host, Operation.READ, ResourceType.TOPIC, name) for name in self._names
        )

    def records(
        self, offsets: Sequence[int], leader_epochs: Sequence[int], now_ms: int
    ) -> list[OffsetCommitRecord]:
        group_id = self.committer.group_id
        # The constructor of a NamedTuple costs three times as much, and this runs for every partition of
        # every commit.
        return [
            _new_tuple(
                OffsetCommitRecord,
                (
                    group_id,
                    name,
                    index,
                    _new_tuple(CommittedOffset, (offset, leader_epoch, metadata, now_ms, -1, topic_id)),
                ),
            )
            for (name, topic_id, index, metadata), offset, leader_epoch in zip(
                self._places, offsets, leader_epochs, strict=True
            )
        ]

    def answer(
        self, deferred: Deferred, correlation_id: int, error_code: ErrorCode | None, error: Exception | None
    ) -> None:
        """Answer a commit that is durable or refused."""
        try:
            if error_code is ErrorCode.none:
                correlation = correlation_id.to_bytes(4, "big", signed=True)
                frame = self._answer_size + correlation + self._answer_end
            else:
                code = error_code_of(error) if error_code is None else error_code
                frame = self._frame(correlation_id, known_error(self._api_version, code))
        except Exception:
            logger.exception(
                "OffsetCommit v%d of group %s failed", self._api_version, self.committer.group_id
            )
            deferred.fail()
        else:
            deferred.resolve(frame)

    def _frame(self, correlation_id: int, error: ErrorCode) -> bytes:
        code = int(error)
        rows = [(key, [(index, code) for index in indexes]) for key, indexes in self._topics]
        return encode_offset_commit_response(self._api_version, correlation_id, rows)


class CommitRepeats:
    """Begins repeats of OffsetCommit requests of one version (`Repeats`)."""

    def __init__(self, services: Services, api_version: int) -> None:
        self._services = services
        self._api_version = api_version
        self.begun = 0
        self._targets: dict[bytes, _Target] = {}
        """The cached commits by request prefix. A prefix has the shape of the last decoded request."""

    def begin(
        self, peer: Peer, frame: memoryview, correlation_id: int, client_id_bytes: int
    ) -> ResponseBytes | Deferred | NotRepeated | None:
        try:
            end = prefix_end(frame, self._api_version, client_id_bytes)
        except IndexError:
            return NOT_REPEATED
        target = self._targets.get(frame[PREFIX_START:end].tobytes())
        if target is None:
            return NOT_REPEATED
        services = self._services
        access = services.node.access
        if access.is_on and not target.is_allowed(access, peer):
            return NOT_REPEATED
        numbers = target.shape.numbers(frame)
        if numbers is None or not target.is_served(services.partitions.registry.by_key):
            return NOT_REPEATED
        self.begun += 1
        records = target.records(*numbers, services.node.clock.now_ns() // NS_PER_MS)
        deferred = HoldingBack()
        known = target.loaded()
        loaded = begin_commit(
            services.coordinators.groups,
            target.committer,
            records,
            partial(target.answer, deferred, correlation_id),
            known,
        )
        if loaded is not None and loaded is not known:
            target.loaded = weakref.ref(loaded)
        return deferred

    def learn(
        self, frame: memoryview, context: RequestContext[Services], request: OffsetCommitRequest
    ) -> None:
        if context.api_version < FIRST_VERSION or len(frame) > MAX_FRAME_BYTES or request.member_id == MOVER:
            return
        topics = _repeated_topics(context, request)
        if topics is None:
            return
        positions = [entry.position for _, entries in request.topics for entry in entries]
        client_id_bytes = int.from_bytes(frame[8:10], "big", signed=True)
        end = prefix_end(frame, self._api_version, client_id_bytes)
        if end > positions[0]:
            return
        prefix = frame[PREFIX_START:end].tobytes()
        known = self._targets.get(prefix)
        changes = 0 if known is None else known.changes + 1
        if changes >= MAX_CHANGES:
            return
        if len(self._targets) >= MAX_SHAPES:
            self._targets.clear()
        shape = CommitShape(bytes(frame), positions)
        self._targets[prefix] = _Target(context, request, topics, shape, changes)


def _repeated_topics(
    context: RequestContext[Services], request: OffsetCommitRequest
) -> list[TopicPartitions] | None:
    """Return the topics of a request; None if it names nothing or must be refused in part."""
    by_key = context.services.partitions.registry.by_key
    topics = []
    for key, entries in request.topics:
        topic = by_key.get(key)
        if topic is None or not entries:
            return None
        for entry in entries:
            if not topic.has(entry.partition) or (
                entry.metadata and not metadata_fits(context.node, entry.metadata)
            ):
                return None
        topics.append(topic)
    return topics or None


# The rules for every OffsetCommit, whether the gateway decodes the request or recognizes it as a repeat.

_FIRST_WITH_GROUP_ID_NOT_FOUND: Final = 9
_FIRST_WITH_MEMBER_EPOCH: Final = 9


def committer_of(api_version: int, request: OffsetCommitRequest) -> Committer:
    return Committer(
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        api_version >= _FIRST_WITH_MEMBER_EPOCH,
    )


def known_error(api_version: int, error: ErrorCode) -> ErrorCode:
    """Return the error as clients of this version know it."""
    if error is ErrorCode.group_id_not_found and api_version < _FIRST_WITH_GROUP_ID_NOT_FOUND:
        return ErrorCode.illegal_generation
    return error


# Answers the OffsetCommit of another gateway that moves a group forward
# (`seqgate.gateway.runtime.coordinators.group_moves`).

_moving: set[asyncio.Task[None]] = set()
"""The moves in progress, at most as many as requests."""


async def _move(context: RequestContext[Services], group_id: str, found: _Sorted, deferred: Deferred) -> None:
    """Move the group, and answer once that is durable."""
    before: Container[TopicPartition] = ()
    error: ErrorCode = NOT_MOVED
    if context.may_cluster(Operation.CLUSTER_ACTION):
        targets = [
            TargetOffset((record.topic, record.partition), record.value.offset, record.value.leader_epoch)
            for record in found.records
            if record.value is not None
        ]
        try:
            before = await context.services.coordinators.groups.run(
                group_id, lambda shard, effects: shard.commits.move_forward(group_id, targets, effects)
            )
        except Unavailable as unavailable:
            error = unavailable.error_code
    else:
        error = ErrorCode.group_authorization_failed
    rows: list[TopicErrors] = [
        (key, [(entry[0], 0 if (name, entry[0]) in before else int(error)) for entry in entries])
        for key, name, _, entries in found.accepted
    ]
    rows += found.refused.items()
    deferred.resolve(encode_offset_commit_response(context.api_version, context.correlation_id, rows))


# The codec.


def offset_commit_reader(version: int) -> Read:
    """Return the reader of requests of one version. The reader raises MalformedRequest."""

    def read_request(frame: memoryview, position: int) -> tuple[OffsetCommitRequest, int]:
        # Slices of bytes are cheaper than those of a memoryview, and end at the frame's end without an error.
        raw = bytes(frame)
        try:
            request, end = _read(raw, position, version)
        except (IndexError, struct.error):
            raise MalformedRequest(f"the request ends within a field, after {len(raw)} bytes") from None
        if end > len(raw):
            raise MalformedRequest(
                f"a field ends at position {end}, after the end of the request of {len(raw)} bytes"
            )
        return request, end

    return read_request


def _read(raw: bytes, position: int, version: int) -> tuple[OffsetCommitRequest, int]:
    flexible = version >= FIRST_FLEXIBLE
    text = _compact_text if flexible else _legacy_text
    group_id, position = text(raw, position)
    (generation_id,) = _INT32.unpack_from(raw, position)
    member_id, position = text(raw, position + 4)
    group_instance_id, retention_ms = None, -1
    if version >= FIRST_WITH_INSTANCE_ID:
        group_instance_id, position = text(raw, position)
    if version <= LAST_WITH_RETENTION_TIME:
        (retention_ms,) = _INT64.unpack_from(raw, position)
        position += _INT64.size
    topics, position = _read_topics(raw, position, version)
    if flexible:
        position = skip_tagged_fields(raw, position)
    if group_id is None or member_id is None:
        raise MalformedRequest(f"{'group_id' if group_id is None else 'member_id'} is null")
    request = OffsetCommitRequest(group_id, generation_id, member_id, group_instance_id, retention_ms, topics)
    return request, position


def _read_topics(raw: bytes, position: int, version: int) -> tuple[list[TopicOffsets], int]:
    flexible = version >= FIRST_FLEXIBLE
    text, count = (_compact_text, _compact_count) if flexible else (_legacy_text, _legacy_count)
    topic_count, position = count(raw, position)
    items = topic_count
    if items > MAX_ITEMS:
        raise TooManyItems(items)
    topics = []
    for _ in range(topic_count):
        key: TopicKey | None
        if version >= _FIRST_WITH_TOPIC_IDS:
            key = raw[position : position + _TOPIC_ID_BYTES]
            position += _TOPIC_ID_BYTES
        else:
            key, position = text(raw, position)
        partition_count, position = count(raw, position)
        items += partition_count
        if items > MAX_ITEMS:
            raise TooManyItems(items)
        partitions = []
        for _ in range(partition_count):
            index, offset = _OFFSET.unpack_from(raw, position)
            offset_at = position + _INT32.size
            position += _OFFSET.size
            leader_epoch = -1
            if version >= FIRST_WITH_LEADER_EPOCH:
                (leader_epoch,) = _INT32.unpack_from(raw, position)
                position += _INT32.size
            metadata, position = text(raw, position)
            partitions.append(PartitionOffset(index, offset, leader_epoch, metadata or "", offset_at))
            if flexible:
                position = skip_tagged_fields(raw, position)
        if flexible:
            position = skip_tagged_fields(raw, position)
        if key is None:
            raise MalformedRequest("a topic name is null")
        topics.append(TopicOffsets(key, partitions))
    return topics, position


def _compact_text(raw: bytes, position: int) -> tuple[str | None, int]:
    """Read a nullable text; return it and the next position, which may lie after the end of the frame."""
    size = raw[position]
    position += 1
    if size >= ONE_BYTE:
        size, position = read_unsigned_varint(raw, position - 1)
    if not size:
        return None, position
    end = position + size - 1
    return text_of(raw[position:end]), end


def _legacy_text(raw: bytes, position: int) -> tuple[str | None, int]:
    (size,) = _INT16.unpack_from(raw, position)
    position += _INT16.size
    if size < 0:
        return None, position
    end = position + size
    return text_of(raw[position:end]), end


def _compact_count(raw: bytes, position: int) -> tuple[int, int]:
    """Read the length of an array; return it with the next position. Raises MalformedRequest when the length
    is null, or when the frame has fewer bytes left than the length.
    """
    value, position = read_unsigned_varint(raw, position)
    return _checked(value - 1, len(raw) - position), position


def _legacy_count(raw: bytes, position: int) -> tuple[int, int]:
    (value,) = _INT32.unpack_from(raw, position)
    return _checked(value, len(raw) - position - _INT32.size), position + _INT32.size


def _checked(count: int, left: int) -> int:
    if not 0 <= count <= left:
        raise MalformedRequest(f"an array has the length {count}, and {left} bytes are left")
    return count


def encode_offset_commit_response(version: int, correlation_id: int, topics: Sequence[TopicErrors]) -> bytes:
    """Return the whole frame of an answer, size included. Raises struct.error for a name that is too long."""
    flexible = version >= FIRST_FLEXIBLE
    count, text, no_tags = (
        (unsigned_varint, compact_string, NO_TAGS) if flexible else (_INT32.pack, string, b"")
    )
    one_more = 1 if flexible else 0
    pieces = [
        no_tags,
        _NO_THROTTLE if version >= _FIRST_WITH_THROTTLE else b"",
        count(len(topics) + one_more),
    ]
    for key, rows in topics:
        pieces += (key if isinstance(key, bytes) else text(key), count(len(rows) + one_more))
        for index, error_code in rows:
            pieces += (_ROW.pack(index, error_code), no_tags)
        pieces.append(no_tags)
    pieces.append(no_tags)
    body = b"".join(pieces)
    return _HEAD.pack(len(body) + 4, correlation_id) + body


API = Api(
    key=8,
    versions=(2, 10),
    reaches=api.everything,
    begin=begin,
    handle=handle,
    reader=offset_commit_reader,
    repeats=CommitRepeats,
    names_much=True,
)
