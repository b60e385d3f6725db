"""The primitive types of the hand-written answers (Kafka protocol guide, "Protocol Primitive Types").

The addresses of leaders at the end of Produce (v10 on) and Fetch (v16 on) answers, for clients that must go
there (KIP-951).

    tagged fields: count 1 | tag 0 | size | node_endpoints[int32 node_id, host, int32 port, rack]

Source: Kafka's ProduceResponse.json, FetchResponse.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

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
