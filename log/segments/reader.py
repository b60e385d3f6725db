"""Reading batches across the segments of one partition, and remembering where readers and flushes ended."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from log.segments.regions import FileRegion

if TYPE_CHECKING:
    from log.files.storage import Storage
    from log.segments.segment import Segment

_KNOWN_POSITIONS: Final = 16
_NOWHERE: Final = (-1, -1)


class LogReader:
    """Reads from the lists of segments and their base offsets, which the log keeps up to date.

    A position is (base_offset of the segment, byte in it). Raises CorruptRecord, OSError.
    """

    __slots__ = (
        "_bases",
        "_high_watermark",
        "_high_watermark_position",
        "_known_positions",
        "_segments",
        "_storage",
    )

    def __init__(self, storage: Storage, segments: list[Segment], bases: list[int]) -> None:
        """Share the two lists with the log."""
        self._storage = storage
        self._segments = segments
        self._bases = bases
        self._known_positions: OrderedDict[int, tuple[int, int]] = OrderedDict()
        self._high_watermark = -1
        self._high_watermark_position = _NOWHERE

    def remember(self, offset: int, segment_base_offset: int, position: int) -> None:
        """Note where the batch at `offset` begins: readers come back for the offset at which they, or a flush, ended."""
        known = self._known_positions
        known[offset] = (segment_base_offset, position)
        if len(known) > _KNOWN_POSITIONS:
            known.popitem(last=False)

    def forget_segments(self, base_offsets: list[int]) -> None:
        """What is known of positions in these segments holds no more."""
        gone = set(base_offsets)
        for offset in [offset for offset, place in self._known_positions.items() if place[0] in gone]:
            del self._known_positions[offset]
        if self._high_watermark_position[0] in gone:
            self._high_watermark_position = _NOWHERE

    def high_watermark_moved(self, offset: int, log_end_offset: int) -> None:
        """Keep where the batches below the high watermark end."""
        self._high_watermark = offset
        if offset == log_end_offset:
            active = self._segments[-1]
            self._high_watermark_position = (active.base_offset, active.size_bytes)
        else:
            self._high_watermark_position = self._known_positions.get(offset, _NOWHERE)

    def find(
        self, offset: int, max_bytes: int, upper_bound: int, log_end_offset: int, min_one_batch: bool
    ) -> FileRegion | None:
        """Batches from the one that holds `offset` on, below `upper_bound` (exclusive), of one segment."""
        index = bisect_right(self._bases, offset) - 1
        while index < len(self._segments):
            segment = self._segments[index]
            end = self._readable_end(index, upper_bound, log_end_offset)
            position = self._start_position(segment, offset, end)
            index += 1
            if position >= end:
                continue
            base_offset = segment.base_offset
            readable = FileRegion(self._storage, segment.file, position, end - position, base_offset)
            size_bytes = min(max_bytes, len(readable))
            if size_bytes < len(readable):
                first_bytes = min(readable.first_batch_bytes(), len(readable))
                if first_bytes > size_bytes and not min_one_batch:
                    return None
                size_bytes = max(size_bytes, first_bytes)
            if position + size_bytes == end:
                next_offset = self._bases[index] if index < len(self._bases) else upper_bound
                self.remember(min(next_offset, upper_bound), base_offset, end)
            return FileRegion(self._storage, segment.file, position, size_bytes, base_offset)
        return None

    def _readable_end(self, index: int, upper_bound: int, log_end_offset: int) -> int:
        """Where in the segment the batches below `upper_bound` end."""
        segment = self._segments[index]
        next_base = self._bases[index + 1] if index + 1 < len(self._bases) else log_end_offset
        if upper_bound >= next_base:
            return segment.size_bytes
        if upper_bound == self._high_watermark and self._high_watermark_position[0] == segment.base_offset:
            return self._high_watermark_position[1]
        return segment.position_of(upper_bound, segment.size_bytes)

    def _start_position(self, segment: Segment, offset: int, end: int) -> int:
        if offset <= segment.base_offset:
            return 0
        known = self._known_positions.get(offset)
        if known is not None and known[0] == segment.base_offset:
            return known[1]
        return segment.position_of(offset, end)
