"""Encodes a part: consecutive bytes of a segment file, whole record batches, as one immutable object.

    head    magic "SQPT" | version int16
    data    the bytes
    index   CRC-32C, uint32, of the stretch of the data in each block of the segment file; blocks have 1 MiB
            and begin at position 0 of the file, so the first and the last stretch may be smaller
    footer  CRC-32C of the rest of the footer, uint32 | topic_id 16 bytes | partition int32
            | segment_base int64 | position int64 | length int64 | first_offset int64 | end_offset int64
            | CRC-32C of the index, uint32 | version int16 | magic "SQPT"

By position and length a reader knows where the index begins, so it gets any block with two ranged reads.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple
from uuid import UUID

from seqgate.gateway.cluster.objects.objects import Buffer
from seqgate.gateway.cluster.wal.wal_object import check_version
from seqgate.seq_validator.checksum import crc32c

VERSION: Final = 1
BLOCK_BYTES: Final = 1 << 20
_MAGIC: Final = b"SQPT"
_HEAD: Final = struct.Struct(">4sh")
_FOOTER: Final = struct.Struct(">I16siqqqqqIh4s")
_CRC: Final = struct.Struct(">I")


class CorruptPart(Exception):
    """The bytes are no sound part. The message names the object and what does not fit."""


class PartHead(NamedTuple):
    topic_id: UUID
    partition: int
    segment_base: int
    position: int
    """The place of the first byte in the segment file."""
    length: int
    first_offset: int
    end_offset: int


class PartIndex(NamedTuple):
    """The description of a part that a reader of byte ranges needs."""

    stretches: tuple[tuple[int, int], ...]
    """The places (start, stop) in the data, ascending, each in one block of the segment file."""
    crcs: tuple[int, ...]

    def stretch_at(self, place: int) -> int:
        """Return the number of the stretch that holds the byte at this place of the data."""
        return bisect_right(self.stretches, place, key=lambda stretch: stretch[0]) - 1

    def check(self, data: memoryview, first: int, last: int, key: str) -> None:
        """Check the bytes of the stretches `first` to `last`. Raises CorruptPart with `key`."""
        begin, end = self.stretches[first][0], self.stretches[last][1]
        if len(data) != end - begin:
            raise CorruptPart(f"{key} is cut short: of the bytes {begin} to {end - 1} it has {len(data)}.")
        for number in range(first, last + 1):
            start, stop = self.stretches[number]
            if crc32c(data[start - begin : stop - begin]) != self.crcs[number]:
                raise CorruptPart(
                    f"{key} is damaged: the CRC-32C of the bytes {start} to {stop - 1} of its data does not "
                    "fit."
                )


def data_place(start: int) -> int:
    """Return the position in the object of byte `start` of the part's data."""
    return _HEAD.size + start


def index_place(position: int, length: int) -> tuple[int, int]:
    """Return place and size of index and footer of a part that begins here in the segment file."""
    count = sum(1 for _ in _stretches(position, length))
    return _HEAD.size + length, count * _CRC.size + _FOOTER.size


class EncodedPart(NamedTuple):
    """The content of a part as buffers, and the CRC-32C of its data."""

    content: list[Buffer]
    crc: int


def encode_part(head: PartHead, data: Buffer) -> EncodedPart:
    """Return the object; the data is not copied. Raises ValueError for a head that does not fit the data."""
    if len(data) != head.length or not _is_possible(head):
        raise ValueError(f"{head} can't be stored with {len(data)} bytes")
    view = memoryview(data)
    stretches = _stretches(head.position, head.length)
    index = b"".join(_CRC.pack(crc32c(view[start:stop])) for start, stop in stretches)
    fields = (head.topic_id.bytes, *head[1:], crc32c(index), VERSION, _MAGIC)
    footer = _FOOTER.pack(crc32c(_FOOTER.pack(0, *fields)[_CRC.size :]), *fields)
    return EncodedPart([_HEAD.pack(_MAGIC, VERSION), view, index + footer], crc32c(view))


def decode_part(content: bytes, key: str) -> tuple[PartHead, memoryview]:
    """Return a part's head and data. Raises CorruptPart, IncompatibleFormat; `key` is for the messages."""
    if len(content) < _HEAD.size + _FOOTER.size:
        raise CorruptPart(f"{key} is cut short: it has {len(content)} bytes.")
    head, _ = _decode_footer(content[-_FOOTER.size :], key)
    if content[: _HEAD.size] != _HEAD.pack(_MAGIC, VERSION):
        raise CorruptPart(f"{key} is damaged: its head does not fit.")
    place, size_bytes = index_place(head.position, head.length)
    if place + size_bytes != len(content):
        raise CorruptPart(f"{key} is damaged: it has {len(content)} bytes and says {head}.")
    index = decode_part_index(content[place:], head.position, head.length, key)
    data = memoryview(content)[_HEAD.size : place]
    index.check(data, 0, len(index.stretches) - 1, key)
    return head, data


def decode_part_index(end: bytes, position: int, length: int, key: str) -> PartIndex:
    """Return the index from the end of an object, which `index_place` tells, for the place that the manifest
    gives the part. Raises CorruptPart, IncompatibleFormat; `key` is for the messages.
    """
    stretches = tuple(_stretches(position, length))
    if len(end) != len(stretches) * _CRC.size + _FOOTER.size:
        raise CorruptPart(f"{key} is cut short: of its index it has {len(end)} bytes.")
    head, index_crc = _decode_footer(end[-_FOOTER.size :], key)
    index = end[: -_FOOTER.size]
    if (head.position, head.length) != (position, length):
        raise CorruptPart(
            f"{key} holds {head.length} bytes from position {head.position} on, and the manifest says "
            f"{length} from {position} on."
        )
    if crc32c(index) != index_crc:
        raise CorruptPart(f"{key} is damaged: the CRC-32C of its index does not fit.")
    return PartIndex(stretches, tuple(crc for (crc,) in _CRC.iter_unpack(index)))


def _decode_footer(footer: bytes, key: str) -> tuple[PartHead, int]:
    """Return the head and the CRC-32C of the index. Raises CorruptPart, IncompatibleFormat."""
    crc, topic_id, *numbers, index_crc, version, magic = _FOOTER.unpack(footer)
    if magic != _MAGIC:
        raise CorruptPart(f"{key} is no part of a segment, or cut short: its magic is missing.")
    check_version(key, version, VERSION)
    if version < 1 or crc != crc32c(footer[_CRC.size :]):
        raise CorruptPart(f"{key} is damaged: the CRC-32C of its footer does not fit.")
    head = PartHead(UUID(bytes=topic_id), *numbers)
    if not _is_possible(head):
        raise CorruptPart(f"{key} is damaged: it says {head}.")
    return head, index_crc


def _is_possible(head: PartHead) -> bool:
    return (
        head.partition >= 0
        and 0 <= head.segment_base <= head.first_offset < head.end_offset
        and head.position >= 0
        and head.length > 0
    )


def _stretches(position: int, length: int) -> Iterator[tuple[int, int]]:
    """Yield (start, stop), in the data, of the stretch in each block of the segment file."""
    start = 0
    while start < length:
        stop = min(length, start + BLOCK_BYTES - (position + start) % BLOCK_BYTES)
        yield start, stop
        start = stop
