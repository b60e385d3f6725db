"""Decodes the keys and values of `__consumer_offsets`, which use two encodings.

              plain            compact (KIP-482)
string        int16 length     unsigned varint of length + 1
bytes, list   int32 length     unsigned varint of length + 1
null string   length −1        0
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Final

from seqgate.gateway.coordinator.places import Place, by_topic
from seqgate.gateway.coordinator.stored_versions import NewerVersion
from seqgate.gateway.protocol.frames import read_unsigned_varint, skip_tagged_fields
from seqgate.gateway.protocol.primitives import compact_string, string, unsigned_varint

_INT8: Final = Struct(">b")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_UUID_BYTES: Final = 16


class PlainReader:
    """A position in a key or value. Raises struct.error, ValueError at the end of the bytes."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        self._position = 0

    @property
    def is_at_end(self) -> bool:
        """Whether all bytes were read."""
        return self._position == len(self._data)

    def _take(self, layout: Struct) -> int:
        (value,) = layout.unpack_from(self._data, self._position)
        self._position += layout.size
        return int(value)

    def int8(self) -> int:
        return self._take(_INT8)

    def int16(self) -> int:
        return self._take(_INT16)

    def int32(self) -> int:
        return self._take(_INT32)

    def int64(self) -> int:
        return self._take(_INT64)

    def version(self, newest: int) -> int:
        """Read the version at the start of a value. Raises NewerVersion, ValueError for an unknown version."""
        version = self.int16()
        if version > newest:
            raise NewerVersion(version, newest)
        if version < 0:
            raise ValueError(f"version {version} is not known; versions 0 to {newest} are")
        return version

    def _cut(self, size: int) -> memoryview:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise ValueError(
                f"a length of {size} runs over the end, {len(self._data) - self._position} bytes away"
            )
        raw = self._data[self._position : end]
        self._position = end
        return raw

    def _text(self, size: int) -> str:
        return str(self._cut(size), "utf-8")

    def count(self) -> int:
        count = self.int32()
        if count < 0:
            raise ValueError(f"the count {count} is negative")
        return count

    def string(self) -> str:
        return self._text(self.int16())

    def nullable_string(self) -> str | None:
        size = self.int16()
        return None if size == -1 else self._text(size)

    def octets(self) -> bytes:
        return bytes(self._cut(self.int32()))

    def skip_tags(self) -> None:
        """Skip the tagged fields at the end of a structure; this encoding has none."""


class CompactReader(PlainReader):
    """A position in a value of the compact encoding. Also raises MalformedRequest, for a varint without an
    end.
    """

    def _varint(self) -> int:
        value, self._position = read_unsigned_varint(self._data, self._position)
        return value

    def count(self) -> int:
        size = self._varint()
        # an item has at least one byte
        if not 0 < size <= len(self._data) - self._position + 1:
            raise ValueError(
                f"a length of {size - 1} runs over the end, {len(self._data) - self._position} bytes away"
            )
        return size - 1

    def string(self) -> str:
        return self._text(self.count())

    def nullable_string(self) -> str | None:
        return None if self.is_null() else self.string()

    def octets(self) -> bytes:
        return bytes(self._cut(self.count()))

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(bytes=bytes(self._cut(_UUID_BYTES)))

    def int32s(self) -> list[int]:
        return [self.int32() for _ in range(self.count())]

    def nullable_int32s(self) -> list[int] | None:
        return None if self.is_null() else self.int32s()

    def strings(self) -> tuple[str, ...]:
        return tuple(self.string() for _ in range(self.count()))

    def places(self) -> frozenset[Place]:
        """Read a list of topic ids, each with its partitions."""
        found: set[Place] = set()
        for _ in range(self.count()):
            topic_id = self.uuid()
            found.update((topic_id, partition) for partition in self.int32s())
            self.skip_tags()
        return frozenset(found)

    def assigned_at_ms(self) -> int:
        """Read the tagged fields that end a record of an assignment epoch; return the time, 0 when it is
        missing.
        """
        raw = self.tagged_field(ASSIGNED_AT_TAG)
        return 0 if raw is None else raw.int64()

    def skip_tags(self) -> None:
        self._position = skip_tagged_fields(self._data, self._position)

    def is_null(self) -> bool:
        """Read a null list or text if there is one; return whether there was."""
        if self.is_at_end or self._data[self._position] != 0:
            return False
        self._position += 1
        return True

    def tagged_fields(self) -> dict[int, CompactReader]:
        """Return the tagged fields that follow, by tag."""
        found = {}
        for _ in range(self._varint()):
            tag, size = self._varint(), self._varint()
            found[tag] = CompactReader(self._cut(size))
        return found

    def tagged_field(self, wanted: int) -> CompactReader | None:
        """Return one of the tagged fields that follow, and skip the others; None when the field is missing."""
        return self.tagged_fields().get(wanted)


# Encodes parts of the keys and values of `__consumer_offsets`; `record_reader` describes the layout.

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
    """Encode the tagged fields that end a record of an assignment epoch: the time of the assignment, if it is
    known.
    """
    return tagged({ASSIGNED_AT_TAG: _INT64.pack(assigned_at_ms)} if assigned_at_ms else {})


def compact_places(places: Iterable[Place]) -> bytes:
    """Encode a list of topic ids, each with its partitions."""
    topics = by_topic(places)
    pieces = [unsigned_varint(len(topics) + 1)]
    for topic_id, partitions in topics.items():
        pieces += (topic_id.bytes, compact_int32s(partitions), NO_TAGS)
    return b"".join(pieces)
