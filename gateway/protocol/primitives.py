"""The primitive types of the hand-written answers (Kafka protocol guide, "Protocol Primitive Types")."""

from __future__ import annotations

from struct import Struct

_INT16 = Struct(">h")


def unsigned_varint(value: int) -> bytes:
    """Return a number as unsigned LEB128."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
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
