"""Which segments are cleaned into one, so that cleaning does not leave ever more and ever smaller ones.

Source: Kafka's `Cleaner.groupSegmentsBySize`, which has no limit to their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

_MAX_RELATIVE_OFFSET: Final = 2**31 - 1
_MAX_SEGMENTS: Final = 100
"""All of a group leave in one step of the event loop, four files each."""


class SourceSegment(NamedTuple):
    """A closed segment; `end_offset` is exclusive, `index_bytes` that of the larger index."""

    base_offset: int
    end_offset: int
    size_bytes: int
    index_bytes: int


def grouped_segments(
    segments: Sequence[SourceSegment], *, max_bytes: int, max_index_bytes: int
) -> list[list[SourceSegment]]:
    """Neighbours together as long as one segment can hold them all as they are, and they are not too many."""
    groups: list[list[SourceSegment]] = []
    size_bytes = index_bytes = 0
    for segment in segments:
        if (
            groups
            and len(groups[-1]) < _MAX_SEGMENTS
            and size_bytes + segment.size_bytes <= max_bytes
            and index_bytes + segment.index_bytes <= max_index_bytes
            and segment.end_offset - 1 - groups[-1][0].base_offset <= _MAX_RELATIVE_OFFSET
        ):
            groups[-1].append(segment)
            size_bytes += segment.size_bytes
            index_bytes += segment.index_bytes
        else:
            groups.append([segment])
            size_bytes, index_bytes = segment.size_bytes, segment.index_bytes
    return groups
