"""The records of share groups (KIP-932) in `__consumer_offsets`, in Kafka's formats.

    key (int16 kind, then int16-length strings)     value (int16 version 0, compact fields, tags)
    10 | group | member                             rack_id? | client_id | client_host | names[]
    11 | group                                      int32 group_epoch | int64 metadata_hash
    12 | group                                      int32 assignment_epoch | tag 0: int64 assigned_at_ms
    13 | group | member                             target: topics[topic_id, int32 partitions[]]
    14 | group | member                             int32 member_epoch | int32 previous_epoch | int8 state |
                                                    assigned topics[]
    15 | group                                      to be begun[] | begun[topic_id, name, int32 partitions[]] |
                                                    to be forgotten[]

A null value deletes. The hash is 0, because the assigned partitions show whether topics changed. A member's state is
always stable, and partitions are begun at once. Source: Kafka's ShareGroup*Key.json and *Value.json.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from gateway.coordinator.group.record_reader import CompactReader
from gateway.coordinator.group.record_writer import (
    NO_TAGS,
    VERSION_0,
    assigned_at_tag,
    compact_int32s,
    compact_places,
    compact_strings,
    key_of,
    nullable_compact_string,
)
from gateway.coordinator.places import Place
from gateway.protocol.frames import MalformedRequest
from gateway.protocol.primitives import compact_string, unsigned_varint

_INT32: Final = Struct(">i")
_GROUP_EPOCH: Final = Struct(">iq")
_CURRENT: Final = Struct(">iib")
_ONLY_VERSION: Final = 0
_NO_HASH: Final = 0
_STABLE: Final = 0
_NOTHING: Final = unsigned_varint(1)
MEMBER, GROUP_EPOCH, ASSIGNMENT_EPOCH, TARGET, CURRENT, BEGUN = 10, 11, 12, 13, 14, 15
KINDS: Final = frozenset((MEMBER, GROUP_EPOCH, ASSIGNMENT_EPOCH, TARGET, CURRENT, BEGUN))


class ShareMemberValue(NamedTuple):
    """A member as it describes itself: its rack, client and subscribed topics."""

    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_names: tuple[str, ...]


class ShareMemberRecord(NamedTuple):
    """A member's description from this record on; None deletes the member."""

    group_id: str
    member_id: str
    value: ShareMemberValue | None


class ShareGroupEpochRecord(NamedTuple):
    """The group's epoch from this record on; None deletes the group."""

    group_id: str
    group_epoch: int | None


class ShareAssignmentEpochRecord(NamedTuple):
    """The group epoch for which the targets were made, and the time; None deletes the assignment epoch.

    The time is 0 in a record of an earlier release.
    """

    group_id: str
    assignment_epoch: int | None
    assigned_at_ms: int = 0


class ShareTargetRecord(NamedTuple):
    """The target of a member: the partitions that it shall read; None deletes the target."""

    group_id: str
    member_id: str
    places: frozenset[Place] | None


class ShareCurrentValue(NamedTuple):
    """The epoch and partitions last sent to a member."""

    member_epoch: int
    previous_member_epoch: int
    assigned: frozenset[Place]


class ShareCurrentRecord(NamedTuple):
    """The epoch and partitions of a member from this record on; None deletes epoch and partitions."""

    group_id: str
    member_id: str
    value: ShareCurrentValue | None


class BegunTopic(NamedTuple):
    """A topic with its begun partitions, in order."""

    topic_id: uuid.UUID
    name: str
    partitions: tuple[int, ...]


class ShareBegunRecord(NamedTuple):
    """All partitions that the group was ever assigned; None deletes the record when the group is deleted."""

    group_id: str
    topics: tuple[BegunTopic, ...] | None


ShareGroupRecord = (
    ShareMemberRecord
    | ShareGroupEpochRecord
    | ShareAssignmentEpochRecord
    | ShareTargetRecord
    | ShareCurrentRecord
    | ShareBegunRecord
)


def encode(record: ShareGroupRecord) -> tuple[bytes, bytes | None]:
    """Return the record's (key, value) for the log. Raises ValueError if a string of the record is too long."""
    try:
        key, fields = _encoded(record)
    except struct.error as error:
        raise ValueError(
            f"a string in the record is too long to be stored, at most 32767 bytes: {error}"
        ) from error
    if fields is None:
        return key, None
    tags = (
        assigned_at_tag(record.assigned_at_ms) if isinstance(record, ShareAssignmentEpochRecord) else NO_TAGS
    )
    return key, VERSION_0 + fields + tags


def _encoded(record: ShareGroupRecord) -> tuple[bytes, bytes | None]:
    if isinstance(record, ShareGroupEpochRecord):
        epoch = record.group_epoch
        fields = None if epoch is None else _GROUP_EPOCH.pack(epoch, _NO_HASH)
        return key_of(GROUP_EPOCH, record.group_id), fields
    if isinstance(record, ShareAssignmentEpochRecord):
        epoch = record.assignment_epoch
        return key_of(ASSIGNMENT_EPOCH, record.group_id), None if epoch is None else _INT32.pack(epoch)
    if isinstance(record, ShareBegunRecord):
        return key_of(BEGUN, record.group_id), None if record.topics is None else _begun(record.topics)
    names = record.group_id, record.member_id
    if isinstance(record, ShareMemberRecord):
        return key_of(MEMBER, *names), None if record.value is None else _member(record.value)
    if isinstance(record, ShareTargetRecord):
        return key_of(TARGET, *names), None if record.places is None else compact_places(record.places)
    current = record.value
    if current is None:
        return key_of(CURRENT, *names), None
    head = _CURRENT.pack(current.member_epoch, current.previous_member_epoch, _STABLE)
    return key_of(CURRENT, *names), head + compact_places(current.assigned)


def _member(value: ShareMemberValue) -> bytes:
    client = compact_string(value.client_id) + compact_string(value.client_host)
    return nullable_compact_string(value.rack_id) + client + compact_strings(value.subscribed_names)


def _begun(topics: Sequence[BegunTopic]) -> bytes:
    pieces = [_NOTHING, unsigned_varint(len(topics) + 1)]
    for topic in topics:
        pieces += (
            topic.topic_id.bytes,
            compact_string(topic.name),
            compact_int32s(topic.partitions),
            NO_TAGS,
        )
    return b"".join((*pieces, _NOTHING))


def decode(kind: int, names: tuple[str, ...], value: bytes | None) -> ShareGroupRecord:
    """Return the record of one kind of key with its group and member. Raises ValueError."""
    reader = None if value is None else CompactReader(value)
    try:
        if reader is not None:
            reader.version(_ONLY_VERSION)
        if kind == GROUP_EPOCH:
            return ShareGroupEpochRecord(names[0], None if reader is None else _read_group_epoch(reader))
        if kind == ASSIGNMENT_EPOCH:
            if reader is None:
                return ShareAssignmentEpochRecord(names[0], None)
            return ShareAssignmentEpochRecord(names[0], reader.int32(), reader.assigned_at_ms())
        if kind == BEGUN:
            return ShareBegunRecord(names[0], None if reader is None else _read_begun(reader))
        group_id, member_id = names
        if kind == MEMBER:
            return ShareMemberRecord(group_id, member_id, None if reader is None else _read_member(reader))
        if kind == TARGET:
            return ShareTargetRecord(group_id, member_id, None if reader is None else reader.places())
        return ShareCurrentRecord(group_id, member_id, None if reader is None else _read_current(reader))
    except (struct.error, MalformedRequest, ValueError) as error:
        raise ValueError(f"a record of kind {kind} can't be read: {error}") from error


def _read_group_epoch(reader: CompactReader) -> int:
    epoch = reader.int32()
    reader.int64()
    return epoch


def _read_member(reader: CompactReader) -> ShareMemberValue:
    return ShareMemberValue(reader.nullable_string(), reader.string(), reader.string(), reader.strings())


def _read_current(reader: CompactReader) -> ShareCurrentValue:
    member_epoch, previous_member_epoch = reader.int32(), reader.int32()
    reader.int8()
    return ShareCurrentValue(member_epoch, previous_member_epoch, reader.places())


def _read_begun(reader: CompactReader) -> tuple[BegunTopic, ...]:
    _read_topics(reader)
    topics = _read_topics(reader)
    for _ in range(reader.count()):
        reader.uuid()
        reader.string()
        reader.skip_tags()
    return topics


def _read_topics(reader: CompactReader) -> tuple[BegunTopic, ...]:
    topics = []
    for _ in range(reader.count()):
        topic_id, name = reader.uuid(), reader.string()
        topics.append(BegunTopic(topic_id, name, tuple(reader.int32() for _ in range(reader.count()))))
        reader.skip_tags()
    return tuple(topics)
