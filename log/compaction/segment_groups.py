"""Groups segments that a cleaning merges into one. Otherwise cleanings would leave ever more and smaller segments.

Source: Kafka's `Cleaner.groupSegmentsBySize`, which does not limit the segments in a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

_MAX_RELATIVE_OFFSET: Final = 2**31 - 1
_MAX_SEGMENTS: Final = 100
"""Segments in one group; further ones begin a new group. One step of the event loop removes all of a group, four files each."""


class SourceSegment(NamedTuple):
    """A closed segment; `end_offset` is exclusive, `index_bytes` is the size of the larger index."""

    base_offset: int
    end_offset: int
    size_bytes: int
    index_bytes: int


def grouped_segments(
    segments: Sequence[SourceSegment], *, max_bytes: int, max_index_bytes: int
) -> list[list[SourceSegment]]:
    """Return groups of neighbours, each small enough for one segment even if the cleaning drops no records."""
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
