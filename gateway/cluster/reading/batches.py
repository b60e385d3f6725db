"""Finds whole record batches in bytes of a part."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from gateway.cluster.parts.part_object import CorruptPart
from log.format.record_batch import HEADER_BYTES, LOG_OVERHEAD_BYTES

_HEAD: Final = struct.Struct(">qi11xi")
"""The base offset of a batch, the bytes after this field and the next, and the delta of its last offset."""


class Whole(NamedTuple):
    """Whole batches at the beginning of some bytes."""

    size_bytes: int
    end_offset: int
    """The offset after the last record; that of the caller without a batch."""


def skip_to(data: bytes, offset: int) -> tuple[int, bool]:
    """Return where the first batch begins that has the offset or a later one, and whether its head is in the data.

    The data begin with a batch. Without that batch, the place is the end of the last batch that is known, maybe beyond the data. Raises
    CorruptPart.
    """
    at, last_at = 0, len(data) - HEADER_BYTES
    while at <= last_at:
        base_offset, length, delta = _HEAD.unpack_from(data, at)
        if base_offset + delta >= offset:
            return at, True
        at += _checked(length, delta)
    return at, False


def whole(data: bytes, max_bytes: int, bound: int, offset: int) -> Whole:
    """Return the batches that are in the data whole, below the bound and within `max_bytes`. Raises CorruptPart."""
    at, last_at = 0, len(data) - HEADER_BYTES
    while at <= last_at:
        base_offset, length, delta = _HEAD.unpack_from(data, at)
        behind = at + _checked(length, delta)
        if behind > min(len(data), max_bytes) or base_offset + delta >= bound:
            break
        at, offset = behind, base_offset + delta + 1
    return Whole(at, offset)


def first_bytes(data: bytes) -> int:
    """Return the size of the first batch, whose head is in the data. Raises CorruptPart."""
    _, length, delta = _HEAD.unpack_from(data, 0)
    return _checked(length, delta)


def _checked(length: int, delta: int) -> int:
    size_bytes = length + LOG_OVERHEAD_BYTES
    if size_bytes < HEADER_BYTES or delta < 0:
        raise CorruptPart(f"a batch can't have {size_bytes} bytes and {delta + 1} offsets")
    return size_bytes
