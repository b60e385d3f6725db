"""Encodes a part: consecutive bytes of a segment file, whole record batches, as one object that never changes.

    head    magic "SQPT" | version int16
    data    the bytes
    index   CRC-32C, uint32, of the stretch of the data in each block of the segment file; blocks have 1 MiB and begin at position 0
            of the file, so the first and the last stretch may be smaller
    footer  CRC-32C of the rest of the footer, uint32 | topic_id 16 bytes | partition int32 | segment_base int64 | position int64
            | length int64 | first_offset int64 | end_offset int64 | CRC-32C of the index, uint32 | version int16 | magic "SQPT"

With the position and the length a reader knows where the index begins, so it gets any block with two reads of ranges.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple
from uuid import UUID

from crc32c import crc32c

from gateway.cluster.objects.objects import Buffer
from log import IncompatibleFormat

VERSION: Final = 1
BLOCK_BYTES: Final = 1 << 20
_MAGIC: Final = b"SQPT"
_HEAD: Final = struct.Struct(">4sh")
_FOOTER: Final = struct.Struct(">I16siqqqqqIh4s")
_CRC: Final = struct.Struct(">I")


class CorruptPart(Exception):
    """The bytes are no sound part. The message names the object and what does not fit."""


class PartHead(NamedTuple):
    """What a part holds."""

    topic_id: UUID
    partition: int
    segment_base: int
    """The base offset of the segment."""
    position: int
    """The place of the first byte in the segment file."""
    length: int
    """The number of bytes."""
    first_offset: int
    end_offset: int
    """The offset after the last record."""


def encode_part(head: PartHead, data: Buffer) -> list[Buffer]:
    """Return the content of the object as buffers. Raises ValueError for a head that does not fit the data."""
    if len(data) != head.length or not _is_possible(head):
        raise ValueError(f"{head} can't be stored with {len(data)} bytes")
    view = memoryview(data)
    index = b"".join(
        _CRC.pack(crc32c(view[start:stop])) for start, stop in _stretches(head.position, head.length)
    )
    fields = (head.topic_id.bytes, *head[1:], crc32c(index), VERSION, _MAGIC)
    footer = _FOOTER.pack(crc32c(_FOOTER.pack(0, *fields)[_CRC.size :]), *fields)
    return [_HEAD.pack(_MAGIC, VERSION), view, index + footer]


def decode_part(content: bytes, key: str) -> tuple[PartHead, memoryview]:
    """Return what a whole part holds, and its data. Raises CorruptPart, IncompatibleFormat; `key` is for the messages."""
    if len(content) < _HEAD.size + _FOOTER.size:
        raise CorruptPart(f"{key} is cut short: it has {len(content)} bytes.")
    last = content[-_FOOTER.size :]
    crc, topic_id, *numbers, index_crc, version, magic = _FOOTER.unpack(last)
    if magic != _MAGIC:
        raise CorruptPart(f"{key} is no part of a segment, or cut short: its magic is missing.")
    if version > VERSION:
        raise IncompatibleFormat(
            f"{key} has version {version}; this program reads version {VERSION}. Run the release that wrote it."
        )
    if crc != crc32c(last[_CRC.size :]) or content[: _HEAD.size] != _HEAD.pack(_MAGIC, version):
        raise CorruptPart(f"{key} is damaged: the CRC-32C of its footer, or its head, does not fit.")
    head = PartHead(UUID(bytes=topic_id), *numbers)
    stretches = list(_stretches(head.position, head.length)) if _is_possible(head) else []
    size_bytes = _HEAD.size + head.length + len(stretches) * _CRC.size + _FOOTER.size
    if version < 1 or not stretches or size_bytes != len(content):
        raise CorruptPart(f"{key} is damaged: it has {len(content)} bytes and says {head}.")
    index = content[_HEAD.size + head.length : -_FOOTER.size]
    if crc32c(index) != index_crc:
        raise CorruptPart(f"{key} is damaged: the CRC-32C of its index does not fit.")
    data = memoryview(content)[_HEAD.size : _HEAD.size + head.length]
    for (expected,), (start, stop) in zip(_CRC.iter_unpack(index), stretches, strict=True):
        if crc32c(data[start:stop]) != expected:
            raise CorruptPart(
                f"{key} is damaged: the CRC-32C of the bytes {start} to {stop - 1} of its data does not fit."
            )
    return head, data


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
