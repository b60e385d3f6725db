"""Frames and request headers.

    frame          int32 size | request header | request body
    header v1      int16 api_key | int16 api_version | int32 correlation_id | nullable string client_id
    header v2      header v1 | tagged fields

Source: Kafka's RequestHeader.json; `client_id` keeps its old two-byte length in every version.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

MAX_ITEMS = 200_000
"""Topics, partitions and the like that one request may name. More would keep all other clients waiting while it is
read, and no client sends so many; Kafka has other threads for the others."""

_VARINT_SHIFTS = (0, 7, 14, 21, 28)
FIXED_HEADER = Struct(">hhih")
FIXED_HEADER_BYTES = FIXED_HEADER.size


class MalformedRequest(Exception):
    """The bytes are not what their header says; Kafka closes such a connection, and so do we."""


def check_items(count: int) -> None:
    """Raises MalformedRequest when a request names more than MAX_ITEMS things."""
    if count > MAX_ITEMS:
        raise MalformedRequest(f"a request that names {count} things; at most {MAX_ITEMS} are read")


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    body_position: int
    """Where the part after client_id starts in the frame (without its size): tagged fields or the body."""


def parse_request_header(frame: memoryview) -> RequestHeader:
    """Read api key, version, correlation id and client id.

    `frame` is without its four size bytes. Raises MalformedRequest.
    """
    if len(frame) < FIXED_HEADER_BYTES:
        if len(frame) >= 8:  # header v0 has no client_id; no API served here uses it
            raise MalformedRequest("the request header ends before its client id")
        raise MalformedRequest(f"a request of {len(frame)} bytes is shorter than its header")
    api_key, api_version, correlation_id, client_id_bytes = FIXED_HEADER.unpack_from(frame)
    if client_id_bytes <= 0:
        return RequestHeader(api_key, api_version, correlation_id, "", FIXED_HEADER_BYTES)
    end = FIXED_HEADER_BYTES + client_id_bytes
    if end > len(frame):
        raise MalformedRequest(f"client id of {client_id_bytes} bytes in a request of {len(frame)} bytes")
    client_id = str(frame[FIXED_HEADER_BYTES:end], "utf-8", "replace")
    return RequestHeader(api_key, api_version, correlation_id, client_id, end)


def skip_tagged_fields(frame: memoryview, position: int) -> int:
    """The position after the tagged fields of a v2 header. Raises MalformedRequest."""
    if position < len(frame) and frame[position] == 0:
        return position + 1
    count, position = read_unsigned_varint(frame, position)
    for _ in range(count):
        _tag, position = read_unsigned_varint(frame, position)
        size, position = read_unsigned_varint(frame, position)
        position += size
        if position > len(frame):
            raise MalformedRequest("a tagged field of the header runs over the end of the request")
    return position


def read_unsigned_varint(frame: memoryview, position: int) -> tuple[int, int]:
    """An unsigned LEB128 varint of at most 5 bytes (ByteUtils.readUnsignedVarint) and the position after it."""
    value = 0
    try:
        for shift in _VARINT_SHIFTS:
            byte = frame[position]
            position += 1
            if byte < 0x80:
                return (value | byte << shift) & 0xFFFFFFFF, position
            value |= (byte & 0x7F) << shift
    except IndexError:
        raise MalformedRequest("a varint runs over the end of the request") from None
    raise MalformedRequest("a varint longer than five bytes")
