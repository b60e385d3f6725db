"""The segments of one partition log, in order, and the batches in them."""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final

from log.errors import CorruptRecord
from log.format.record_batch import whole_batches
from log.segments.positions import position_for
from log.segments.reader import LogReader
from log.segments.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from log.format.record_batch import BatchHeader
    from log.segments.segment_environment import SegmentEnvironment

_CHUNK_BYTES: Final = 16 * 1024


class SegmentList:
    """The segments, ascending by base offset. Batches are appended only to `active`, the last segment.

    Reading raises CorruptRecord, OSError, NotCached (see `Storage`). A removed segment stays readable for readers that have
    begun to read it.
    """

    __slots__ = (
        "_environment",
        "_storage",
        "aborting",
        "active",
        "bases",
        "cut_records",
        "loaded_bytes",
        "reader",
        "removed_bytes",
        "segments",
        "size_bytes",
    )

    def __init__(self, environment: SegmentEnvironment, segments: list[Segment]) -> None:
        """Begin with the segments that were loaded, at least one."""
        self._environment = environment
        self._storage = environment.storage
        self.segments = segments
        self.bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self.size_bytes = self.loaded_bytes = sum(segment.size_bytes for segment in segments)
        self.cut_records = 0
        """The records at the end of the log that reopenings have cut off."""
        self.removed_bytes = 0
        """The bytes that retention and compaction have removed since the load."""
        self.aborting = [segment.base_offset for segment in segments if segment.aborts.has_any]
        """Base offsets of the segments that hold markers of aborts."""
        self.reader = LogReader(environment, self.segments, self.bases)

    def __len__(self) -> int:
        """Return the number of segments."""
        return len(self.segments)

    @property
    def appended_bytes(self) -> int:
        """Return the bytes of all batches appended since the load."""
        return self.size_bytes + self.removed_bytes - self.loaded_bytes

    def continue_counts(self, before: SegmentList, cut_records: int) -> None:
        """Take over what the segments `before` a reopening have counted. The reopening has cut off this many records."""
        self.loaded_bytes -= before.appended_bytes
        self.cut_records = before.cut_records + cut_records

    def _remove_bytes(self, count: int) -> None:
        self.size_bytes -= count
        self.removed_bytes += count

    # --- segments in order

    def add(self, segment: Segment) -> None:
        """Close the active segment, and make `segment` the active one."""
        self.active.become_closed()
        self.segments.append(segment)
        self.bases.append(segment.base_offset)
        self.active = segment

    def drop_first(self, count: int) -> list[Segment]:
        """Take the first `count` segments off the list and return them."""
        dropped = self.segments[:count]
        del self.segments[:count]
        del self.bases[:count]
        if dropped:
            del self.aborting[: bisect_right(self.aborting, dropped[-1].base_offset)]
            self._remove_bytes(sum(segment.size_bytes for segment in dropped))
        return dropped

    def place_of(self, base_offsets: list[int]) -> slice | None:
        """Return the slice of the list that holds these segments; None when one is missing or is the active segment."""
        start = bisect_left(self.bases, base_offsets[0])
        place = slice(start, start + len(base_offsets))
        is_there = self.bases[place] == base_offsets and place.stop < len(self.bases)
        return place if is_there else None

    def replace(self, place: slice, new: Segment) -> None:
        """Replace several segments by one."""
        old = self.segments[place]
        self._remove_bytes(sum(segment.size_bytes for segment in old) - new.size_bytes)
        self.segments[place] = [new]
        self.bases[place] = [new.base_offset]
        self.aborting[:] = [segment.base_offset for segment in self.segments if segment.aborts.has_any]
        self.reader.forget_segments([segment.base_offset for segment in old])

    def number_of(self, offset: int) -> int:
        """Return the index of the segment that holds `offset`; 0 for an offset before the first segment."""
        return max(0, bisect_right(self.bases, offset) - 1)

    def end_offset(self, number: int, log_end_offset: int) -> int:
        """Return the offset at which a segment ends (exclusive)."""
        return self.bases[number + 1] if number + 1 < len(self.bases) else log_end_offset

    def count_below(self, offset: int) -> int:
        """Return the number of segments that end at or before `offset`, the active one excluded."""
        return max(0, bisect_right(self.bases, offset) - 1)

    def holding(self, offset: int) -> Sequence[Segment]:
        """Return the segments from the one that holds `offset` to the active one."""
        return self.segments[self.number_of(offset) :]

    def write_indexes(self, *, may_omit: bool = False) -> list[str]:
        """Write all indexes of the active segment; return their paths, which are not durable yet. Raises OSError.

        With `may_omit`, a small segment that has no offset and time index yet stays without.
        """
        return [*self.active.write_indexes(may_omit=may_omit), *self.active.aborts.write()]

    def retire(self, *, for_readers: bool = False) -> None:
        """Close the files and drop the cached indexes. With `for_readers` readers that have begun may finish."""
        for segment in self.segments:
            self._storage.descriptors.retire(segment.file, for_readers=for_readers)
            self._environment.forget_file(segment.file)

    def drop_cached(self) -> None:
        """Drop the closed segments from the page cache, after reading them all for the last time."""
        for segment in self.segments[:-1]:
            with contextlib.suppress(OSError):
                self._storage.forget_cached(segment.file)

    # --- batches

    def headers_from(self, number: int, offset: int) -> Iterator[BatchHeader]:
        """Yield the headers of the batches of one segment that end at `offset` or later."""
        segment = self.segments[number]
        start = position_for(segment, max(0, offset - segment.base_offset))
        for _, batch in segment.batches(start, segment.size_bytes, _CHUNK_BYTES):
            if batch.last_offset >= offset:
                yield batch

    def batches(
        self, offset: int, end_offset: int, chunk_bytes: int, *, skips_damage: bool
    ) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield each whole batch from the one that holds `offset` to the log end, `end_offset`, with its bytes.

        Reads about `chunk_bytes` at a time. With `skips_damage` the batches after a damaged one follow; otherwise damage raises
        CorruptRecord. A stretch without a whole batch raises CorruptRecord in any case.
        """
        while offset < end_offset:
            if skips_damage:
                region, offset = self.reader.find_sound(offset, chunk_bytes, end_offset)
            else:
                region = self.reader.find(offset, chunk_bytes, end_offset, end_offset, True)
            if region is None:
                return
            data = memoryview(region.read())
            begun_at = offset
            for position, batch in whole_batches(data):
                if batch.last_offset >= offset:
                    offset = batch.last_offset + 1
                    yield batch, data[position : position + batch.size_bytes]
            if offset == begun_at:
                raise CorruptRecord(f"There is no whole batch at offset {offset}.")
