"""The Produce answer, written by hand: it leaves once per batch, and kio's writer costs 10 µs.

    v3, v4   topics[name, partitions[index, error, base_offset, log_append_time]], throttle
    v5–v7    … log_start_offset
    v8       … record_errors[], error_message
    v9–v12   compact lengths and tagged fields
    v13      topic_id (16 bytes) instead of the name

Source: Kafka's ProduceResponse.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from gateway.protocol.primitives import compact_string, nullable_string, string, unsigned_varint

_FRAME = Struct(">ii")
_INT32 = Struct(">i")
_ROW_V3 = Struct(">ihqq")
_ROW_V5 = Struct(">ihqqq")
# int32 correlation id, header tags, topics, topic id, partitions, row, no errors, null message, tags, tags, throttle, tags
_ONE_ROW_V13 = Struct(">iibb16sbihqqqbbbbib")


class ProduceRow(NamedTuple):
    """What became of one partition's records. Offsets and times are −1 where there is none."""

    partition: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    error_message: str | None = None


TopicRows = tuple[str | bytes, Sequence[ProduceRow]]
"""Topic name (v3–v12) or the 16 bytes of its id (v13), and its rows."""


def encode_produce_response(version: int, correlation_id: int, topics: Sequence[TopicRows]) -> bytes:
    """The whole frame of a Produce answer, size included."""
    if version >= 9:
        if version == 13 and len(topics) == 1 and len(topics[0][1]) == 1:
            topic_id, (row,) = topics[0]
            if row.error_code == 0 and row.error_message is None and isinstance(topic_id, bytes):
                return _ONE_ROW_V13.pack(
                    _ONE_ROW_V13.size - 4, correlation_id, 0, 2, topic_id, 2, *row[:5], 1, 0, 0, 0, 0, 0
                )
        body = _flexible_body(topics)
        return _FRAME.pack(len(body) + 5, correlation_id) + b"\0" + body
    body = _legacy_body(version, topics)
    return _FRAME.pack(len(body) + 4, correlation_id) + body


def _flexible_body(topics: Sequence[TopicRows]) -> bytes:
    pieces = [unsigned_varint(len(topics) + 1)]
    for topic, rows in topics:
        pieces.append(topic if isinstance(topic, bytes) else compact_string(topic))
        pieces.append(unsigned_varint(len(rows) + 1))
        for row in rows:
            message = b"\0" if row.error_message is None else compact_string(row.error_message)
            pieces.append(_ROW_V5.pack(*row[:5]))
            pieces.append(b"\1" + message + b"\0")
        pieces.append(b"\0")
    pieces.append(b"\0\0\0\0\0")
    return b"".join(pieces)


def _legacy_body(version: int, topics: Sequence[TopicRows]) -> bytes:
    pieces = [_INT32.pack(len(topics))]
    for topic, rows in topics:
        assert isinstance(topic, str)
        pieces.append(string(topic))
        pieces.append(_INT32.pack(len(rows)))
        for row in rows:
            if version >= 8:
                pieces.append(_ROW_V5.pack(*row[:5]))
                pieces.append(_INT32.pack(0) + nullable_string(row.error_message))
            elif version >= 5:
                pieces.append(_ROW_V5.pack(*row[:5]))
            else:
                pieces.append(_ROW_V3.pack(*row[:4]))
    pieces.append(b"\0\0\0\0")
    return b"".join(pieces)
