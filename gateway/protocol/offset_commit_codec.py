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
    compact_string,
    read_unsigned_varint,
    skip_tagged_fields,
    string,
    text_of,
    unsigned_varint,
)
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
_HEAD: Final = Struct(">ii")
_ROW: Final = Struct(">ih")
_NO_TAGS: Final = b"\0"
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


TopicErrors = tuple[TopicKey, Sequence[tuple[int, int]]]
"""A topic as the request names it, and the (partition, error code) rows of the answer."""


def encode_offset_commit_response(version: int, correlation_id: int, topics: Sequence[TopicErrors]) -> bytes:
    """Return the whole frame of an answer, size included. Raises struct.error for a name that is too long."""
    flexible = version >= FIRST_FLEXIBLE
    count, text, no_tags = (
        (unsigned_varint, compact_string, _NO_TAGS) if flexible else (_INT32.pack, string, b"")
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
