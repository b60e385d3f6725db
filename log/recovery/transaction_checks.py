"""Entries of the indexes of aborted transactions are believed when the log bears them out: Kafka's format has no checksum.

A bit that flipped in one would hide committed records or show aborted ones. So there is a marker of an abort at the last
offset, the first offset is where a batch of that producer begins, and no entry says that all before an offset is decided
where a later one tells of more. What compaction or retention took away speaks against nothing.

Two first offsets are told apart by nothing but a look at all between them: one that begins another batch of the same
producer is believed. And a log of very many aborted transactions must not hold up its loading.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from log.errors import CorruptRecord
from log.format.end_marker import read_end_marker
from log.format.record_batch import crc_matches
from log.segments.transaction_index import ENTRY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from log.format.record_batch import BatchHeader
    from log.segments.segment import Segment

MOST_LOOKED_UP: Final = 1_000
"""Entries of one log, the newest, that are compared with batches when it is loaded: some 0.1 s."""
_NEVER: Final = 2**63 - 1


def not_borne_out(segments: Sequence[Segment]) -> set[int]:
    """Base offsets of those of all segments whose entries can't be true; each has a sane index, or none. Raises OSError."""
    found: set[int] = set()
    begun: dict[int, int] = {}
    earliest = _NEVER
    left = MOST_LOOKED_UP
    for segment in reversed(segments):
        if not segment.has_aborted:
            continue
        for entry in reversed(list(ENTRY.iter_unpack(segment.transaction_index().entries))):
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
    """Whether a marker at this offset aborts; True also where the log is damaged, from which nothing can be made anew."""
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
    """Whether a transactional batch of the producer begins there, or nothing is there any more, or the log is damaged."""
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
    """The position and header of the first batch that does not end before the offset. Raises CorruptRecord, OSError."""
    position = segment.position_of(offset, segment.size_bytes)
    header = segment.header_at(position)
    return (position, header) if header is not None else None


def _is_damaged(segment: Segment, position: int, batch: BatchHeader) -> bool:
    return not crc_matches(batch, memoryview(segment.read_at(position, batch.size_bytes)))
