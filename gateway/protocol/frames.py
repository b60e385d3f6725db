"""Frames, request headers, and the primitive types of the hand-written messages (Kafka protocol guide,
"Protocol Primitive Types").

    frame          int32 size | request header | request body
    header v1      int16 api_key | int16 api_version | int32 correlation_id | nullable string client_id
    header v2      header v1 | tagged fields

Source: Kafka's RequestHeader.json; `client_id` keeps its old two-byte length in every version.

Answers of Produce (v10 on) and Fetch (v16 on) end with the addresses of leaders, for clients that must go
there (KIP-951).

    tagged fields: count 1 | tag 0 | size | node_endpoints[int32 node_id, host, int32 port, rack]

Source: Kafka's ProduceResponse.json, FetchResponse.json.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

MAX_ITEMS = 200_000
"""The number of topics, partitions and the like that one request may name. The connection of a larger request
is closed. All other clients wait while the event loop reads a request; Kafka has several threads. No client
sends so many items.
"""

MAX_TAGGED_FIELDS = 10_000
"""The number of tagged fields that one part of a request may have. Kafka 4.4 closes the connection of a
request with more, and that of an array of more than 1,000,000 elements.
"""

LONGEST_TEXT_BYTES = 2**15 - 1
"""The longest text, in bytes of UTF-8: the largest length that the two bytes of older versions can hold.
Kafka keeps the limit in all versions.
"""
SHORT_TEXT_BYTES = LONGEST_TEXT_BYTES // 3
"""A text of at most so many bytes is read with `str`, without a call of `text_of`. It is never too long: an
invalid byte becomes at most the three bytes of the replacement character.
"""

_VARINT_SHIFTS = (0, 7, 14, 21, 28)
FIXED_HEADER = Struct(">hhih")
FIXED_HEADER_BYTES = FIXED_HEADER.size


ONE_BYTE = 0x80
"""An unsigned varint below this has one byte, as most have. The codecs read such a varint without a call."""


class MalformedRequest(Exception):
    """The bytes of a request contradict their header. The gateway closes the connection, as Kafka does."""


class TooManyItems(MalformedRequest):
    """A request names more than MAX_ITEMS items."""

    def __init__(self, count: int) -> None:
        super().__init__(f"the request names {count} items; at most {MAX_ITEMS} are allowed")


def text_of(raw: bytes | memoryview) -> str:
    """Return the text of these bytes; the replacement character stands for invalid ones. Raises
    MalformedRequest when no answer could hold the text, because it is too long.
    """
    size = len(raw)
    if size <= SHORT_TEXT_BYTES:
        return str(raw, "utf-8", "replace")
    if size <= LONGEST_TEXT_BYTES:
        text = str(raw, "utf-8", "replace")
        size = len(text.encode())
        if size <= LONGEST_TEXT_BYTES:
            return text
    raise MalformedRequest(f"a text has {size} bytes; at most {LONGEST_TEXT_BYTES} are allowed")


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    body_position: int
    """The position after client_id in the frame (without its size), where tagged fields or the body begin."""


def parse_request_header(frame: memoryview) -> RequestHeader:
    """Read api key, version, correlation id, client id. `frame` lacks the size. Raises MalformedRequest."""
    if len(frame) < FIXED_HEADER_BYTES:
        if len(frame) >= 8:  # Header v0 has no client_id, and no API that is served here uses header v0.
            raise MalformedRequest(f"the request header ends before its client id, after {len(frame)} bytes")
        raise MalformedRequest(f"the request has {len(frame)} bytes, fewer than its header")
    api_key, api_version, correlation_id, client_id_bytes = FIXED_HEADER.unpack_from(frame)
    if client_id_bytes <= 0:
        return RequestHeader(api_key, api_version, correlation_id, "", FIXED_HEADER_BYTES)
    end = FIXED_HEADER_BYTES + client_id_bytes
    if end > len(frame):
        raise MalformedRequest(
            f"the client id has {client_id_bytes} bytes, in a request of {len(frame)} bytes"
        )
    client_id = text_of(frame[FIXED_HEADER_BYTES:end])
    return RequestHeader(api_key, api_version, correlation_id, client_id, end)


def skip_tagged_fields(frame: bytes | memoryview, position: int) -> int:
    """Return the position after the tagged fields of a v2 header. Raises MalformedRequest."""
    count, position = read_tagged_count(frame, position)
    for _ in range(count):
        _tag, position = read_unsigned_varint(frame, position)
        size, position = read_unsigned_varint(frame, position)
        position += size
        if position > len(frame):
            raise MalformedRequest(f"a tagged field of {size} bytes ends after the end of the request")
    return position


def read_tagged_count(frame: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return the number of tagged fields that follow, and the next position. Raises MalformedRequest."""
    count, position = read_unsigned_varint(frame, position)
    if count > MAX_TAGGED_FIELDS:
        raise MalformedRequest(
            f"a part of the request has {count} tagged fields; at most {MAX_TAGGED_FIELDS} are allowed"
        )
    return count, position


def read_unsigned_varint(frame: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return a LEB128 varint of at most 5 bytes (ByteUtils.readUnsignedVarint) and the next position."""
    value = 0
    try:
        for shift in _VARINT_SHIFTS:
            byte = frame[position]
            position += 1
            if byte < ONE_BYTE:
                return (value | byte << shift) & 0xFFFFFFFF, position
            value |= (byte & 0x7F) << shift
    except IndexError:
        raise MalformedRequest(f"the request of {len(frame)} bytes ends within a varint") from None
    raise MalformedRequest("a varint has more than five bytes")


# The primitive types of answers.

_INT16 = Struct(">h")
MOST_IN_ONE_BYTE = 0x7F
"""The largest number whose unsigned varint has one byte."""
ONE_BYTE_VARINTS = tuple(bytes((value,)) for value in range(MOST_IN_ONE_BYTE + 1))
"""The unsigned varints of one byte. Nearly all lengths are so short, and a look-up costs less than a call."""


def unsigned_varint(value: int) -> bytes:
    """Return a number as unsigned LEB128."""
    if value <= MOST_IN_ONE_BYTE:
        return ONE_BYTE_VARINTS[value]
    out = bytearray()
    while value > MOST_IN_ONE_BYTE:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string(text: str) -> bytes:
    """Return a text as int16 length and UTF-8 bytes."""
    raw = text.encode()
    return _INT16.pack(len(raw)) + raw


def nullable_string(text: str | None) -> bytes:
    """Return a text as int16 length (−1 for null) and UTF-8 bytes."""
    return b"\xff\xff" if text is None else string(text)


def compact_string(text: str) -> bytes:
    """Return a text as unsigned varint of its length + 1, and UTF-8 bytes."""
    raw = text.encode()
    return unsigned_varint(len(raw) + 1) + raw


_INT32 = Struct(">i")
NO_TAGS = b"\0"


class NodeEndpoint(NamedTuple):
    """The address of a broker on the client's listener."""

    node_id: int
    host: str
    port: int
    rack: str | None


def tagged_node_endpoints(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """Return the tagged fields that end an answer; without endpoints these are empty."""
    if not endpoints:
        return NO_TAGS
    rows = [
        _INT32.pack(node_id)
        + compact_string(host)
        + _INT32.pack(port)
        + (b"\0" if rack is None else compact_string(rack))
        + NO_TAGS
        for node_id, host, port, rack in endpoints
    ]
    content = unsigned_varint(len(rows) + 1) + b"".join(rows)
    return b"\1\0" + unsigned_varint(len(content)) + content


# Recognizes clients of another protocol by the first four bytes that they send, which stand where Kafka has a
# size.

_HTTP_METHODS = (b"GET ", b"POST", b"HEAD", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ")
_TLS_HANDSHAKE, _TLS_MAJOR_VERSION = 0x16, 0x03


def size_complaint(size: int, max_bytes: int) -> str:
    """Return what is wrong with an impossible size, and what the client probably speaks instead."""
    first = size.to_bytes(4, "big", signed=True)
    if first in _HTTP_METHODS:
        return (
            f"its first bytes are {first.decode()!r}, which looks like HTTP; "
            "this listener speaks Kafka's protocol"
        )
    if first[0] == _TLS_HANDSHAKE and first[1] == _TLS_MAJOR_VERSION:
        return (
            "its first bytes look like TLS; "
            "this listener speaks plaintext (security.protocol=PLAINTEXT in the client)"
        )
    if size < 0:
        return f"it announces a request of {size} bytes, so it does not speak Kafka's protocol"
    return (
        f"it announces a request of {size} bytes; at most {max_bytes} are allowed (socket.request.max.bytes)"
    )


def topic_id_text(topic_id: uuid.UUID) -> str:
    """Return a topic id as Kafka prints it: 22 characters of URL-safe base64. Source:
    org.apache.kafka.common.Uuid.
    """
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode("ascii")
