"""The header that serializers with a schema registry write: a zero byte, and the id of the schema.

Protobuf has the place of the message type in its file next: a count and the indexes, or one zero byte for the first message.
Source: Confluent's documentation of the wire format.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

_HEADER: Final = struct.Struct(">bI")
_MAGIC: Final = 0
_MOST_INDEXES: Final = 32


class Framed(NamedTuple):
    """A content without its header. `schema_id` is None for a content that has none."""

    schema_id: int | None
    content: bytes


def without_header(content: bytes) -> Framed | None:
    """Return what follows the header; None for a content that can't have one."""
    if len(content) < _HEADER.size or content[0] != _MAGIC:
        return None
    return Framed(_HEADER.unpack_from(content)[1], content[_HEADER.size :])


def without_indexes(content: bytes) -> bytes | None:
    """Return a Protobuf content without the place of its message type; None where there is no such place."""
    count, position = _zigzag(content, 0)
    if count is None or not 0 <= count <= _MOST_INDEXES:
        return None
    for _ in range(count):
        index, position = _zigzag(content, position)
        if index is None:
            return None
    return content[position:]


def _zigzag(content: bytes, position: int) -> tuple[int | None, int]:
    result = shift = 0
    for byte in content[position : position + 5]:
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), position
        shift += 7
    return None, position
