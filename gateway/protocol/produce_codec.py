"""The codec of Produce requests and answers, written by hand because nearly every batch has a request and an
answer of its own.

Request:

    v3–v8    transactional_id, int16 acks, int32 timeout, topics[name, partitions[int32 index, records]]
    v9–v12   compact lengths and tagged fields
    v13      topic_id (16 bytes) instead of the name

Answer:

    v3, v4   topics[name, partitions[index, error, base_offset, log_append_time]], throttle
    v5–v7    … log_start_offset
    v8       … record_errors[], error_message
    v9–v12   compact lengths and tagged fields
    v10–v13  … current_leader of a row, node_endpoints (tagged)
    v13      topic_id (16 bytes) instead of the name

Source: Kafka's ProduceRequest.json and ProduceResponse.json.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from seqgate.gateway.protocol.frames import (
    MAX_ITEMS,
    NO_TAGS,
    ONE_BYTE,
    SHORT_TEXT_BYTES,
    MalformedRequest,
    NodeEndpoint,
    TooManyItems,
    compact_string,
    nullable_string,
    read_unsigned_varint,
    skip_tagged_fields,
    string,
    tagged_node_endpoints,
    text_of,
    unsigned_varint,
)
from seqgate.gateway.protocol.schema import Read

_INT16 = Struct(">h")
_HEAD = Struct(">ii")
_FLEXIBLE_HEAD = Struct(">iix")  # the header has no tagged fields
_NO_THROTTLE = bytes(4)
_INT32 = Struct(">i")
_ROW_V3 = Struct(">ihqq")
_ROW_V5 = Struct(">ihqqq")
_ACKS_AND_TIMEOUT = Struct(">hi")
_INDEX_AND_SIZE = Struct(">ii")
_TOPIC_ID_BYTES = 16
FIRST_FLEXIBLE = 9
_FIRST_WITH_START = 5
_FIRST_WITH_ERRORS = 8
_FIRST_WITH_IDS = 13


class PartitionRecords(NamedTuple):
    """One partition of a request. `records` is a view of the frame, valid until the request has begun."""

    partition: int
    records: memoryview | None


class TopicRecords(NamedTuple):
    """One topic of a request. `key` is the topic name, or from v13 on the 16 bytes of the topic id."""

    key: str | bytes
    partitions: list[PartitionRecords]


class ProduceRequest(NamedTuple):
    """A Produce request. A valid `acks` is 0, 1 or -1 (all)."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[TopicRecords]


def produce_reader(version: int) -> Read:
    """Return the reader of requests of one version. The reader raises MalformedRequest."""

    def read_request(frame: memoryview, position: int) -> tuple[ProduceRequest, int]:
        try:
            return _read(frame, position, version)
        except (IndexError, struct.error):
            raise MalformedRequest(f"the request ends within a field, after {len(frame)} bytes") from None

    return read_request


def _read(frame: memoryview, position: int, version: int) -> tuple[ProduceRequest, int]:
    flexible = version >= FIRST_FLEXIBLE
    if flexible:
        size = frame[position] - 1
        position += 1
        if size >= ONE_BYTE - 1:
            size, position = read_unsigned_varint(frame, position - 1)
            size -= 1
    else:
        (size,) = _INT16.unpack_from(frame, position)
        position += 2
    transactional_id = None
    if size >= 0:
        transactional_id, position = _text(frame, position, size)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(frame, position)
    topics, position = _read_topics(frame, position + _ACKS_AND_TIMEOUT.size, version)
    if flexible:
        position = skip_tagged_fields(frame, position) if frame[position] else position + 1
    return ProduceRequest(transactional_id, acks, timeout_ms, topics), position


def _read_topics(frame: memoryview, position: int, version: int) -> tuple[list[TopicRecords], int]:
    flexible = version >= FIRST_FLEXIBLE
    read_count = _count if flexible else _legacy_count
    count, position = read_count(frame, position)
    items = count
    if items > MAX_ITEMS:
        raise TooManyItems(items)
    topics = []
    for _ in range(count):
        key: str | bytes
        if version >= _FIRST_WITH_IDS:
            key = bytes(frame[position : position + _TOPIC_ID_BYTES])
            position += _TOPIC_ID_BYTES
        else:
            size, position = _count(frame, position) if flexible else _legacy_size(frame, position)
            key, position = _text(frame, position, size)
        partition_count, position = read_count(frame, position)
        items += partition_count
        if items > MAX_ITEMS:
            raise TooManyItems(items)
        partitions = []
        for _ in range(partition_count):
            if flexible:
                (index,) = _INT32.unpack_from(frame, position)
                size = frame[position + 4] - 1
                position += 5
                if size >= ONE_BYTE - 1:
                    size, position = read_unsigned_varint(frame, position - 1)
                    size -= 1
                records, position = _records(frame, position, size)
                position = skip_tagged_fields(frame, position) if frame[position] else position + 1
            else:
                index, size = _INDEX_AND_SIZE.unpack_from(frame, position)
                records, position = _records(frame, position + _INDEX_AND_SIZE.size, size)
            partitions.append(PartitionRecords(index, records))
        if flexible:
            position = skip_tagged_fields(frame, position) if frame[position] else position + 1
        topics.append(TopicRecords(key, partitions))
    return topics, position


def _count(frame: memoryview, position: int) -> tuple[int, int]:
    """Read a compact length that can't be null; return it with the next position. Raises MalformedRequest
    when the frame has fewer bytes left than the length.
    """
    value = frame[position]
    position += 1
    if value >= ONE_BYTE:
        value, position = read_unsigned_varint(frame, position - 1)
    if not 0 < value <= len(frame) - position + 1:
        raise MalformedRequest(f"a length is {value - 1}, and {len(frame) - position} bytes are left")
    return value - 1, position


def _legacy_size(frame: memoryview, position: int) -> tuple[int, int]:
    (size,) = _INT16.unpack_from(frame, position)
    if size < 0:
        raise MalformedRequest("a topic name is null")
    return size, position + 2


def _legacy_count(frame: memoryview, position: int) -> tuple[int, int]:
    (count,) = _INT32.unpack_from(frame, position)
    left = len(frame) - position - 4
    if not 0 <= count <= left:
        raise MalformedRequest(f"a length is {count}, and {left} bytes are left")
    return count, position + 4


def _text(frame: memoryview, position: int, size: int) -> tuple[str, int]:
    end = position + size
    if end > len(frame):
        raise MalformedRequest(
            f"a text of {size} bytes ends {end - len(frame)} bytes after the end of the request"
        )
    raw = frame[position:end]
    return str(raw, "utf-8", "replace") if size <= SHORT_TEXT_BYTES else text_of(raw), end


def _records(frame: memoryview, position: int, size: int) -> tuple[memoryview | None, int]:
    if size < 0:
        return None, position
    end = position + size
    if end > len(frame):
        raise MalformedRequest(
            f"the records of {size} bytes end {end - len(frame)} bytes after the end of the request"
        )
    return frame[position:end], end


class ProduceRow(NamedTuple):
    """The answer for the records of one partition. A missing offset or time is −1."""

    partition: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    error_message: str | None = None
    record_errors: tuple[tuple[int, str], ...] = ()
    """The number in the batch, and the message, of each invalid record."""
    current_leader: tuple[int, int] | None = None
    """The node id and epoch of the leader, beside NOT_LEADER_OR_FOLLOWER (v10 on, KIP-951)."""


TopicRows = tuple[str | bytes, Sequence[ProduceRow]]
"""The topic name (v3–v12) or the 16 bytes of the topic id (v13), and the rows of the topic."""


def encode_produce_response(
    version: int,
    correlation_id: int,
    topics: Sequence[TopicRows],
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """Return the whole frame of a Produce answer, size included. `node_endpoints` are for v10 on."""
    flexible = version >= FIRST_FLEXIBLE
    count, text, one_more = (unsigned_varint, compact_string, 1) if flexible else (_INT32.pack, string, 0)
    pieces = [b"", count(len(topics) + one_more)]
    for topic, rows in topics:
        pieces.append(topic if isinstance(topic, bytes) else text(topic))
        pieces.append(count(len(rows) + one_more))
        for row in rows:
            pieces.append(_ROW_V5.pack(*row[:5]) if version >= _FIRST_WITH_START else _ROW_V3.pack(*row[:4]))
            if flexible:
                message = b"\0" if row.error_message is None else compact_string(row.error_message)
                pieces.append(_flexible_record_errors(row.record_errors) if row.record_errors else b"\1")
                pieces.append(
                    message + (b"\0" if row.current_leader is None else _leader_tag(row.current_leader))
                )
            elif version >= _FIRST_WITH_ERRORS:
                pieces.append(_INT32.pack(len(row.record_errors)))
                pieces += [_INT32.pack(number) + nullable_string(why) for number, why in row.record_errors]
                pieces.append(nullable_string(row.error_message))
        if flexible:
            pieces.append(NO_TAGS)
    pieces.append(_NO_THROTTLE)
    if flexible:
        pieces.append(tagged_node_endpoints(node_endpoints) if node_endpoints else NO_TAGS)
    head = _FLEXIBLE_HEAD if flexible else _HEAD
    pieces[0] = head.pack(sum(map(len, pieces)) + head.size - 4, correlation_id)
    return b"".join(pieces)


def _leader_tag(leader: tuple[int, int]) -> bytes:
    """Return the row's tags: count 1 | tag 0 | size 9 | int32 leader_id | int32 leader_epoch | no tags."""
    return b"\1\0\x09" + _INDEX_AND_SIZE.pack(*leader) + b"\0"


def _flexible_record_errors(record_errors: Sequence[tuple[int, str]]) -> bytes:
    rows = [_INT32.pack(number) + compact_string(text) + b"\0" for number, text in record_errors]
    return unsigned_varint(len(rows) + 1) + b"".join(rows)
