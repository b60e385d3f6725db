"""Finds the messages nested in a protobuf message without decoding them.

The protobuf library decodes a message in one piece and keeps Python's lock meanwhile: a payload of a few MiB stops the event loop for a
quarter of a second. So the outer messages of a payload are taken apart here, and the library decodes only small inner ones.

A field is a varint `number << 3 | wire type`, and then its value: wire type 0 a varint, 1 eight bytes, 5 four bytes, 2 a varint with the
length and as many bytes. Source: protobuf's "Encoding".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

MAX_FIELDS: Final = 50_000
"""Fields that are passed in one payload."""
_VARINT_BITS: Final = 64
_VARINT, _EIGHT_BYTES, _WITH_LENGTH, _FOUR_BYTES = 0, 1, 2, 5


class MalformedMessage(ValueError):
    """The bytes are no protobuf message, or have more fields than allowed."""


class FieldBudget:
    """Counts the fields of one payload."""

    def __init__(self, most: int = MAX_FIELDS) -> None:
        self._left = most

    def take(self) -> None:
        """Count a field. Raises MalformedMessage when too many were counted."""
        if not self._left:
            raise MalformedMessage("the message has too many fields")
        self._left -= 1


def nested(message: memoryview, number: int, budget: FieldBudget) -> Iterator[memoryview]:
    """Yield the content of each field of this number that has a length. Raises MalformedMessage."""
    position = 0
    while position < len(message):
        budget.take()
        tag, position = _varint(message, position)
        wire_type = tag & 7
        start = position
        if wire_type == _VARINT:
            _, position = _varint(message, position)
        elif wire_type == _EIGHT_BYTES:
            position += 8
        elif wire_type == _FOUR_BYTES:
            position += 4
        elif wire_type == _WITH_LENGTH:
            length, start = _varint(message, position)
            position = start + length
        else:
            raise MalformedMessage(f"the message has a field of the unknown wire type {wire_type}")
        if position > len(message):
            raise MalformedMessage("the message is cut")
        if wire_type == _WITH_LENGTH and tag >> 3 == number:
            yield message[start:position]


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    """Return the number at the position, and the position after it: seven bits in each byte, the lowest first."""
    number = shift = 0
    while shift < _VARINT_BITS:
        if position >= len(message):
            raise MalformedMessage("the message is cut")
        byte = message[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
    raise MalformedMessage("a number of the message is too long")
