"""Checks the entries of transaction indexes against the log, because Kafka's format has no checksum.

A flipped bit in an entry would hide committed records or show aborted ones. So an entry is believed if an abort marker is at its
last offset, a batch of the producer begins at its first offset, and its last stable offset does not contradict later entries. A
batch that compaction or retention removed contradicts no entry.

A wrong first offset at which another batch of the same producer begins is believed: only a scan of all batches between would
find the error. A limit on checked entries keeps the load of a log with very many aborted transactions short.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from log.errors import CorruptRecord
from log.format.due_times import read_end_marker
from log.format.record_batch import crc_matches
from log.segments.positions import position_of
from log.segments.transaction_index import ENTRY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from log.format.record_batch import BatchHeader
    from log.segments.segment import Segment

MOST_LOOKED_UP: Final = 1_000
"""Entries checked when a log is loaded, the newest first, in about 0.1 s; older entries are not checked."""
_NEVER: Final = 2**63 - 1


def not_borne_out(segments: Sequence[Segment]) -> set[int]:
    """Return the base offsets of the segments whose transaction index contradicts the log. Raises OSError.

    `segments` are all segments of the log, each with a plausible transaction index or none.
    """
    found: set[int] = set()
    begun: dict[int, int] = {}
    earliest = _NEVER
    left = MOST_LOOKED_UP
    for segment in reversed(segments):
        if not segment.aborts.has_any:
            continue
        for entry in reversed(list(ENTRY.iter_unpack(segment.aborts.index().entries))):
            if not left:
                return found
            left -= 1
            _, producer_id, first_offset, last_offset, last_stable_offset = entry
            if (
                last_stable_offset > earliest
                or last_offset >= begun.get(producer_id, _NEVER)
                or not _is_abort(segment, producer_id, last_offset)
                or not _is_begin(segments, producer_id, first_offset)
            ):
                found.add(segment.base_offset)
                continue
            earliest = min(earliest, first_offset)
            begun[producer_id] = first_offset
    return found


def _is_abort(segment: Segment, producer_id: int, offset: int) -> bool:
    """Return whether an abort marker is at this offset. True also where the log is damaged: it can't rebuild the entry there."""
    try:
        found = _batch_of(segment, offset)
    except CorruptRecord:
        return True
    if found is None:
        return True
    position, batch = found
    if batch.base_offset != offset or batch.producer_id != producer_id or not batch.is_control:
        return _is_damaged(segment, position, batch)
    marker = read_end_marker(segment.read_at(position, batch.size_bytes))
    if marker is None:
        return not batch.record_count or _is_damaged(segment, position, batch)
    return not marker.is_commit or _is_damaged(segment, position, batch)


def _is_begin(segments: Sequence[Segment], producer_id: int, offset: int) -> bool:
    """Return whether a transactional batch of the producer begins at `offset`. True also if it was removed or is damaged."""
    number = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
    if number < 0:
        return True
    try:
        found = _batch_of(segments[number], offset)
    except CorruptRecord:
        return True
    if found is None or found[1].base_offset > offset:
        return True
    position, batch = found
    is_its = batch.producer_id == producer_id and batch.is_transactional and not batch.is_control
    return (is_its and batch.base_offset == offset) or _is_damaged(segments[number], position, batch)


def _batch_of(segment: Segment, offset: int) -> tuple[int, BatchHeader] | None:
    """Return the position and header of the first batch that ends at `offset` or later. Raises CorruptRecord, OSError."""
    position = position_of(segment, offset, segment.size_bytes)
    header = segment.header_at(position)
    return (position, header) if header is not None else None


def _is_damaged(segment: Segment, position: int, batch: BatchHeader) -> bool:
    return not crc_matches(batch, memoryview(segment.read_at(position, batch.size_bytes)))
