"""Encodes parts of the keys and values of `__consumer_offsets`; `record_reader` describes the layout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Final

from gateway.coordinator.places import Place, by_topic
from gateway.protocol.primitives import compact_string, string, unsigned_varint

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
VERSION_0: Final = b"\0\0"
NO_TAGS: Final = b"\0"
ASSIGNED_AT_TAG: Final = 0
"""The tag of the time at which a target assignment was made (KIP-1263)."""


def key_of(kind: int, *names: str) -> bytes:
    """Encode a key that consists of names. Raises struct.error for a name that is too long."""
    return _INT16.pack(kind) + b"".join(map(string, names))


def nullable_compact_string(text: str | None) -> bytes:
    """Encode a text or null."""
    return b"\0" if text is None else compact_string(text)


def compact_strings(texts: Iterable[str]) -> bytes:
    """Encode a list of texts."""
    pieces = list(map(compact_string, texts))
    return unsigned_varint(len(pieces) + 1) + b"".join(pieces)


def compact_int32s(numbers: Iterable[int]) -> bytes:
    """Encode a list of numbers."""
    pieces = list(map(_INT32.pack, numbers))
    return unsigned_varint(len(pieces) + 1) + b"".join(pieces)


def tagged(fields: Mapping[int, bytes]) -> bytes:
    """Encode the tagged fields at the end of a structure, given as tag to content."""
    pieces = [unsigned_varint(len(fields))]
    for tag, raw in sorted(fields.items()):
        pieces += (unsigned_varint(tag), unsigned_varint(len(raw)), raw)
    return b"".join(pieces)


def assigned_at_tag(assigned_at_ms: int) -> bytes:
    """Encode the tagged fields that end a record of an assignment epoch: the time of the assignment, if it is known."""
    return tagged({ASSIGNED_AT_TAG: _INT64.pack(assigned_at_ms)} if assigned_at_ms else {})


def compact_places(places: Iterable[Place]) -> bytes:
    """Encode a list of topic ids, each with its partitions."""
    topics = by_topic(places)
    pieces = [unsigned_varint(len(topics) + 1)]
    for topic_id, partitions in topics.items():
        pieces += (topic_id.bytes, compact_int32s(partitions), NO_TAGS)
    return b"".join(pieces)
