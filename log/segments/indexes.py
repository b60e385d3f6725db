"""The sparse indexes of one segment, in Kafka's formats.

`.index`: relative_offset int32, position int32; an entry says that the batch at `position` ends with that
offset. `.timeindex`: timestamp int64, relative_offset int32; the largest timestamp up to that offset,
inclusive. Both indexes grow in memory while batches are appended. The log writes them to disk when it rolls
the segment or closes, and rebuilds them after a crash. Indexes of closed segments are read when first needed,
and kept in an `IndexCache` of bounded size.
Source: Kafka's `OffsetIndex`, `TimeIndex`.

`RebuiltIndexes` has the indexes that were rebuilt while the log serves, until a thread has written them. A
reader that finds a damaged index rebuilds both indexes of the segment and uses them at once, from memory. The
damaged files stay until `write` replaces each of them atomically. So the event loop never waits for these
files, and no crash leaves a short index: a short time index would understate the newest timestamp, and
retention would delete a young segment as an old one.
"""

from __future__ import annotations

import logging
import struct
import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

from seqgate.log.files.storage import DurableFiles
from seqgate.log.segments.transaction_index import TransactionIndex

_logger = logging.getLogger(__name__)


OFFSET_ENTRY: Final = struct.Struct(">ii")
TIME_ENTRY: Final = struct.Struct(">qi")
_OFFSET_BYTES: Final = OFFSET_ENTRY.size
_TIME_BYTES: Final = TIME_ENTRY.size


class SegmentIndexes:
    """Both indexes of a segment as bytes. Offsets are relative to the segment's base_offset."""

    __slots__ = ("needed_bytes", "offset_entries", "time_entries")

    def __init__(self, offset_entries: bytes = b"", time_entries: bytes = b"") -> None:
        self.offset_entries = bytearray(offset_entries)
        self.time_entries = bytearray(time_entries)
        self.needed_bytes = 0
        """The least `segment.index.bytes` with room for one more entry, and for a last time entry."""
        self._count()

    def _count(self) -> None:
        self.needed_bytes = max(
            len(self.offset_entries) + _OFFSET_BYTES, len(self.time_entries) + 2 * _TIME_BYTES
        )

    @property
    def size_bytes(self) -> int:
        return len(self.offset_entries) + len(self.time_entries)

    def add_offset(self, relative_offset: int, position: int) -> None:
        """Add an entry: the batch at `position` ends with `relative_offset`."""
        self.offset_entries += OFFSET_ENTRY.pack(relative_offset, position)
        self._count()

    def add_time(self, timestamp_ms: int, relative_offset: int) -> None:
        """Add the largest timestamp so far. Ignores -1 and one that is not above the last entry's."""
        last = self.last_time()
        if timestamp_ms > (last[0] if last is not None else -1):
            self.time_entries += TIME_ENTRY.pack(timestamp_ms, relative_offset)
            self._count()

    def last_time(self) -> tuple[int, int] | None:
        """Return the newest (timestamp, relative_offset); None without entries."""
        if not self.time_entries:
            return None
        timestamp, relative_offset = TIME_ENTRY.unpack_from(
            self.time_entries, len(self.time_entries) - _TIME_BYTES
        )
        return timestamp, relative_offset

    def entry_for(self, relative_offset: int) -> tuple[int, int] | None:
        """Return the last (relative_offset, position) up to `relative_offset`; None without one."""
        return self._entry(_search(bisect_right, self.offset_entries, OFFSET_ENTRY, 0, relative_offset) - 1)

    def _entry(self, number: int) -> tuple[int, int] | None:
        if not 0 <= number < len(self.offset_entries) // _OFFSET_BYTES:
            return None
        relative_offset, position = OFFSET_ENTRY.unpack_from(self.offset_entries, number * _OFFSET_BYTES)
        return relative_offset, position

    def time_entry_for(self, timestamp_ms: int) -> tuple[int, int]:
        """Return (timestamp, relative offset) from which to search for a later one; (-1, 0): the start."""
        low = _search(bisect_right, self.time_entries, TIME_ENTRY, 0, timestamp_ms)
        if not low:
            return -1, 0
        timestamp, relative_offset = TIME_ENTRY.unpack_from(self.time_entries, (low - 1) * _TIME_BYTES)
        return timestamp, relative_offset

    def entry_after(self, position: int) -> tuple[int, int] | None:
        """Return the first (relative_offset, position) at or after `position`; None when all are before."""
        return self._entry(_search(bisect_left, self.offset_entries, OFFSET_ENTRY, 1, position))

    def entry_before(self, position: int) -> tuple[int, int] | None:
        """Return the last (relative_offset, position) at or before `position`; None when all are after."""
        return self._entry(_search(bisect_right, self.offset_entries, OFFSET_ENTRY, 1, position) - 1)

    def is_sane(self, size_bytes: int) -> bool:
        """Return whether the entries ascend and point into a segment of `size_bytes`."""
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


def _search(
    bisect: Callable[..., int], entries: bytearray, entry: struct.Struct, column: int, wanted: int
) -> int:
    """Return the number of the entry at which `bisect` places a value of this column."""
    size, unpack_from = entry.size, entry.unpack_from
    numbers = range(len(entries) // size)
    return bisect(numbers, wanted, key=lambda number: unpack_from(entries, number * size)[column])


Index = TypeVar("Index", bound="SegmentIndexes | TransactionIndex")


class IndexCache(Generic[Index]):
    """Indexes of closed segments by path. Beyond `limit_bytes` the least recently used are evicted."""

    def __init__(self, limit_bytes: int = 16 * 1024 * 1024) -> None:
        self.limit_bytes = limit_bytes
        self.size_bytes = 0
        self._indexes: OrderedDict[str, Index] = OrderedDict()

    def get(self, path: str) -> Index | None:
        """Return the cached indexes of the segment file `path`; None if they are not in the cache."""
        indexes = self._indexes.get(path)
        if indexes is not None:
            self._indexes.move_to_end(path)
        return indexes

    def put(self, path: str, indexes: Index) -> None:
        """Cache the indexes, and evict others if the cache is full."""
        self.drop(path)
        self._indexes[path] = indexes
        self.size_bytes += indexes.size_bytes
        while self.size_bytes > self.limit_bytes and len(self._indexes) > 1:
            self.size_bytes -= self._indexes.popitem(last=False)[1].size_bytes

    def drop(self, path: str) -> None:
        """Drop the indexes of a segment that changes or is removed."""
        indexes = self._indexes.pop(path, None)
        if indexes is not None:
            self.size_bytes -= indexes.size_bytes


MAX_WAITING_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of indexes that wait to be written. Others are only cached, and rebuilt later again."""


class RebuiltIndexes:
    """The contents of rebuilt index files, by the segment's path. Only `write` may run in another thread."""

    __slots__ = ("_lock", "_waiting", "_waiting_bytes", "_writing", "_writing_path")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        """Held while the files of `_writing_path` are written."""
        self._writing_path: str | None = None
        self._waiting: dict[str, Mapping[str, bytes]] = {}
        self._waiting_bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, segment_path: str, files: Mapping[str, bytes]) -> None:
        self.drop(segment_path)
        size_bytes = sum(map(len, files.values()))
        with self._lock:
            if self._waiting_bytes + size_bytes <= MAX_WAITING_BYTES:
                self._waiting[segment_path] = files
                self._waiting_bytes += size_bytes

    def of(self, segment_path: str) -> Mapping[str, bytes] | None:
        """Return the index files of a segment that wait to be written; None without any."""
        return self._waiting.get(segment_path)

    def drop(self, segment_path: str) -> None:
        """Forget the indexes of a segment that changes or is removed. No later write replaces its files."""
        if not self._waiting:
            return
        with self._lock:
            self._take(segment_path)
            is_being_written = self._writing_path == segment_path
        if is_being_written:
            with self._writing:
                pass

    def write(self, durable: DurableFiles) -> None:
        """Persist the waiting index files. Those that can't be written are rebuilt when needed."""
        for segment_path in list(self._waiting):
            with self._writing:
                with self._lock:
                    files = self._waiting.get(segment_path)
                    self._writing_path = segment_path
                try:
                    for path, content in (files or {}).items():
                        durable.replace(path, content)
                except OSError as error:
                    _logger.warning("the rebuilt indexes of %s can't be written: %s", segment_path, error)
                with self._lock:
                    self._writing_path = None
                    if self._waiting.get(segment_path) is files:
                        self._take(segment_path)

    def _take(self, segment_path: str) -> None:
        files = self._waiting.pop(segment_path, None)
        if files is not None:
            self._waiting_bytes -= sum(map(len, files.values()))
