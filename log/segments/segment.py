"""One segment of a partition log: a run of batches in one file, and its indexes.

Source of the roll and index rules: Kafka's `LogSegment`.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Final
from zlib import crc32

from log.errors import CorruptRecord
from log.files.data_file import DataFile, NotCached
from log.files.file_names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_name,
)
from log.format.record_batch import HEADER_BYTES, NO_TIMESTAMP, crc_matches, parse_header
from log.segments.damage import range_at, range_holding
from log.segments.index_checks import checked_entry, has_timestamp
from log.segments.indexes import TIME_ENTRY, SegmentIndexes
from log.segments.transaction_index import TransactionIndex

if TYPE_CHECKING:
    from collections.abc import Iterator

    from log.config import LogConfig
    from log.format.record_batch import BatchHeader
    from log.segments.damage import DamagedRange
    from log.segments.segment_environment import SegmentEnvironment

_logger = logging.getLogger(__name__)
NEVER: Final = 2**63 - 1
"""A time (ms) that does not come."""
_MAX_RELATIVE_OFFSET: Final = 2**31 - 1
_LOOKUP_CHUNK_BYTES: Final = 4096
SCAN_CHUNK_BYTES: Final = 1024 * 1024


class Segment:
    """A log file and what is known of it. Positions and sizes in bytes, timestamps in ms.

    `max_timestamp` and `offset_of_max_timestamp` are None until they are needed from the index of a closed segment.
    `has_aborted` tells whether a transaction was aborted by a marker in it.
    """

    __slots__ = (
        "_aborted",
        "_bytes_since_entry",
        "_environment",
        "_first_timestamp",
        "_indexes",
        "_is_found",
        "_max_timestamp",
        "_offset_of_max_timestamp",
        "base_offset",
        "created_ms",
        "damage",
        "directory",
        "file",
        "has_aborted",
        "size_bytes",
    )

    def __init__(
        self,
        environment: SegmentEnvironment,
        directory: str,
        base_offset: int,
        size_bytes: int,
        created_ms: int,
    ) -> None:
        """Describe a segment file; nothing is opened."""
        self._environment = environment
        self.directory = directory
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.created_ms = created_ms
        self._is_found = size_bytes > 0
        self.file = DataFile(self.path(LOG_SUFFIX))
        self._indexes: SegmentIndexes | None = SegmentIndexes() if not size_bytes else None
        self._max_timestamp: int | None = NO_TIMESTAMP if not size_bytes else None
        self._offset_of_max_timestamp = base_offset
        self._first_timestamp: int | None = None
        self._bytes_since_entry = 0
        self._aborted: TransactionIndex | None = None
        self.has_aborted = False
        self.damage: tuple[DamagedRange, ...] = ()
        """The damaged ranges that are known, in ascending order. `batches` steps over them."""

    def path(self, suffix: str) -> str:
        """The path of one of the segment's files."""
        return f"{self.directory}/{offset_name(self.base_offset, suffix)}"

    # Writing.

    def must_roll(self, batch: BatchHeader, last_offset: int, config: LogConfig, now_ms: int) -> bool:
        """Whether the batch belongs into a new segment: by size, time, full index, or offsets too far apart.

        Raises CorruptRecord, OSError when the first batch's timestamp must be read and can't be.
        """
        if self._max_timestamp is None:
            self._load_max_timestamp()  # before anything is written: it may have to be read
        if self.size_bytes > config.segment_bytes - batch.size_bytes:
            return True
        if last_offset - self.base_offset > _MAX_RELATIVE_OFFSET:
            return True
        if not self.size_bytes:
            return False
        first = self._first_timestamp
        if first is None:
            first = self._read_first_timestamp()
        waited_ms = batch.max_timestamp - first if first >= 0 else now_ms - self.created_ms
        return waited_ms > self._roll_after_ms(config) or self.indexes().is_full(config.segment_index_bytes)

    def time_to_roll_ms(self, config: LogConfig, now_ms: int) -> int:
        """When a segment to which nothing is appended is to be closed all the same; while that is to come, not after it.

        When its first record is older than segment.ms, and so is the segment itself: records may be of any age when they
        arrive. NEVER when it is empty. Raises CorruptRecord, OSError.
        """
        if not self.size_bytes:
            return NEVER
        if self._is_found:
            # it was made before this run, nobody knows when, and last written at this time
            self._is_found = False
            self.created_ms = min(self.created_ms, self._environment.storage.modified_ms(self.file.path))
        after_ms = self._roll_after_ms(config)
        due_ms = self.created_ms + after_ms
        if due_ms < now_ms:
            first = (
                self._first_timestamp if self._first_timestamp is not None else self._read_first_timestamp()
            )
            due_ms = max(first, self.created_ms) + after_ms
        return min(due_ms + 1, NEVER)

    def _roll_after_ms(self, config: LogConfig) -> int:
        """segment.ms less the segment's own share of segment.jitter.ms, which keeps many from rolling at once."""
        jitter_ms = min(config.segment_jitter_ms, config.segment_ms)
        return config.segment_ms - (crc32(self.file.path.encode()) % jitter_ms if jitter_ms else 0)

    def appended(self, batch: BatchHeader, last_offset: int, interval_bytes: int) -> None:
        """Take account of a batch that was written at the end."""
        size_bytes = batch.size_bytes
        max_timestamp = batch.max_timestamp
        if max_timestamp > self.max_timestamp:
            self._max_timestamp = max_timestamp
            self._offset_of_max_timestamp = last_offset
        if not self.size_bytes:
            self._first_timestamp = max_timestamp
        if self._bytes_since_entry > interval_bytes:
            indexes = self.indexes()
            indexes.add_offset(last_offset - self.base_offset, self.size_bytes)
            indexes.add_time(self.max_timestamp, self._offset_of_max_timestamp - self.base_offset)
            self._bytes_since_entry = 0
        self._bytes_since_entry += size_bytes
        self.size_bytes += size_bytes

    def write_indexes(self) -> list[str]:
        """Write both index files, the largest timestamp last; return their paths, to be made durable by the caller."""
        indexes = self._finished_indexes()
        paths = [self.path(OFFSET_INDEX_SUFFIX), self.path(TIME_INDEX_SUFFIX)]
        storage = self._environment.storage
        for path, entries in zip(paths, (indexes.offset_entries, indexes.time_entries), strict=True):
            storage.write_file(path + TEMPORARY_SUFFIX, bytes(entries))
            storage.rename(path + TEMPORARY_SUFFIX, path)
        return paths

    def _finished_indexes(self) -> SegmentIndexes:
        indexes = self.indexes()
        if self.max_timestamp >= 0:
            indexes.add_time(self.max_timestamp, self._offset_of_max_timestamp - self.base_offset)
        return indexes

    def index_contents(self) -> dict[str, bytes]:
        """What belongs into its index files, by suffix; no index of aborted transactions without any."""
        indexes = self._finished_indexes()
        contents = {
            OFFSET_INDEX_SUFFIX: bytes(indexes.offset_entries),
            TIME_INDEX_SUFFIX: bytes(indexes.time_entries),
        }
        if self._aborted is not None:
            contents[TRANSACTION_INDEX_SUFFIX] = bytes(self._aborted.entries)
        return contents

    def write_transaction_index(self) -> list[str]:
        """Write the index of aborted transactions if this segment holds one in memory; its path, as `write_indexes`."""
        if self._aborted is None:
            return []
        path = self.path(TRANSACTION_INDEX_SUFFIX)
        storage = self._environment.storage
        storage.write_file(path + TEMPORARY_SUFFIX, bytes(self._aborted.entries))
        storage.rename(path + TEMPORARY_SUFFIX, path)
        return [path]

    def add_aborted(
        self, producer_id: int, first_offset: int, last_offset: int, last_stable_offset: int
    ) -> None:
        """Take account of a marker in this segment that aborted a transaction."""
        if self._aborted is None:
            self._aborted = TransactionIndex()
            self.has_aborted = True
        self._aborted.add(producer_id, first_offset, last_offset, last_stable_offset)

    def become_closed(self) -> None:
        """Hand the indexes to the caches: the segment is no longer written to."""
        if self._indexes is not None:
            self._environment.index_cache.put(self.file.path, self._indexes)
            self._indexes = None
        if self._aborted is not None:
            self._environment.transaction_index_cache.put(self.file.path, self._aborted)
            self._aborted = None

    def become_active(self) -> None:
        """Keep the indexes in memory: the segment is written to."""
        self._indexes = self.indexes()
        self._environment.index_cache.drop(self.file.path)

    # Reading.

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of a batch, -1 without any."""
        if self._max_timestamp is None:
            self._load_max_timestamp()
        return self._max_timestamp if self._max_timestamp is not None else NO_TIMESTAMP

    @property
    def offset_of_max_timestamp(self) -> int:
        """The last offset of the first batch that has the largest timestamp."""
        if self._max_timestamp is None:
            self._load_max_timestamp()
        return self._offset_of_max_timestamp

    def indexes(self) -> SegmentIndexes:
        """Both indexes, read from disk when they are not in memory and rebuilt when they are missing or damaged.

        Raises CorruptRecord, OSError, NotCached (see `Storage`).
        """
        if self._indexes is not None:
            return self._indexes
        cached = self._environment.index_cache.get(self.file.path)
        if cached is not None:
            return cached
        storage = self._environment.storage
        paths = self.path(OFFSET_INDEX_SUFFIX), self.path(TIME_INDEX_SUFFIX)
        storage.check_brought_in(paths)
        try:
            indexes = SegmentIndexes(storage.read_file(paths[0]), storage.read_file(paths[1]))
        except OSError:
            # Missing, or on a bad sector: the log file has all that is in it.
            indexes = None
        if indexes is None or not indexes.is_sane(self.size_bytes):
            return self.rebuild_indexes()
        self._environment.index_cache.put(self.file.path, indexes)
        return indexes

    def transaction_index(self) -> TransactionIndex:
        """The index of aborted transactions, read from disk when it is not in memory. Raises OSError."""
        if self._aborted is not None:
            return self._aborted
        cached = self._environment.transaction_index_cache.get(self.file.path)
        if cached is None:
            storage, path = self._environment.storage, self.path(TRANSACTION_INDEX_SUFFIX)
            storage.check_brought_in((path,))
            cached = TransactionIndex(storage.read_file(path))
            self._environment.transaction_index_cache.put(self.file.path, cached)
        return cached

    def hold_transaction_index(self) -> None:
        """Keep the index of aborted transactions in memory: the segment is written to. Raises OSError."""
        if self.has_aborted:
            self._aborted = self.transaction_index()
            self._environment.transaction_index_cache.drop(self.file.path)

    def forget_aborted(self) -> None:
        """Begin the index of aborted transactions anew."""
        self._aborted = None
        self.has_aborted = False
        self._environment.transaction_index_cache.drop(self.file.path)

    def rebuild_indexes(self, interval_bytes: int = 4096) -> SegmentIndexes:
        """Read all batch headers and make the indexes anew, in memory and on disk; return them.

        Raises CorruptRecord, OSError, NotCached; nothing is changed then.
        """
        end = self.size_bytes
        self.start_over()
        try:
            next_offset = self.base_offset
            for position, batch in self.batches(0, end):
                if position + batch.size_bytes > end:
                    break
                self._check_offsets(batch, next_offset, position)
                next_offset = batch.last_offset + 1
                self.appended(batch, batch.last_offset, interval_bytes)
        except (CorruptRecord, OSError, NotCached):
            self._indexes = self._max_timestamp = self._first_timestamp = None
            raise
        finally:
            self.size_bytes = end
        rebuilt = self.indexes()
        try:
            for path in self.write_indexes():
                self._environment.storage.sync_path(path)
        except OSError as error:
            _logger.warning("%s: the rebuilt indexes stay in memory: %s", self.file.path, error)
        self.become_closed()
        return rebuilt

    def _check_offsets(self, batch: BatchHeader, next_offset: int, position: int) -> None:
        last_possible = self.base_offset + _MAX_RELATIVE_OFFSET
        if not next_offset <= batch.base_offset <= batch.last_offset <= last_possible:
            raise CorruptRecord(f"{self.file.path} is damaged at position {position}")

    def mend_indexes(self) -> None:
        """Make anew what a flipped bit has spoiled. Raises as `rebuild_indexes`; nothing is changed then."""
        _logger.warning("%s: an index says what the batches do not, both are made anew", self.file.path)
        held = self._indexes, self._max_timestamp, self._offset_of_max_timestamp, self._first_timestamp
        since_entry = self._bytes_since_entry
        try:
            self.rebuild_indexes()
        except (CorruptRecord, OSError, NotCached):
            self._indexes, self._max_timestamp, self._offset_of_max_timestamp, self._first_timestamp = held
            self._bytes_since_entry = since_entry
            raise
        if held[0] is not None:
            self.become_active()

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Bytes of the log file. Raises OSError, NotCached."""
        return self._environment.storage.read(self.file, size_bytes, position)

    def header_at(self, position: int) -> BatchHeader | None:
        """The header that begins there, unchecked; None where the file ends before it does. Raises as `read_at`."""
        data = self.read_at(position, HEADER_BYTES)
        return parse_header(data) if len(data) == HEADER_BYTES else None

    def start_over(self) -> None:
        """Forget what is known of the content, to fold it in again batch by batch with `appended`."""
        self.size_bytes = 0
        self._indexes = SegmentIndexes()
        self._max_timestamp = NO_TIMESTAMP
        self._offset_of_max_timestamp = self.base_offset
        self._first_timestamp = None
        self._bytes_since_entry = 0

    def batches(
        self, position: int, end: int, chunk_bytes: int = SCAN_CHUNK_BYTES
    ) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of each batch that starts in [position, end), but for damaged ranges that are known.

        Raises CorruptRecord where a header can't be right, OSError.
        """
        if self.damage:
            return self._headers_around_damage(position, end, chunk_bytes)
        return self._headers(position, end, chunk_bytes)

    def _headers_around_damage(
        self, position: int, end: int, chunk_bytes: int
    ) -> Iterator[tuple[int, BatchHeader]]:
        for found in self.damage:
            if found.position >= end:
                break
            behind = found.position + found.size_bytes
            if position < behind:
                yield from self._headers(position, found.position, chunk_bytes)
                position = behind
        yield from self._headers(position, end, chunk_bytes)

    def _headers(self, position: int, end: int, chunk_bytes: int) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of each batch that starts in [position, end), where no damage is known."""
        storage = self._environment.storage
        next_offset = self.base_offset
        while position + HEADER_BYTES <= end:
            data = storage.read(self.file, min(chunk_bytes, end - position), position)
            at = 0
            while len(data) - at >= HEADER_BYTES:
                batch = parse_header(data, at)
                base_offset = batch.base_offset
                if base_offset < next_offset or not batch.is_plausible:
                    raise CorruptRecord(f"{self.file.path} is damaged at position {position + at}")
                yield position + at, batch
                next_offset = base_offset + batch.last_offset_delta + 1
                at += batch.size_bytes
            if not at:
                return
            position += at

    def largest_timestamp(self) -> int:
        """What retention goes by: the largest timestamp, or when the file was last written if no record has one."""
        largest = self.max_timestamp
        return largest if largest >= 0 else self._environment.storage.modified_ms(self.file.path)

    def first_timestamp(self) -> int:
        """The largest timestamp of its first batch, -1 without any. Raises OSError, CorruptRecord."""
        if self._first_timestamp is not None:
            return self._first_timestamp
        return self._read_first_timestamp() if self.size_bytes else NO_TIMESTAMP

    def position_of(self, offset: int, end: int) -> int:
        """The position of the batch or damaged range that holds `offset`, or `end` when it lies beyond.

        Raises CorruptRecord where a header can't be right, OSError, NotCached.
        """
        damaged = range_holding(self.damage, offset) if self.damage else None
        if damaged is not None:
            return min(damaged.position, end)
        start = self.position_for(offset - self.base_offset)
        for position, batch in self.batches(start, end, _LOOKUP_CHUNK_BYTES):
            if batch.last_offset >= offset:
                if batch.base_offset != offset and not self._is_borne_out(position, batch, offset):
                    raise CorruptRecord(f"{self.file.path} is damaged at position {position}")
                return position
        return end

    def _is_borne_out(self, position: int, batch: BatchHeader, offset: int) -> bool:
        """Whether the batch found for an offset that is not its first can be the right one: the batch behind it goes on."""
        behind = position + batch.size_bytes
        if self.damage and range_at(self.damage, behind) is not None:
            return True
        after = self.header_at(behind) if behind < self.size_bytes else None
        if after is not None:
            return after.is_plausible and after.base_offset > batch.last_offset
        if batch.base_offset > offset:
            return True
        whole = memoryview(self.read_at(position, batch.size_bytes))
        return len(whole) == batch.size_bytes and crc_matches(batch, whole)

    def position_for(self, relative_offset: int) -> int:
        """The position of a batch at or before the one that holds the offset. Raises as `indexes`."""
        entry = checked_entry(self, lambda indexes: indexes.entry_for(relative_offset))
        return entry[1] if entry is not None else 0

    def position_before(self, position: int) -> int:
        """The position of a batch that is not beyond `position`. Raises as `indexes`."""
        entry = checked_entry(self, lambda indexes: indexes.entry_before(position))
        return entry[1] if entry is not None else 0

    def offset_after(self, position: int) -> int | None:
        """The relative offset up to which all lies before the next entry's batch; None without one. Raises as `indexes`."""
        entry = checked_entry(self, lambda indexes: indexes.entry_after(position))
        return entry[0] if entry is not None else None

    def _load_max_timestamp(self) -> None:
        last = self._last_time()
        if self._max_timestamp is None:
            timestamp, relative_offset = last or (NO_TIMESTAMP, 0)
            self._max_timestamp = timestamp
            self._offset_of_max_timestamp = self.base_offset + relative_offset

    def _last_time(self) -> tuple[int, int] | None:
        """The newest entry of the time index. To check all of a large index takes longer than a request may wait."""
        if self._indexes is None and self._environment.index_cache.get(self.file.path) is None:
            storage, path = self._environment.storage, self.path(TIME_INDEX_SUFFIX)
            storage.check_brought_in((path,))
            with contextlib.suppress(OSError):
                content = storage.read_file(path)
                newest = SegmentIndexes(time_entries=content[-2 * TIME_ENTRY.size :])
                if len(content) % TIME_ENTRY.size == 0 and newest.is_sane(self.size_bytes):
                    found = newest.last_time()
                    path = self.path(OFFSET_INDEX_SUFFIX)
                    storage.check_brought_in((path,))
                    offsets = SegmentIndexes(storage.read_file(path))
                    if found is None or has_timestamp(self, offsets, *found):
                        return found
        found = self.indexes().last_time()
        if found is not None and not has_timestamp(self, self.indexes(), *found):
            with contextlib.suppress(CorruptRecord):
                self.mend_indexes()
                found = self.indexes().last_time()
        return found

    def _read_first_timestamp(self) -> int:
        """The largest timestamp of the first batch that is not damaged; -1 when that is not known."""
        if self.header_at(0) is None:
            raise CorruptRecord(f"{self.file.path} ends within its first batch")
        found = None
        with contextlib.suppress(CorruptRecord):  # damage costs no more than a roll at another time
            found = next(self.batches(0, self.size_bytes, _LOOKUP_CHUNK_BYTES), None)
        self._first_timestamp = NO_TIMESTAMP if found is None else found[1].max_timestamp
        return self._first_timestamp
