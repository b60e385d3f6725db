"""The records of `__consumer_offsets`, in Kafka's formats, so that Kafka's own tools read them.

    key                                              value
    int16 1 | group | topic | int32 partition        v3: int16 3 | int64 offset | int32 leader_epoch | metadata |
                                                     int64 commit_timestamp
    int16 2 | group                                  v3: int16 3 | protocol_type | int32 generation | protocol? |
                                                     leader? | int64 state_timestamp | members[…]
    member of v3: id | group_instance_id? | client_id | client_host | int32 rebalance_timeout |
                  int32 session_timeout | subscription | assignment

An offset with a retention time of its own has value v1: int16 1 | offset | metadata | commit_timestamp |
int64 expire_timestamp. A string is an int16 length (-1: null) and UTF-8; bytes are an int32 length and the
bytes. A null value deletes. Older values are read too, and so is v4, which is v3 in the compact encoding; key
0 has the layout of key 1. Source: Kafka's OffsetCommitKey/Value.json, GroupMetadataKey/Value.json,
GroupCoordinatorRecordSerde.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from seqgate.gateway.coordinator.group import consumer_group, share_group
from seqgate.gateway.coordinator.group.consumer_group import ConsumerRecord
from seqgate.gateway.coordinator.group.record import CompactReader, PlainReader
from seqgate.gateway.coordinator.group.share_group import ShareGroupRecord
from seqgate.gateway.coordinator.streams import records as streams_records
from seqgate.gateway.coordinator.streams.records import StreamsRecord
from seqgate.gateway.protocol.frames import MalformedRequest
from seqgate.gateway.protocol.primitives import nullable_string, string

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_OFFSET_VALUE_HEAD: Final = Struct(">hqi")
_BARE_OFFSET_VALUE: Final = Struct(">hqihq")
KEYS_IN_CACHE: Final = 4096
"""Keys of committed offsets that are kept encoded: a consumer commits the same partitions again and again."""
LONGEST_ID_IN_CACHE: Final = 255
"""Longer group ids are encoded each time, so that the keys take little memory."""
_OFFSET_KEYS: Final = (0, 1)
_OFFSET_KEY: Final = 1
_GROUP_KEY: Final = 2
_WRITTEN_VERSION: Final = 3
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
    retention time of its own (OffsetCommit v2–v4).
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1


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


GroupRecord = GroupMetadataRecord | OffsetCommitRecord | ConsumerRecord | ShareGroupRecord | StreamsRecord


class UnreadableRecord(ValueError):
    """The bytes are no record of this topic, or the record has a newer version than this release reads."""


def encode(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Return the record's (key, value) for the log. Raises ValueError if a string of the record is too long."""
    try:
        if isinstance(record, OffsetCommitRecord):
            value = record.value
            is_short = len(record.group_id) <= LONGEST_ID_IN_CACHE
            key_of = _known_offset_key if is_short else _offset_key
            key = key_of(record.group_id, record.topic, record.partition)
            return key, None if value is None else _offset_value(value)
        if isinstance(record, ConsumerRecord):
            return consumer_group.encode(record)
        if isinstance(record, ShareGroupRecord):
            return share_group.encode(record)
        if isinstance(record, StreamsRecord):
            return streams_records.encode(record)
        key = _INT16.pack(_GROUP_KEY) + string(record.group_id)
        return key, None if record.value is None else _group_value(record.value)
    except struct.error as error:
        raise ValueError(
            f"a string in the record is too long to be stored, at most 32767 bytes: {error}"
        ) from error


def decode(key: bytes, value: bytes | None) -> GroupRecord | None:
    """Return the record, or None for an unknown kind of key. Raises UnreadableRecord."""
    reader = PlainReader(key)
    try:
        kind = reader.int16()
        if kind in _OFFSET_KEYS:
            group_id, topic, partition = reader.string(), reader.string(), reader.int32()
            committed = None if value is None else _read_offset(value)
            return OffsetCommitRecord(group_id, topic, partition, committed)
        if kind == _GROUP_KEY:
            group_id = reader.string()
            return GroupMetadataRecord(group_id, None if value is None else _read_group(value))
        if kind in consumer_group.KINDS:
            return consumer_group.decode(kind, _names(reader), value)
        if kind in share_group.KINDS:
            return share_group.decode(kind, _names(reader), value)
        if kind in streams_records.KINDS:
            return streams_records.decode(kind, _names(reader), value)
    except (struct.error, UnicodeDecodeError, ValueError, MalformedRequest) as error:
        raise UnreadableRecord(f"a record of a group can't be read: {error}") from error
    return None


def _names(reader: PlainReader) -> tuple[str, ...]:
    """Read the group id, and the member id if there is one."""
    group_id = reader.string()
    return (group_id,) if reader.is_at_end else (group_id, reader.string())


def _bytes(raw: bytes) -> bytes:
    return _INT32.pack(len(raw)) + raw


def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return b"".join((_INT16.pack(_OFFSET_KEY), string(group_id), string(topic), _INT32.pack(partition)))


_known_offset_key: Final = lru_cache(maxsize=KEYS_IN_CACHE)(_offset_key)


def _offset_value(value: CommittedOffset) -> bytes:
    offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms = value
    if expire_timestamp_ms >= 0:
        # only this version of the value has an expire_timestamp
        head = _INT16.pack(_WITH_EXPIRY) + _INT64.pack(offset) + string(metadata)
        return head + _INT64.pack(commit_timestamp_ms) + _INT64.pack(expire_timestamp_ms)
    if not metadata:
        return _BARE_OFFSET_VALUE.pack(_WRITTEN_VERSION, offset, leader_epoch, 0, commit_timestamp_ms)
    head = _OFFSET_VALUE_HEAD.pack(_WRITTEN_VERSION, offset, leader_epoch)
    return head + string(metadata) + _INT64.pack(commit_timestamp_ms)


def _group_value(value: GroupMetadata) -> bytes:
    pieces = [
        _INT16.pack(_WRITTEN_VERSION),
        string(value.protocol_type),
        _INT32.pack(value.generation_id),
        nullable_string(value.protocol_name),
        nullable_string(value.leader),
        _INT64.pack(value.state_since_ms),
        _INT32.pack(len(value.members)),
    ]
    for member in value.members:
        pieces += (
            string(member.member_id),
            nullable_string(member.group_instance_id),
            string(member.client_id),
            string(member.client_host),
            _INT32.pack(member.rebalance_timeout_ms),
            _INT32.pack(member.session_timeout_ms),
            _bytes(member.subscription),
            _bytes(member.assignment),
        )
    return b"".join(pieces)


def _versioned(value: bytes) -> tuple[int, PlainReader]:
    """Return the version of a value, and a reader for the rest of the value."""
    reader = PlainReader(value)
    version = reader.version(_NEWEST_READ)
    return version, reader if version < _FIRST_COMPACT else CompactReader(value[_INT16.size :])


def _read_offset(value: bytes) -> CommittedOffset:
    version, reader = _versioned(value)
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    metadata, commit_timestamp_ms = reader.string(), reader.int64()
    expire_timestamp_ms = reader.int64() if version == _WITH_EXPIRY else -1
    return CommittedOffset(offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms)


def _read_group(value: bytes) -> GroupMetadata:
    version, reader = _versioned(value)
    protocol_type = reader.string()
    generation_id = reader.int32()
    protocol_name, leader = reader.nullable_string(), reader.nullable_string()
    state_since_ms = reader.int64() if version >= 2 else -1
    members = tuple(_read_member(reader, version) for _ in range(reader.count()))
    return GroupMetadata(protocol_type, generation_id, protocol_name, leader, state_since_ms, members)


def _read_member(reader: PlainReader, version: int) -> MemberMetadata:
    member_id = reader.string()
    group_instance_id = reader.nullable_string() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    member = MemberMetadata(
        member_id,
        group_instance_id,
        client_id,
        client_host,
        session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms,
        session_timeout_ms,
        reader.octets(),
        reader.octets(),
    )
    reader.skip_tags()
    return member
