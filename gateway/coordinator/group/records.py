"""The records of `__consumer_offsets`, in Kafka's formats, so that Kafka's own tools read them.

    key                                          value
    int16 1 | group | topic | int32 partition    v4: int16 4 | int64 offset | int32 leader_epoch |
                                                 compact metadata | int64 commit_timestamp |
                                                 tagged fields: 0: topic_id (16 bytes)

An offset with a retention time of its own has value v1: int16 1 | offset | metadata | commit_timestamp |
int64 expire_timestamp. Key 0 has the layout of key 1. Offsets are encoded by hand, because a commit writes
many; every other kind of record is a row. Groups are written as v3, and also read as v4, which is v3 in the
compact encoding; older values are read too. A null value deletes. Source: Kafka's
OffsetCommitKey/Value.json, GroupMetadataKey/Value.json, GroupCoordinatorRecordSerde.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from struct import Struct
from typing import Any, Final, NamedTuple

from seqgate.gateway.coordinator.group import consumer_group, share_group
from seqgate.gateway.coordinator.rows import (
    BYTES,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    Field,
    FieldReader,
    Row,
    RowRecord,
    array,
    structure,
)
from seqgate.gateway.coordinator.streams import records as streams_records
from seqgate.gateway.protocol.frames import NO_TAGS, MalformedRequest, compact_string, string

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_OFFSET_VALUE_HEAD: Final = Struct(">hqi")
_OFFSET_VALUE_END: Final = Struct(">q3s16s")
_BARE_OFFSET_VALUE: Final = Struct(">hqiBq3s16s")
_TOPIC_ID_TAG: Final = 0
_TOPIC_ID_BYTES: Final = 16
_TOPIC_ID_FOLLOWS: Final = bytes((1, _TOPIC_ID_TAG, _TOPIC_ID_BYTES))
"""One tagged field, its tag and its size."""
KEYS_IN_CACHE: Final = 4096
"""Keys of committed offsets that are kept encoded: a consumer commits the same partitions again and again."""
LONGEST_ID_IN_CACHE: Final = 255
"""Longer group ids are encoded each time, so that the keys take little memory."""
_OFFSET_KEYS: Final = (0, 1)
_OFFSET_KEY: Final = 1
_WRITTEN_GROUP: Final = 3
_WRITTEN_OFFSET: Final = 4
_NEWEST_READ: Final = 4
_FIRST_COMPACT: Final = 4
_WITH_EXPIRY: Final = 1


class MemberMetadata(NamedTuple):
    """The stored fields of a member; times in ms."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadata(NamedTuple):
    """The stored fields of a group; `state_since_ms` is -1 when unknown."""

    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader: str | None
    state_since_ms: int
    members: tuple[MemberMetadata, ...]


class CommittedOffset(NamedTuple):
    """A committed offset.

    `leader_epoch` is -1 when the commit named none. `expire_timestamp_ms` is -1 unless the commit asked for a
    retention time of its own (OffsetCommit v2–v4). `topic_id` has the 16 bytes of the id that the topic had
    then: an offset counts for no other topic of this name (`is_of`). An offset with a retention time of its
    own has none, and so has one of a release before topic ids.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    topic_id: bytes = b""

    def is_of(self, topic_id: bytes) -> bool:
        """Whether the offset is of the topic that has this id. Source: Kafka's isMismatchedTopicId."""
        return not self.topic_id or self.topic_id == topic_id


class GroupMetadataRecord(NamedTuple):
    """The state of a group from this record on; None deletes the group."""

    group_id: str
    value: GroupMetadata | None


class OffsetCommitRecord(NamedTuple):
    """A group's offset in one partition from this record on; None deletes the offset."""

    group_id: str
    topic: str
    partition: int
    value: CommittedOffset | None


GroupRecord = GroupMetadataRecord | OffsetCommitRecord | RowRecord


def _member(*fields: Any) -> MemberMetadata:
    """Return a decoded member; a member without a rebalance timeout has the session timeout for it."""
    member = MemberMetadata(*fields)
    has_timeout = member.rebalance_timeout_ms >= 0
    return member if has_timeout else member._replace(rebalance_timeout_ms=member.session_timeout_ms)


GROUP: Final = Row(
    2,
    structure(
        GroupMetadata,
        Field("protocol_type", STRING),
        Field("generation_id", INT32),
        Field("protocol_name", NULLABLE_STRING),
        Field("leader", NULLABLE_STRING),
        Field("state_since_ms", INT64, absent=-1, since=2),
        Field(
            "members",
            array(
                structure(
                    _member,
                    Field("member_id", STRING),
                    Field("group_instance_id", NULLABLE_STRING, since=3),
                    Field("client_id", STRING),
                    Field("client_host", STRING),
                    Field("rebalance_timeout_ms", INT32, absent=-1, since=1),
                    Field("session_timeout_ms", INT32),
                    Field("subscription", BYTES),
                    Field("assignment", BYTES),
                )
            ),
        ),
    ),
    written=_WRITTEN_GROUP,
    newest=_NEWEST_READ,
    first_compact=_FIRST_COMPACT,
)
_BY_KIND: Final = {
    row.kind: row for row in (GROUP, *consumer_group.ROWS, *share_group.ROWS, *streams_records.ROWS)
}


class UnreadableRecord(ValueError):
    """The bytes are no record of this topic, or the record has a newer version than this release reads."""


def encode(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Return the record's (key, value) for the log. Raises ValueError for a string that is too long."""
    try:
        if isinstance(record, OffsetCommitRecord):
            value = record.value
            is_short = len(record.group_id) <= LONGEST_ID_IN_CACHE
            key_of = _known_offset_key if is_short else _offset_key
            key = key_of(record.group_id, record.topic, record.partition)
            return key, None if value is None else _offset_value(value)
        if isinstance(record, RowRecord):
            return record.row.encode(record.names, record.value)
        return GROUP.encode((record.group_id,), record.value)
    except struct.error as error:
        raise ValueError(
            f"a string in the record is too long to be stored, at most 32767 bytes: {error}"
        ) from error


def decode(key: bytes, value: bytes | None) -> GroupRecord | None:
    """Return the record, or None for an unknown kind of key. Raises UnreadableRecord."""
    reader = FieldReader(key)
    try:
        kind = reader.number(_INT16)
        if kind in _OFFSET_KEYS:
            group_id, topic, partition = reader.string(), reader.string(), reader.number(_INT32)
            committed = None if value is None else _read_offset(value)
            return OffsetCommitRecord(group_id, topic, partition, committed)
        row = _BY_KIND.get(kind)
        if row is None:
            return None
        names, found = row.decode(reader, value)
    except (struct.error, UnicodeDecodeError, ValueError, MalformedRequest) as error:
        raise UnreadableRecord(f"a record of a group can't be read: {error}") from error
    return GroupMetadataRecord(names[0], found) if row is GROUP else row.of(*names, found)


def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return b"".join((_INT16.pack(_OFFSET_KEY), string(group_id), string(topic), _INT32.pack(partition)))


_known_offset_key: Final = lru_cache(maxsize=KEYS_IN_CACHE)(_offset_key)


def _offset_value(value: CommittedOffset) -> bytes:
    offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id = value
    if expire_timestamp_ms >= 0:
        # only this version of the value has an expire_timestamp
        head = _INT16.pack(_WITH_EXPIRY) + _INT64.pack(offset) + string(metadata)
        return head + _INT64.pack(commit_timestamp_ms) + _INT64.pack(expire_timestamp_ms)
    if topic_id and not metadata:  # as most offsets are
        return _BARE_OFFSET_VALUE.pack(
            _WRITTEN_OFFSET, offset, leader_epoch, 1, commit_timestamp_ms, _TOPIC_ID_FOLLOWS, topic_id
        )
    head = _OFFSET_VALUE_HEAD.pack(_WRITTEN_OFFSET, offset, leader_epoch) + compact_string(metadata)
    if topic_id:
        return head + _OFFSET_VALUE_END.pack(commit_timestamp_ms, _TOPIC_ID_FOLLOWS, topic_id)
    return head + _INT64.pack(commit_timestamp_ms) + NO_TAGS


def _read_offset(value: bytes) -> CommittedOffset:
    reader = FieldReader(value)
    reader.begin(_NEWEST_READ, _FIRST_COMPACT)
    version = reader.version
    offset = reader.number(_INT64)
    leader_epoch = reader.number(_INT32) if version >= 3 else -1
    metadata, commit_timestamp_ms = reader.string(), reader.number(_INT64)
    expire_timestamp_ms = reader.number(_INT64) if version == _WITH_EXPIRY else -1
    tagged = reader.tagged_fields().get(_TOPIC_ID_TAG)
    topic_id = b"" if tagged is None else bytes(tagged.cut(_TOPIC_ID_BYTES))
    return CommittedOffset(offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id)
