"""Decodes the subscription that a member of protocol type `consumer` sends as its JoinGroup metadata.

    int16 version | topics: int32 count, each an int16 length and a name | user data: int32 length (-1: null) and bytes |
    v1: owned partitions: int32 count, each a topic and int32 partitions | v2: int32 generation_id | v3: rack_id?

Source: Kafka's ConsumerProtocolSubscription.json. Later versions append fields.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

CONSUMER_PROTOCOL: Final = "consumer"
FIRST_WITH_OWNED: Final = 1
FIRST_WITH_GENERATION: Final = 2
FIRST_WITH_RACK: Final = 3
_HEAD: Final = struct.Struct(">hi")
_LENGTH: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


class Subscription(NamedTuple):
    """A whole subscription; `owned` has the (topic, partition) that the member has not revoked."""

    version: int
    topics: frozenset[str]
    owned: frozenset[tuple[str, int]]
    rack_id: str | None


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topic names, or None when the bytes are malformed."""
    try:
        version, count = _HEAD.unpack_from(metadata)
        if version < 0 or not 0 <= count <= len(metadata):
            return None
        topics = set()
        position = _HEAD.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            if length < 0 or position + length > len(metadata):
                return None
            topics.add(metadata[position : position + length].decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)


def read_subscription(metadata: bytes) -> Subscription | None:
    """Return the whole subscription, or None when the bytes are malformed."""
    try:
        return _read(_Cursor(metadata))
    except (struct.error, ValueError):
        return None


def _read(cursor: _Cursor) -> Subscription:
    """Decode the subscription. Raises struct.error, ValueError."""
    version = cursor.take(_LENGTH)
    if version < 0:
        raise ValueError(f"the version {version} is negative")
    topics = frozenset(cursor.text(cursor.take(_LENGTH)) for _ in range(cursor.count()))
    cursor.skip(max(cursor.take(_INT32), 0))
    owned: set[tuple[str, int]] = set()
    rack_id = None
    if version >= FIRST_WITH_OWNED:
        for _ in range(cursor.count()):
            topic = cursor.text(cursor.take(_LENGTH))
            owned.update((topic, cursor.take(_INT32)) for _ in range(cursor.count()))
    if version >= FIRST_WITH_GENERATION:
        cursor.take(_INT32)
    if version >= FIRST_WITH_RACK:
        length = cursor.take(_LENGTH)
        rack_id = None if length < 0 else cursor.text(length)
    return Subscription(version, topics, frozenset(owned), rack_id)


class _Cursor:
    """A position in the metadata. Raises struct.error, ValueError at the end of the bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, layout: struct.Struct) -> int:
        (value,) = layout.unpack_from(self._data, self._position)
        self._position += layout.size
        return int(value)

    def skip(self, size: int) -> bytes:
        start = self._position
        self._position += size
        if size < 0 or self._position > len(self._data):
            raise ValueError(f"a length of {size} runs over the end of {len(self._data)} bytes")
        return self._data[start : self._position]

    def text(self, size: int) -> str:
        return self.skip(size).decode()

    def count(self) -> int:
        count = self.take(_INT32)
        if not 0 <= count <= len(self._data):
            raise ValueError(f"the count {count} is negative or larger than the {len(self._data)} bytes")
        return count
