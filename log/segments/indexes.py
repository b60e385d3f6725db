"""The sparse indexes of one segment, in Kafka's formats.

`.index`: relative_offset int32, position int32; one entry says that the batch at `position` ends with that offset.
`.timeindex`: timestamp int64, relative_offset int32; the largest timestamp up to that offset, inclusive.
Both grow in memory while the segment is written and go to disk when it rolls or the log closes; after a crash they are
rebuilt. Indexes of closed segments are read when first needed and kept in an `IndexCache` of bounded size.
Source: Kafka's `OffsetIndex`, `TimeIndex`.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

OFFSET_ENTRY: Final = struct.Struct(">ii")
TIME_ENTRY: Final = struct.Struct(">qi")
_OFFSET_BYTES: Final = OFFSET_ENTRY.size
_TIME_BYTES: Final = TIME_ENTRY.size


class SegmentIndexes:
    """Both indexes of a segment as their bytes; offsets are relative to the segment's base_offset."""

    __slots__ = ("offset_entries", "time_entries")

    def __init__(self, offset_entries: bytes = b"", time_entries: bytes = b"") -> None:
        """Take the content of the two files."""
        self.offset_entries = bytearray(offset_entries)
        self.time_entries = bytearray(time_entries)

    @property
    def size_bytes(self) -> int:
        """Memory taken by the entries."""
        return len(self.offset_entries) + len(self.time_entries)

    def add_offset(self, relative_offset: int, position: int) -> None:
        """Note that the batch at `position` ends with `relative_offset`."""
        self.offset_entries += OFFSET_ENTRY.pack(relative_offset, position)

    def add_time(self, timestamp_ms: int, relative_offset: int) -> None:
        """Note the largest timestamp so far; one that is not larger than the last entry's is dropped, and so is none (-1)."""
        last = self.last_time()
        if timestamp_ms > (last[0] if last is not None else -1):
            self.time_entries += TIME_ENTRY.pack(timestamp_ms, relative_offset)

    def last_time(self) -> tuple[int, int] | None:
        """The newest (timestamp, relative_offset)."""
        if not self.time_entries:
            return None
        timestamp, relative_offset = TIME_ENTRY.unpack_from(
            self.time_entries, len(self.time_entries) - _TIME_BYTES
        )
        return timestamp, relative_offset

    def entry_for(self, relative_offset: int) -> tuple[int, int] | None:
        """The (relative_offset, position) at or before the batch that holds the offset; None when no entry is low enough."""
        entries = self.offset_entries
        low = bisect_right(
            _numbers(entries, OFFSET_ENTRY), relative_offset, key=_column(entries, OFFSET_ENTRY, 0)
        )
        return self._entry(low - 1)

    def _entry(self, number: int) -> tuple[int, int] | None:
        if not 0 <= number < len(_numbers(self.offset_entries, OFFSET_ENTRY)):
            return None
        relative_offset, position = OFFSET_ENTRY.unpack_from(self.offset_entries, number * _OFFSET_BYTES)
        return relative_offset, position

    def time_entry_for(self, timestamp_ms: int) -> tuple[int, int]:
        """(timestamp, relative offset) to look from on for a later timestamp; (-1, 0) for the start."""
        entries = self.time_entries
        low = bisect_right(_numbers(entries, TIME_ENTRY), timestamp_ms, key=_column(entries, TIME_ENTRY, 0))
        if not low:
            return -1, 0
        timestamp, relative_offset = TIME_ENTRY.unpack_from(entries, (low - 1) * _TIME_BYTES)
        return timestamp, relative_offset

    def entry_after(self, position: int) -> tuple[int, int] | None:
        """The first (relative_offset, position) that is not before `position`; None when all are."""
        entries = self.offset_entries
        numbers = _numbers(entries, OFFSET_ENTRY)
        return self._entry(bisect_left(numbers, position, key=_column(entries, OFFSET_ENTRY, 1)))

    def entry_before(self, position: int) -> tuple[int, int] | None:
        """The last (relative_offset, position) that is not beyond `position`; None when all are."""
        entries = self.offset_entries
        numbers = _numbers(entries, OFFSET_ENTRY)
        return self._entry(bisect_right(numbers, position, key=_column(entries, OFFSET_ENTRY, 1)) - 1)

    def is_full(self, limit_bytes: int) -> bool:
        """Whether one of the indexes has reached `segment.index.bytes`; the time index keeps room for one more."""
        return (
            len(self.offset_entries) > limit_bytes - _OFFSET_BYTES
            or len(self.time_entries) > limit_bytes - 2 * _TIME_BYTES
        )

    def is_sane(self, size_bytes: int) -> bool:
        """Whether the entries ascend and point into a segment of `size_bytes`."""
        if len(self.offset_entries) % _OFFSET_BYTES or len(self.time_entries) % _TIME_BYTES:
            return False
        previous = (-1, -1)
        for entry in OFFSET_ENTRY.iter_unpack(self.offset_entries):
            if entry[0] <= previous[0] or entry[1] <= previous[1]:
                return False
            previous = entry
        if previous[1] >= size_bytes:
            return False
        previous = (-1, -1)
        for entry in TIME_ENTRY.iter_unpack(self.time_entries):
            if entry[0] <= previous[0] or entry[1] < previous[1]:
                return False
            previous = entry
        return True


def _numbers(entries: bytearray, entry: struct.Struct) -> range:
    """The numbers of the whole entries."""
    return range(len(entries) // entry.size)


def _column(entries: bytearray, entry: struct.Struct, column: int) -> Callable[[int], int]:
    """What tells one field of the entry of a number."""
    size, unpack_from = entry.size, entry.unpack_from
    return lambda number: int(unpack_from(entries, number * size)[column])


class SizedIndex(Protocol):
    """What the cache must know of an index."""

    @property
    def size_bytes(self) -> int:
        """Memory taken by the entries."""


Index = TypeVar("Index", bound=SizedIndex)


class IndexCache(Generic[Index]):
    """Indexes of closed segments by path, the least recently used dropped beyond `limit_bytes`."""

    def __init__(self, limit_bytes: int = 16 * 1024 * 1024) -> None:
        """Bound the memory that cached indexes take."""
        self.limit_bytes = limit_bytes
        self.size_bytes = 0
        self._indexes: OrderedDict[str, Index] = OrderedDict()

    def get(self, path: str) -> Index | None:
        """The indexes of the segment file `path` when they are in memory."""
        indexes = self._indexes.get(path)
        if indexes is not None:
            self._indexes.move_to_end(path)
        return indexes

    def put(self, path: str, indexes: Index) -> None:
        """Remember the indexes; others may go."""
        self.drop(path)
        self._indexes[path] = indexes
        self.size_bytes += indexes.size_bytes
        while self.size_bytes > self.limit_bytes and len(self._indexes) > 1:
            self.size_bytes -= self._indexes.popitem(last=False)[1].size_bytes

    def drop(self, path: str) -> None:
        """Forget the indexes of a segment that changes or goes."""
        indexes = self._indexes.pop(path, None)
        if indexes is not None:
            self.size_bytes -= indexes.size_bytes
