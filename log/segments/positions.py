"""Finds positions in one segment file by the offset index and the batch headers.

Positions are in bytes. All functions raise CorruptRecord at a header that can't be right, OSError, NotCached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from log.errors import CorruptRecord
from log.format.record_batch import crc_matches
from log.segments.damage import range_at, range_holding
from log.segments.index_checks import checked_entry

if TYPE_CHECKING:
    from log.format.record_batch import BatchHeader
    from log.segments.segment import Segment

_CHUNK_BYTES: Final = 4096


def position_of(segment: Segment, offset: int, end: int) -> int:
    """Return the position of the batch or damaged range that holds `offset`; `end` when the offset lies beyond."""
    damaged = range_holding(segment.damage, offset) if segment.damage else None
    if damaged is not None:
        return min(damaged.position, end)
    start = position_for(segment, offset - segment.base_offset)
    for position, batch in segment.batches(start, end, _CHUNK_BYTES):
        if batch.last_offset >= offset:
            if batch.base_offset != offset and not _is_borne_out(segment, position, batch, offset):
                raise CorruptRecord(f"{segment.file.path} is damaged at position {position}")
            return position
    return end


def _is_borne_out(segment: Segment, position: int, batch: BatchHeader, offset: int) -> bool:
    """Return whether a batch found for an offset inside of it can be right: the next batch begins at a later offset."""
    behind = position + batch.size_bytes
    if segment.damage and range_at(segment.damage, behind) is not None:
        return True
    after = segment.header_at(behind) if behind < segment.size_bytes else None
    if after is not None:
        return after.is_plausible and after.base_offset > batch.last_offset
    if batch.base_offset > offset:
        return True
    whole = memoryview(segment.read_at(position, batch.size_bytes))
    return len(whole) == batch.size_bytes and crc_matches(batch, whole)


def position_for(segment: Segment, relative_offset: int) -> int:
    """Return the position of a batch at or before the one that holds the offset."""
    entry = checked_entry(segment, lambda indexes: indexes.entry_for(relative_offset))
    return entry[1] if entry is not None else 0


def position_before(segment: Segment, position: int) -> int:
    """Return the position of a batch at or before `position`."""
    entry = checked_entry(segment, lambda indexes: indexes.entry_before(position))
    return entry[1] if entry is not None else 0


def offset_after(segment: Segment, position: int) -> int | None:
    """Return the last relative offset of the first indexed batch at or after `position`; None without such an entry."""
    entry = checked_entry(segment, lambda indexes: indexes.entry_after(position))
    return entry[0] if entry is not None else None
