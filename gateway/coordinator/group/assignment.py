"""Encodes and decodes the assignment of a classic member of protocol type `consumer`, the bytes of a SyncGroup.

    int16 version | topics: int32 count, each an int16 length and a name, int32 count, int32 partitions |
    user data: int32 length (-1: null) and bytes | …

Source: Kafka's ConsumerProtocolAssignment.json. Later versions append fields.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final

from gateway.protocol.primitives import string

_HEAD: Final = struct.Struct(">hi")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_NULL: Final = -1
_HIGHEST_VERSION: Final = 3


def assigned_partitions(assignment: bytes) -> dict[str, list[int]] | None:
    """Return the partitions by topic, both in the order of the assignment, or None when the bytes are malformed."""
    try:
        return _read(assignment)
    except (struct.error, UnicodeDecodeError):
        return None


def encode_assignment(version: int, partitions: Mapping[str, Iterable[int]]) -> bytes:
    """Encode an assignment without user data, as a leader does for a member whose subscription has this version."""
    pieces = [_HEAD.pack(max(0, min(version, _HIGHEST_VERSION)), len(partitions))]
    for topic, indexes in sorted(partitions.items()):
        wanted = sorted(indexes)
        pieces += (string(topic), _INT32.pack(len(wanted)), *map(_INT32.pack, wanted))
    return b"".join(pieces) + _INT32.pack(_NULL)


def _read(data: bytes) -> dict[str, list[int]] | None:
    """Decode the assignment; return None when a count or length is impossible.

    Raises struct.error, UnicodeDecodeError.
    """
    version, topics = _HEAD.unpack_from(data)
    if version < 0 or not 0 <= topics <= len(data):
        return None
    assigned: dict[str, list[int]] = {}
    position = _HEAD.size
    for _ in range(topics):
        (length,) = _INT16.unpack_from(data, position)
        position += _INT16.size
        if length < 0 or position + length > len(data):
            return None
        name = data[position : position + length].decode()
        position += length
        (count,) = _INT32.unpack_from(data, position)
        position += _INT32.size
        if count < 0 or position + count * _INT32.size > len(data):
            return None
        partitions = struct.unpack_from(f">{count}i", data, position)
        if count and min(partitions) < 0:
            return None
        assigned.setdefault(name, []).extend(partitions)
        position += count * _INT32.size
    (user_data_bytes,) = _INT32.unpack_from(data, position)
    is_whole = position + _INT32.size + user_data_bytes <= len(data)
    return assigned if user_data_bytes == _NULL or (user_data_bytes >= 0 and is_whole) else None
