"""Checks index entries against the batches before use, because Kafka's index files have no checksums.

An offset index entry points to the batch that ends with its offset. A time index entry gives the timestamp of the batch that
ends with its offset. A flipped bit in an entry could make a read begin in the middle of a batch, skip records, or make retention
delete a young segment as an old one. So each used entry is compared with the batch's header. If they differ, both indexes are
rebuilt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from log.errors import CorruptRecord
from log.format.record_batch import MAGIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from log.format.record_batch import BatchHeader
    from log.segments.indexes import SegmentIndexes

_CHUNK_BYTES: Final = 4096


class Segment(Protocol):
    """The parts of a segment that a check of its indexes needs."""

    base_offset: int
    size_bytes: int

    def indexes(self) -> SegmentIndexes:
        """Return both indexes."""

    def mend_indexes(self) -> None:
        """Rebuild both indexes from the batches."""

    def header_at(self, position: int) -> BatchHeader | None:
        """Return the header of the batch at a position; None when there is none."""

    def batches(self, position: int, end: int, chunk_bytes: int) -> Iterator[tuple[int, BatchHeader]]:
        """Yield the batches between two positions with their positions."""


def checked_entry(
    segment: Segment, find: Callable[[SegmentIndexes], tuple[int, int] | None]
) -> tuple[int, int] | None:
    """Return the offset index entry that `find` selects, after checking it. Raises OSError, NotCached, CorruptRecord.

    Returns None also when the batches themselves are damaged: batches before the damage can be read from the segment's start.
    """
    entry = find(segment.indexes())
    if entry is None or _bears_out(segment, *entry):
        return entry
    try:
        segment.mend_indexes()
    except CorruptRecord:
        return None
    return find(segment.indexes())


def start_for_time(segment: Segment, timestamp_ms: int) -> int:
    """Return the relative offset from which on to search for a timestamp later than `timestamp_ms`.

    Raises OSError, NotCached, CorruptRecord.
    """
    timestamp, relative_offset = segment.indexes().time_entry_for(timestamp_ms)
    if timestamp < 0 or has_timestamp(segment, segment.indexes(), timestamp, relative_offset):
        return relative_offset
    try:
        segment.mend_indexes()
    except CorruptRecord:
        return 0
    return segment.indexes().time_entry_for(timestamp_ms)[1]


def has_timestamp(segment: Segment, indexes: SegmentIndexes, timestamp: int, relative_offset: int) -> bool:
    """Return whether a batch ends with the offset and has this largest timestamp. Raises OSError, NotCached."""
    entry = indexes.entry_for(relative_offset)
    if entry is not None and not _bears_out(segment, *entry):
        return False
    wanted = segment.base_offset + relative_offset
    try:
        for _, batch in segment.batches(entry[1] if entry else 0, segment.size_bytes, _CHUNK_BYTES):
            if batch.last_offset >= wanted:
                return batch.last_offset == wanted and batch.max_timestamp == timestamp
    except CorruptRecord:
        pass
    return False


def _bears_out(segment: Segment, relative_offset: int, position: int) -> bool:
    batch = segment.header_at(position)
    if batch is None:
        return False
    return batch.magic == MAGIC and 0 <= batch.base_offset - segment.base_offset <= relative_offset
