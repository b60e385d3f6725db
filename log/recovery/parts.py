"""Iterates over a segment for a replay: batches, with the damaged ranges between them in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from log.format.record_batch import BatchHeader
    from log.segments.damage import DamagedRange
    from log.segments.segment import Segment


def parts_of(segment: Segment, position: int = 0) -> Iterator[tuple[int, BatchHeader] | DamagedRange]:
    """Yield (position, header) of each batch from `position` on, and the damaged ranges. Raises CorruptRecord, OSError."""
    if not segment.damage:
        return segment.batches(position, segment.size_bytes)
    return _around_damage(segment, position)


def _around_damage(segment: Segment, position: int) -> Iterator[tuple[int, BatchHeader] | DamagedRange]:
    ahead = [found for found in segment.damage if found.position >= position]
    for at, batch in segment.batches(position, segment.size_bytes):
        while ahead and ahead[0].position < at:
            yield ahead.pop(0)
        yield at, batch
    yield from ahead
