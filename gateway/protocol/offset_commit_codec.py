"""The codec of OffsetCommit, written by hand because consumers commit as often as they fetch.

Request:

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

import struct
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from seqgate.gateway.protocol.frames import (
    MAX_ITEMS,
    ONE_BYTE,
    MalformedRequest,
    TooManyItems,
    read_unsigned_varint,
    skip_tagged_fields,
    text_of,
)
from seqgate.gateway.protocol.primitives import compact_string, string, unsigned_varint
from seqgate.gateway.protocol.schema import Read

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
_OFFSET_AND_EPOCH: Final = Struct(">iqi")
_HEAD: Final = Struct(">ii")
_ROW: Final = Struct(">ih")
_FLEXIBLE_ROW: Final = Struct(">ihB")
_NO_TAGS: Final = b"\0"
_FLEXIBLE_START: Final = b"\0\0\0\0\0"
"""The tagged fields of the header, none of them, and throttle_ms 0."""


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


def offset_commit_reader(version: int) -> Read:
    """Return the reader of requests of one version. The reader raises MalformedRequest."""
    read = _read_flexible if version >= FIRST_FLEXIBLE else _read_legacy

    def read_request(frame: memoryview, position: int) -> tuple[OffsetCommitRequest, int]:
        # Slices of bytes are cheaper than those of a memoryview, and end at the frame's end without an error.
        raw = bytes(frame)
        try:
            request, end = read(raw, position, version)
        except (IndexError, struct.error):
            raise MalformedRequest(f"the request ends within a field, after {len(raw)} bytes") from None
        if end > len(raw):
            raise MalformedRequest(
                f"a field ends at position {end}, after the end of the request of {len(raw)} bytes"
            )
        return request, end

    return read_request


def _read_flexible(raw: bytes, position: int, version: int) -> tuple[OffsetCommitRequest, int]:
    group_id, position = _compact_text(raw, position)
    (generation_id,) = _INT32.unpack_from(raw, position)
    member_id, position = _compact_text(raw, position + 4)
    group_instance_id, position = _compact_text(raw, position)
    count, position = _compact_count(raw, position)
    items = count
    if items > MAX_ITEMS:
        raise TooManyItems(items)
    topics = []
    for _ in range(count):
        key: TopicKey | None
        if version >= _FIRST_WITH_TOPIC_IDS:
            key = raw[position : position + _TOPIC_ID_BYTES]
            position += _TOPIC_ID_BYTES
        else:
            key, position = _compact_text(raw, position)
        partition_count, position = _compact_count(raw, position)
        items += partition_count
        if items > MAX_ITEMS:
            raise TooManyItems(items)
        partitions = []
        for _ in range(partition_count):
            index, offset, leader_epoch = _OFFSET_AND_EPOCH.unpack_from(raw, position)
            offset_at = position + _INT32.size
            metadata, position = _compact_text(raw, position + _OFFSET_AND_EPOCH.size)
            partitions.append(PartitionOffset(index, offset, leader_epoch, metadata or "", offset_at))
            position = skip_tagged_fields(raw, position)
        position = skip_tagged_fields(raw, position)
        if key is None:
            raise MalformedRequest("a topic name is null")
        topics.append(TopicOffsets(key, partitions))
    position = skip_tagged_fields(raw, position)
    return _request(group_id, generation_id, member_id, group_instance_id, -1, topics), position


def _read_legacy(raw: bytes, position: int, version: int) -> tuple[OffsetCommitRequest, int]:
    group_id, position = _legacy_text(raw, position)
    (generation_id,) = _INT32.unpack_from(raw, position)
    member_id, position = _legacy_text(raw, position + 4)
    group_instance_id, retention_ms = None, -1
    if version >= FIRST_WITH_INSTANCE_ID:
        group_instance_id, position = _legacy_text(raw, position)
    if version <= LAST_WITH_RETENTION_TIME:
        (retention_ms,) = _INT64.unpack_from(raw, position)
        position += _INT64.size
    count, position = _legacy_count(raw, position)
    items = count
    if items > MAX_ITEMS:
        raise TooManyItems(items)
    topics = []
    for _ in range(count):
        key, position = _legacy_text(raw, position)
        partition_count, position = _legacy_count(raw, position)
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
            metadata, position = _legacy_text(raw, position)
            partitions.append(PartitionOffset(index, offset, leader_epoch, metadata or "", offset_at))
        if key is None:
            raise MalformedRequest("a topic name is null")
        topics.append(TopicOffsets(key, partitions))
    return _request(group_id, generation_id, member_id, group_instance_id, retention_ms, topics), position


def _request(
    group_id: str | None,
    generation_id: int,
    member_id: str | None,
    group_instance_id: str | None,
    retention_ms: int,
    topics: list[TopicOffsets],
) -> OffsetCommitRequest:
    if group_id is None or member_id is None:
        raise MalformedRequest(f"{'group_id' if group_id is None else 'member_id'} is null")
    return OffsetCommitRequest(group_id, generation_id, member_id, group_instance_id, retention_ms, topics)


def _compact_text(raw: bytes, position: int) -> tuple[str | None, int]:
    """Read a text that can be null; return it with the next position, which may lie after the end of the
    frame.
    """
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
    """Read the length of an array; return it with the next position.

    Raises MalformedRequest when the length is null, or when the frame has fewer bytes left than the length.
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


TopicErrors = tuple[TopicKey, Sequence[tuple[int, int]]]
"""A topic as the request names it, and the (partition, error code) rows of the answer."""


def encode_offset_commit_response(version: int, correlation_id: int, topics: Sequence[TopicErrors]) -> bytes:
    """Return the whole frame of an answer, size included. Raises struct.error for a name that is too long."""
    if version >= FIRST_FLEXIBLE:
        body = _flexible_body(topics)
    else:
        body = _legacy_body(topics, with_throttle=version >= _FIRST_WITH_THROTTLE)
    return _HEAD.pack(len(body) + 4, correlation_id) + body


def _flexible_body(topics: Sequence[TopicErrors]) -> bytes:
    pieces = [_FLEXIBLE_START, unsigned_varint(len(topics) + 1)]
    for key, rows in topics:
        pieces.append(key if isinstance(key, bytes) else compact_string(key))
        pieces.append(unsigned_varint(len(rows) + 1))
        for index, error_code in rows:
            pieces.append(_FLEXIBLE_ROW.pack(index, error_code, 0))
        pieces.append(_NO_TAGS)
    pieces.append(_NO_TAGS)
    return b"".join(pieces)


def _legacy_body(topics: Sequence[TopicErrors], *, with_throttle: bool) -> bytes:
    pieces = [b"\0\0\0\0" if with_throttle else b"", _INT32.pack(len(topics))]
    for key, rows in topics:
        assert isinstance(key, str)
        pieces += (string(key), _INT32.pack(len(rows)))
        for index, error_code in rows:
            pieces.append(_ROW.pack(index, error_code))
    return b"".join(pieces)
