"""The topics that a member of protocol type `consumer` subscribes to, read from its JoinGroup metadata.

    int16 version | topics: int32 count, each an int16 length and a name | …

Source: Kafka's ConsumerProtocolSubscription.json; the coordinator needs no more of it.
"""

from __future__ import annotations

import struct
from typing import Final

CONSUMER_PROTOCOL: Final = "consumer"
_HEAD: Final = struct.Struct(">hi")
_LENGTH: Final = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The names, or None when the bytes can't be read."""
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
