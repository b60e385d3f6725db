"""Finds batches across the segments of one partition, and remembers the positions where readers and the newest flush ended."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol

from log.errors import CorruptRecord, IncompatibleFormat
from log.segments.damage import next_range, range_at, range_holding
from log.segments.examination import examine
from log.segments.positions import position_of
from log.segments.regions import FileRegion

if TYPE_CHECKING:
    from log.segments.damage import DamagedRange
    from log.segments.segment import Segment
    from log.segments.segment_environment import SegmentEnvironment

_KNOWN_POSITIONS: Final = 16
_NOWHERE: Final = (-1, -1)
NOWHERE_DAMAGED: Final = 2**63 - 1


class EndedFlush(Protocol):
    """A flush that made everything durable up to a position of the segment that was active then."""

    end_offset: int
    active_base_offset: int
    end_position: int


class LogReader:
    """Finds batches by the lists of segments and base offsets, which the log keeps up to date.

    A known position is (base_offset of the segment, byte in the file). Raises CorruptRecord, OSError.
    """

    __slots__ = (
        "_bases",
        "_environment",
        "_examined",
        "_flush",
        "_high_watermark",
        "_high_watermark_position",
        "_known_positions",
        "_segments",
        "_storage",
    )

    def __init__(self, environment: SegmentEnvironment, segments: list[Segment], bases: list[int]) -> None:
        """Share the two lists with the log."""
        self._environment = environment
        self._storage = environment.storage
        self._segments = segments
        self._bases = bases
        self._known_positions: OrderedDict[int, tuple[int, int]] = OrderedDict()
        self._examined: dict[int, int] = {}
        """The sizes that segments had when all of their batches were checked, by base offset."""
        self._flush = -1, _NOWHERE
        """The log end offset and its position when the newest flush began. The high watermark moves there when the flush ends."""
        self._high_watermark = -1
        self._high_watermark_position = _NOWHERE

    def _remember(self, offset: int, segment_base_offset: int, position: int) -> None:
        """Remember the position of the batch at `offset`. Readers resume at the offset where they ended."""
        known = self._known_positions
        known[offset] = (segment_base_offset, position)
        if len(known) > _KNOWN_POSITIONS:
            known.popitem(last=False)

    def forget_segments(self, base_offsets: list[int]) -> None:
        """Forget the known positions in these segments."""
        gone = set(base_offsets)
        for offset in [offset for offset, place in self._known_positions.items() if place[0] in gone]:
            del self._known_positions[offset]
        if self._flush[1][0] in gone:
            self._flush = -1, _NOWHERE
        if self._high_watermark_position[0] in gone:
            self._high_watermark_position = _NOWHERE

    def flush_began(self, log_end_offset: int) -> None:
        """Remember the position where the batches of a flush end."""
        active = self._segments[-1]
        self._flush = log_end_offset, (active.base_offset, active.size_bytes)

    def flush_ended(self, flush: EndedFlush) -> None:
        """Remember the position where the batches of a flush end that is not the newest: soon the high watermark."""
        self._flush = flush.end_offset, (flush.active_base_offset, flush.end_position)

    def high_watermark_moved(self, offset: int, log_end_offset: int) -> None:
        """Remember the position where the batches below the high watermark end."""
        self._high_watermark = offset
        if offset == log_end_offset:
            active = self._segments[-1]
            self._high_watermark_position = (active.base_offset, active.size_bytes)
        elif offset == self._flush[0]:
            self._high_watermark_position = self._flush[1]
        else:
            self._high_watermark_position = self._known_positions.get(offset, _NOWHERE)

    def find(
        self, offset: int, max_bytes: int, upper_bound: int, log_end_offset: int, min_one_batch: bool
    ) -> FileRegion | None:
        """Return the batches of one segment from the one that holds `offset` up to `upper_bound` (exclusive).

        The region ends before a damaged range. A damaged batch with sound size and offsets is returned alone; any other damage
        at `offset` raises CorruptRecord.
        """
        index = bisect_right(self._bases, offset) - 1
        while index < len(self._segments):
            segment = self._segments[index]
            damaged = range_holding(segment.damage, offset) if segment.damage else None
            if damaged is not None:
                return self._damaged_region(segment, damaged, max_bytes, upper_bound, min_one_batch)
            try:
                end = self._readable_end(index, upper_bound, log_end_offset)
                position = self._start_position(segment, offset, end)
                if position >= end:
                    self._check_end(index, end, offset)
            except CorruptRecord:
                if not self._is_damage_found(index, log_end_offset):
                    raise
                continue
            index += 1
            if position >= end:
                continue
            if segment.damage:
                damaged = range_at(segment.damage, position)
                if damaged is not None:
                    return self._damaged_region(segment, damaged, max_bytes, upper_bound, min_one_batch)
                ahead = next_range(segment.damage, position)
                end = end if ahead is None else min(end, ahead.position)
            return self._region(index, position, end, max_bytes, upper_bound, min_one_batch)
        return None

    def _check_end(self, index: int, end: int, offset: int) -> None:
        """Raise CorruptRecord if the last segment ends before an offset that the log has."""
        segment = self._segments[index]
        if index + 1 == len(self._segments) and 0 < segment.size_bytes == end:
            raise CorruptRecord(f"{segment.file.path} has no batch with offset {offset}")

    def _is_damage_found(self, index: int, log_end_offset: int) -> bool:
        """Check a segment whose headers can't be right, once. Return whether the check found new damage."""
        segment = self._segments[index]
        if self._examined.get(segment.base_offset) == segment.size_bytes:
            return False
        end_offset = self._bases[index + 1] if index + 1 < len(self._bases) else log_end_offset
        try:
            is_found = examine(self._environment, segment, end_offset)
        except IncompatibleFormat as error:
            raise CorruptRecord(str(error)) from error
        self._examined[segment.base_offset] = segment.size_bytes
        return is_found

    def _region(
        self, index: int, position: int, end: int, max_bytes: int, upper_bound: int, min_one_batch: bool
    ) -> FileRegion | None:
        """Return at most `max_bytes` of batches from `position` on, in the segment before the index."""
        segment = self._segments[index - 1]
        readable = FileRegion(self._storage, segment.file, position, end - position, segment.base_offset)
        size_bytes = min(max_bytes, len(readable))
        if size_bytes < len(readable):
            first_bytes = min(readable.first_batch_bytes(), len(readable))
            if first_bytes > size_bytes and not min_one_batch:
                return None
            size_bytes = max(size_bytes, first_bytes)
        if position + size_bytes == end and not segment.damage:
            next_offset = self._bases[index] if index < len(self._bases) else upper_bound
            self._remember(min(next_offset, upper_bound), segment.base_offset, end)
        return FileRegion(self._storage, segment.file, position, size_bytes, segment.base_offset)

    def find_sound(self, offset: int, max_bytes: int, log_end_offset: int) -> tuple[FileRegion | None, int]:
        """Return the next undamaged batches at or after `offset`, and the offset after the damage that was skipped."""
        while offset < log_end_offset:
            damaged = self.damage_at(offset)
            if damaged is None:
                try:
                    return self.find(offset, max_bytes, log_end_offset, log_end_offset, True), offset
                except CorruptRecord:
                    damaged = self.damage_at(offset)
                    if damaged is None:
                        raise
            offset = damaged.end_offset
        return None, offset

    def first_damaged_base(self) -> int:
        """Return the base offset of the first segment with known damage; NOWHERE_DAMAGED without damage."""
        return next((segment.base_offset for segment in self._segments if segment.damage), NOWHERE_DAMAGED)

    def _damaged_region(
        self,
        segment: Segment,
        damaged: DamagedRange,
        max_bytes: int,
        upper_bound: int,
        min_one_batch: bool,
    ) -> FileRegion | None:
        """Return the bytes of a damaged batch, alone, so that the client's CRC check finds the damage.

        Raises CorruptRecord where a client could not recognize the damage.
        """
        if not damaged.is_framed:
            raise CorruptRecord(f"{segment.file.path} is damaged: {damaged}")
        if damaged.end_offset > upper_bound or (damaged.size_bytes > max_bytes and not min_one_batch):
            return None
        return FileRegion(
            self._storage, segment.file, damaged.position, damaged.size_bytes, segment.base_offset
        )

    def damage_at(self, offset: int) -> DamagedRange | None:
        """Return the known damaged range that holds the offset; None without one."""
        index = max(0, bisect_right(self._bases, offset) - 1)
        damage = self._segments[index].damage
        return range_holding(damage, offset) if damage else None

    def _readable_end(self, index: int, upper_bound: int, log_end_offset: int) -> int:
        """Return the position in the segment where the batches below `upper_bound` end."""
        segment = self._segments[index]
        next_base = self._bases[index + 1] if index + 1 < len(self._bases) else log_end_offset
        if upper_bound >= next_base:
            return segment.size_bytes
        if upper_bound == self._high_watermark and self._high_watermark_position[0] == segment.base_offset:
            return self._high_watermark_position[1]
        return position_of(segment, upper_bound, segment.size_bytes)

    def _start_position(self, segment: Segment, offset: int, end: int) -> int:
        if offset <= segment.base_offset:
            return 0
        known = self._known_positions.get(offset)
        if known is not None and known[0] == segment.base_offset:
            return known[1]
        if offset == self._high_watermark and self._high_watermark_position[0] == segment.base_offset:
            return self._high_watermark_position[1]
        return position_of(segment, offset, end)
