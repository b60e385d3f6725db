"""One segment of a partition log: consecutive batches in one file, and the indexes of that file.

Source of the roll and index rules: Kafka's `LogSegment`.

A clean stop of very many logs spends most of its time on files. So it writes neither `.index` nor
`.timeindex` for a small segment that has none, whose indexes the next load rebuilds from a few headers.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, Protocol
from zlib import crc32

from seqgate.log.config import LogConfig
from seqgate.log.errors import CorruptRecord
from seqgate.log.files.deletion_queue import DeletionQueue
from seqgate.log.files.file_names import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_name,
)
from seqgate.log.files.page_cache import NotCached
from seqgate.log.files.storage import DataFile, Storage
from seqgate.log.format.record_batch import (
    HEADER_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    crc_matches,
    parse_header,
)
from seqgate.log.segments.damage import DamagedRange, DamageRegister, range_at, range_holding
from seqgate.log.segments.indexes import TIME_ENTRY, IndexCache, RebuiltIndexes, SegmentIndexes
from seqgate.log.segments.scan import SegmentScan, headers
from seqgate.log.segments.transaction_index import AbortedTransaction, TransactionIndex

_logger = logging.getLogger(__name__)

NEVER: Final = 2**63 - 1
"""A time (ms) that never comes."""
_MAX_RELATIVE_OFFSET: Final = 2**31 - 1
_LOOKUP_CHUNK_BYTES: Final = 4096
_INTERVAL_BYTES: Final = 4096
"""Kafka's default of `index.interval.bytes`."""
SCAN_CHUNK_BYTES: Final = 1024 * 1024


class Segment:
    """A log file with its indexes. Positions and sizes in bytes, timestamps in ms. A closed segment reads
    `max_timestamp` and `offset_of_max_timestamp` from the time index on first use.
    """

    __slots__ = (
        "_bytes_since_entry",
        "_environment",
        "_first_timestamp",
        "_indexes",
        "_is_found",
        "_max_timestamp",
        "_offset_of_max_timestamp",
        "aborts",
        "base_offset",
        "created_ms",
        "damage",
        "directory",
        "file",
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
        """Describe a segment file, without opening the file."""
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
        self.aborts = SegmentAborts(environment, self.file.path)
        self.damage: tuple[DamagedRange, ...] = ()
        """The known damaged ranges, in ascending order. `batches` skips them."""

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{offset_name(self.base_offset, suffix)}"

    # --- writing

    def must_roll(self, batch: BatchHeader, last_offset: int, config: LogConfig, now_ms: int) -> bool:
        """Return whether the batch needs a new segment: by size, time, full index, or distant offsets. Raises
        CorruptRecord, OSError when a needed timestamp can't be read.
        """
        if self._max_timestamp is None:
            self._load_max_timestamp()  # Read the index before the write, because the read may fail.
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
        after_ms = self._roll_after_ms(config) if config.segment_jitter_ms else config.segment_ms
        indexes = self._indexes
        if indexes is None:
            indexes = self.indexes()
        return waited_ms > after_ms or indexes.needed_bytes > config.segment_index_bytes

    def time_to_roll_ms(self, config: LogConfig, now_ms: int) -> int:
        """Return from when on (ms) to close the segment even without appends. A future time may be too early.

        A segment is due when both its first record and the segment itself are older than segment.ms: records
        may arrive with any age. NEVER for an empty segment. Raises CorruptRecord, OSError.
        """
        if not self.size_bytes:
            return NEVER
        if self._is_found:
            # An earlier run made the segment at an unknown time; the last write is the best bound.
            self._is_found = False
            self.created_ms = min(self.created_ms, self._environment.storage.modified_ms(self.file.path))
        after_ms = self._roll_after_ms(config)
        due_ms = self.created_ms + after_ms
        if due_ms < now_ms:
            due_ms = max(self.first_timestamp(), self.created_ms) + after_ms
        return min(due_ms + 1, NEVER)

    def _roll_after_ms(self, config: LogConfig) -> int:
        """Return segment.ms less this segment's share of segment.jitter.ms, which spreads rolls."""
        jitter_ms = min(config.segment_jitter_ms, config.segment_ms)
        return config.segment_ms - (crc32(self.file.path.encode()) % jitter_ms if jitter_ms else 0)

    def appended(self, batch: BatchHeader, last_offset: int, interval_bytes: int) -> None:
        """Add a batch that was written at the end to the size, the timestamps and the indexes."""
        size_bytes = batch.size_bytes
        max_timestamp, known = batch.max_timestamp, self._max_timestamp
        if max_timestamp > (self.max_timestamp if known is None else known):
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

    def write_indexes(self, *, may_omit: bool = False) -> list[str]:
        """Write both index files, with the largest timestamp as the last entry. Return their paths; the
        caller persists them. With `may_omit`, a small segment without index files stays without.
        """
        self._environment.rebuilt_indexes.drop(self.file.path)
        storage = self._environment.storage
        # A load that finds no offset index rebuilds both.
        if may_omit and not are_needed(storage, self.size_bytes, self.path(OFFSET_INDEX_SUFFIX)):
            return []
        return [storage.replace(path, entries) for path, entries in self._index_files().items()]

    def _index_files(self) -> dict[str, bytes]:
        return {self.path(suffix): entries for suffix, entries in self._offset_and_time_entries().items()}

    def _offset_and_time_entries(self) -> dict[str, bytes]:
        """Return the content of both index files by suffix, with the largest timestamp as the last entry."""
        indexes = self.indexes()
        if self.max_timestamp >= 0:
            indexes.add_time(self.max_timestamp, self._offset_of_max_timestamp - self.base_offset)
        return {
            OFFSET_INDEX_SUFFIX: bytes(indexes.offset_entries),
            TIME_INDEX_SUFFIX: bytes(indexes.time_entries),
        }

    def index_contents(self) -> dict[str, bytes]:
        """Return the content of the index files by suffix, with a transaction index if any was aborted."""
        contents = self._offset_and_time_entries()
        aborted = self.aborts.entries
        if aborted is not None:
            contents[TRANSACTION_INDEX_SUFFIX] = aborted
        return contents

    def remove(self, due_ms: int) -> None:
        """Rename the files to `*.deleted`, and queue them for deletion from `due_ms` on, as Kafka's
        `LocalLog.deleteSegmentFiles` does. A load deletes those that a crash leaves behind. Raises OSError.
        """
        environment = self._environment
        environment.storage.descriptors.retire(self.file, for_readers=True)
        environment.forget_indexes(self.file.path)
        for suffix in SEGMENT_SUFFIXES:
            path = self.path(suffix)
            with contextlib.suppress(FileNotFoundError):
                environment.storage.rename(path, path + DELETED_SUFFIX)
                environment.deletions.add(path + DELETED_SUFFIX, due_ms)

    def become_closed(self) -> None:
        """Hand the indexes to the caches, as no more batches will be appended."""
        if self._indexes is not None:
            self._environment.index_cache.put(self.file.path, self._indexes)
            self._indexes = None
        self.aborts.hand_over()

    @property
    def has_index_files(self) -> bool:
        """Whether the segment is closed, and its index files have their names."""
        is_written = self._environment.rebuilt_indexes.of(self.file.path) is None
        return self._indexes is None and is_written

    def hold_indexes(self, contents: Mapping[str, bytes]) -> None:
        """Keep indexes, `contents` by suffix, whose files get their names later, until `become_closed`."""
        indexes = SegmentIndexes(contents.get(OFFSET_INDEX_SUFFIX, b""), contents.get(TIME_INDEX_SUFFIX, b""))
        if indexes.is_sane(self.size_bytes):
            self._indexes = indexes
        aborted = contents.get(TRANSACTION_INDEX_SUFFIX)
        if aborted:
            self.aborts.hold_entries(aborted)

    def become_active(self) -> None:
        """Keep the indexes in memory, as batches will be appended."""
        self._indexes = self.indexes()
        self._environment.index_cache.drop(self.file.path)

    # --- reading

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of a batch, -1 without timestamps."""
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
        """Return both indexes: from memory or disk, or rebuilt when files are missing or damaged. Raises
        CorruptRecord, OSError, NotCached (see `Storage`).
        """
        known = self._known_indexes()
        if known is not None:
            return known
        storage = self._environment.storage
        paths = self.path(OFFSET_INDEX_SUFFIX), self.path(TIME_INDEX_SUFFIX)
        storage.check_brought_in(paths)
        try:
            indexes = SegmentIndexes(storage.read_file(paths[0]), storage.read_file(paths[1]))
        except OSError:
            # The file is missing or on a bad sector. The indexes can be rebuilt from the log file.
            indexes = None
        if indexes is None or not indexes.is_sane(self.size_bytes):
            return self.rebuild_indexes()
        self._environment.index_cache.put(self.file.path, indexes)
        return indexes

    def _known_indexes(self) -> SegmentIndexes | None:
        """Return the indexes that are in memory; None without any."""
        path = self.file.path
        known = self._indexes or self._environment.index_cache.get(path)
        if known is None:
            files = self._environment.rebuilt_indexes.of(path)
            if files is not None:
                known = SegmentIndexes(*files.values())
                self._environment.index_cache.put(path, known)
        return known

    def rebuild_indexes(self) -> SegmentIndexes:
        """Rebuild both indexes from the batch headers. `RebuiltIndexes` writes them later, in a thread.
        Raises CorruptRecord, OSError, NotCached; the indexes are then read again when needed.
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
                self.appended(batch, batch.last_offset, _INTERVAL_BYTES)
        except (CorruptRecord, OSError, NotCached):
            self._indexes = self._max_timestamp = self._first_timestamp = None
            raise
        finally:
            self.size_bytes = end
        rebuilt = self.indexes()
        files = self._index_files()
        if are_needed(self._environment.storage, end, *files):
            self._environment.rebuilt_indexes.add(self.file.path, files)
        self.become_closed()
        return rebuilt

    def _check_offsets(self, batch: BatchHeader, next_offset: int, position: int) -> None:
        last_possible = self.base_offset + _MAX_RELATIVE_OFFSET
        if not next_offset <= batch.base_offset <= batch.last_offset <= last_possible:
            raise CorruptRecord(f"{self.file.path} is damaged at position {position}")

    def mend_indexes(self) -> None:
        """Rebuild indexes that contradict the batches. If rebuilding fails, the segment keeps the indexes
        that it had. Raises CorruptRecord, OSError, NotCached.
        """
        _logger.warning("%s: an index contradicts the batches, both indexes are rebuilt", self.file.path)
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
        """Return bytes of the log file. Raises OSError, NotCached."""
        return self._environment.storage.read(self.file, size_bytes, position)

    def header_at(self, position: int) -> BatchHeader | None:
        """Return the unchecked header at `position`; None where it is cut. Raises OSError, NotCached."""
        data = self.read_at(position, HEADER_BYTES)
        return parse_header(data) if len(data) == HEADER_BYTES else None

    def start_over(self) -> None:
        """Reset size, timestamps and indexes, to fold the batches in again with `appended`."""
        self.size_bytes = 0
        self._indexes = SegmentIndexes()
        self._max_timestamp = NO_TIMESTAMP
        self._offset_of_max_timestamp = self.base_offset
        self._first_timestamp = None
        self._bytes_since_entry = 0

    def batches(
        self, position: int, end: int, chunk_bytes: int = SCAN_CHUNK_BYTES
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of each batch starting in [position, end), skipping known damage. Raises
        CorruptRecord at a header that can't be right, OSError.
        """
        if self.damage:
            return self._batches_around_damage(position, end, chunk_bytes)
        return headers(self._environment.storage, self.file, self.base_offset, position, end, chunk_bytes)

    def _batches_around_damage(
        self, position: int, end: int, chunk_bytes: int
    ) -> Iterator[tuple[int, BatchHeader]]:
        read = partial(headers, self._environment.storage, self.file, self.base_offset)
        for found in self.damage:
            if found.position >= end:
                break
            behind = found.position + found.size_bytes
            if position < behind:
                yield from read(position, found.position, chunk_bytes)
                position = behind
        yield from read(position, end, chunk_bytes)

    def largest_timestamp(self) -> int:
        """Return the timestamp for retention: the largest one, or else the file's modification time."""
        largest = self.max_timestamp
        return largest if largest >= 0 else self._environment.storage.modified_ms(self.file.path)

    def first_timestamp(self) -> int:
        """Return the first batch's largest timestamp, or -1 if empty. Raises OSError, CorruptRecord."""
        if self._first_timestamp is not None:
            return self._first_timestamp
        return self._read_first_timestamp() if self.size_bytes else NO_TIMESTAMP

    def _load_max_timestamp(self) -> None:
        last = self._last_time()
        if self._max_timestamp is None:
            timestamp, relative_offset = last or (NO_TIMESTAMP, 0)
            self._max_timestamp = timestamp
            self._offset_of_max_timestamp = self.base_offset + relative_offset

    def _last_time(self) -> tuple[int, int] | None:
        """Return the newest time index entry. Only that is checked: a whole index would take too long."""
        if self._known_indexes() is None:
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
                    if found is None or self._has_timestamp(offsets, *found):
                        return found
        found = self.indexes().last_time()
        if found is not None and not self._has_timestamp(self.indexes(), *found):
            with contextlib.suppress(CorruptRecord):
                self.mend_indexes()
                found = self.indexes().last_time()
        return found

    def _read_first_timestamp(self) -> int:
        """Return the largest timestamp of the first batch that is not damaged; -1 when that is unknown."""
        if self.header_at(0) is None:
            raise CorruptRecord(f"{self.file.path} is damaged: it ends within its first batch")
        found = None
        with contextlib.suppress(CorruptRecord):  # damage only makes the segment roll at another time
            found = next(self.batches(0, self.size_bytes, _LOOKUP_CHUNK_BYTES), None)
        self._first_timestamp = NO_TIMESTAMP if found is None else found[1].max_timestamp
        return self._first_timestamp

    # --- positions by the indexes, whose files have no checksums
    #
    # An offset index entry points to the batch that ends with its offset. A time index entry gives the
    # timestamp of the batch that ends with its offset. A flipped bit in an entry could make a read begin in
    # the middle of a batch, skip records, or make retention delete a young segment as an old one. So each
    # used entry is compared with the batch's header. If they differ, both indexes are rebuilt. All methods
    # raise CorruptRecord at a header that can't be right, OSError, NotCached.

    def _checked_entry(
        self, find: Callable[[SegmentIndexes], tuple[int, int] | None]
    ) -> tuple[int, int] | None:
        """Return the checked index entry that `find` selects. Returns None also when the batches are damaged:
        earlier ones can be read from the segment's start. Raises OSError, NotCached, CorruptRecord.
        """
        entry = find(self.indexes())
        if entry is None or self._bears_out(*entry):
            return entry
        try:
            self.mend_indexes()
        except CorruptRecord:
            return None
        return find(self.indexes())

    def start_for_time(self, timestamp_ms: int) -> int:
        """Return the relative offset from which on to search for a timestamp later than `timestamp_ms`.
        Raises OSError, NotCached, CorruptRecord.
        """
        timestamp, relative_offset = self.indexes().time_entry_for(timestamp_ms)
        if timestamp < 0 or self._has_timestamp(self.indexes(), timestamp, relative_offset):
            return relative_offset
        try:
            self.mend_indexes()
        except CorruptRecord:
            return 0
        return self.indexes().time_entry_for(timestamp_ms)[1]

    def _has_timestamp(self, indexes: SegmentIndexes, timestamp: int, relative_offset: int) -> bool:
        """Return whether a batch ends with the offset and has this timestamp. Raises OSError, NotCached."""
        entry = indexes.entry_for(relative_offset)
        if entry is not None and not self._bears_out(*entry):
            return False
        wanted = self.base_offset + relative_offset
        try:
            for _, batch in self.batches(entry[1] if entry else 0, self.size_bytes, _LOOKUP_CHUNK_BYTES):
                if batch.last_offset >= wanted:
                    return batch.last_offset == wanted and batch.max_timestamp == timestamp
        except CorruptRecord:
            pass
        return False

    def _bears_out(self, relative_offset: int, position: int) -> bool:
        batch = self.header_at(position)
        if batch is None:
            return False
        return batch.magic == MAGIC and 0 <= batch.base_offset - self.base_offset <= relative_offset

    def position_of(self, offset: int, end: int) -> int:
        """Return the position of the batch or damage that holds `offset`; `end` when it lies beyond."""
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
        """Return whether a batch found for an offset inside of it can be right: the next one begins later."""
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
        """Return the position of a batch at or before the one that holds the offset."""
        entry = self._checked_entry(lambda indexes: indexes.entry_for(relative_offset))
        return entry[1] if entry is not None else 0

    def position_before(self, position: int) -> int:
        """Return the position of a batch at or before `position`."""
        entry = self._checked_entry(lambda indexes: indexes.entry_before(position))
        return entry[1] if entry is not None else 0

    def offset_after(self, position: int) -> int | None:
        """Return the last relative offset of the first batch indexed from `position` on, or None."""
        entry = self._checked_entry(lambda indexes: indexes.entry_after(position))
        return entry[0] if entry is not None else None

    # --- damage

    def parts(self, position: int = 0) -> Iterator[tuple[int, BatchHeader] | DamagedRange]:
        """Yield (position, header) of each batch from `position` on, with the damaged ranges between them in
        order, for a replay. Raises CorruptRecord, OSError.
        """
        batches = self.batches(position, self.size_bytes)
        return self._with_damage(batches, position) if self.damage else batches

    def _with_damage(
        self, batches: Iterator[tuple[int, BatchHeader]], position: int
    ) -> Iterator[tuple[int, BatchHeader] | DamagedRange]:
        ahead = [found for found in self.damage if found.position >= position]
        for at, batch in batches:
            while ahead and ahead[0].position < at:
                yield ahead.pop(0)
            yield at, batch
        yield from ahead

    def examine(self, end_offset: int) -> bool:
        """Check all batches of a durable segment that ends at `end_offset`: the start did not check them,
        because the last stop was clean. Return whether the check found new damage. The check waits for the
        disk, once per damaged segment: starting over after each part that is not cached would take longer.
        Raises OSError, IncompatibleFormat.
        """
        scan = SegmentScan(
            self.read_at,
            self.file.path,
            self.size_bytes,
            self.base_offset,
            next_offset=self.base_offset,
            kept_below=end_offset,
            limit=end_offset,
        )
        known = {found.position for found in self.damage}
        with self._environment.storage.may_wait():
            new = [part for part in scan if isinstance(part, DamagedRange) and part.position not in known]
        if not new:
            return False
        for found in new:
            self.log_damage(found)
        self.damage = tuple(sorted((*self.damage, *new)))
        register = self._environment.damage
        others = [
            found for found in register.of(self.directory) if found.segment_base_offset != self.base_offset
        ]
        register.note(self.directory, sorted((*others, *self.damage)), is_durable=False)
        return True

    def log_damage(self, found: DamagedRange) -> None:
        _logger.error("%s is damaged: %s; the bytes are kept", self.file.path, found)


SMALL_BYTES: Final = 64 * 1024
"""The size of a segment up to which rebuilding its indexes takes no longer than reading two files."""


def are_needed(storage: Storage, segment_bytes: int, *paths: str) -> bool:
    """Return whether index files must be written: the segment is large, or a path has a file, maybe older. A
    segment that may have holes always needs them: a rebuild would fetch its bytes from the bucket.
    """
    if segment_bytes > SMALL_BYTES or storage.sparse is not None:
        return True
    return any(map(storage.exists, paths))


# Keeps a segment's transaction index: in memory while batches are appended, then in the cache or on disk.


class SegmentAborts:
    """The transactions that markers in one segment aborted. `has_any` is True when there are some; a segment
    without aborts has no transaction index.
    """

    __slots__ = ("_environment", "_held", "_log_path", "has_any")

    def __init__(self, environment: SegmentEnvironment, log_path: str) -> None:
        self._environment = environment
        self._log_path = log_path
        self._held: TransactionIndex | None = None
        """The index that is kept in memory, because it grows or is not on the disk yet."""
        self.has_any = False

    @property
    def entries(self) -> bytes | None:
        """The content of the index that is kept in memory; None without one."""
        return None if self._held is None else bytes(self._held.entries)

    def _path(self) -> str:
        return self._log_path.removesuffix(LOG_SUFFIX) + TRANSACTION_INDEX_SUFFIX

    def add(self, aborted: AbortedTransaction) -> None:
        if self._held is None:
            self._held = TransactionIndex()
            self.has_any = True
        self._held.add(
            aborted.producer_id, aborted.first_offset, aborted.last_offset, aborted.last_stable_offset
        )

    def index(self) -> TransactionIndex:
        """Return the transaction index, from memory or from the disk. Raises OSError, NotCached."""
        if self._held is not None:
            return self._held
        cached = self._environment.transaction_index_cache.get(self._log_path)
        if cached is None:
            storage, path = self._environment.storage, self._path()
            storage.check_brought_in((path,))
            cached = TransactionIndex(storage.read_file(path))
            self._environment.transaction_index_cache.put(self._log_path, cached)
        return cached

    def are_sane(self, base_offset: int, end_offset: int) -> bool:
        """Return whether a segment of these offsets has no aborts, or a readable and plausible index."""
        if not self.has_any:
            return True
        try:
            return self.index().is_sane(base_offset, end_offset)
        except OSError as error:
            _logger.warning("%s can't be read and is rebuilt: %s", self._path(), error)
            return False

    def hold(self) -> None:
        """Keep the index in memory, as batches will be appended. Raises OSError."""
        if self.has_any:
            self._held = self.index()
            self._environment.transaction_index_cache.drop(self._log_path)

    def hold_entries(self, entries: bytes) -> None:
        """Keep these entries in memory, whose file gets its name later."""
        self._held = TransactionIndex(entries)
        self.has_any = True

    def hand_over(self) -> None:
        """Hand the index to the cache, as no more batches will be appended."""
        if self._held is not None:
            self._environment.transaction_index_cache.put(self._log_path, self._held)
            self._held = None

    def forget(self) -> None:
        """Drop the index, to rebuild it with `add`."""
        self._held = None
        self.has_any = False
        self._environment.transaction_index_cache.drop(self._log_path)

    def write(self) -> list[str]:
        """Write the index if it is kept in memory. Return its path, if any; the caller persists it."""
        if self._held is None:
            return []
        return [self._environment.storage.replace(self._path(), bytes(self._held.entries))]


# The port through which segments use the objects that all segments of the process share, such as the storage.


class SegmentEnvironment(Protocol):
    """The storage, the index caches and the known damage; `LogEnvironment` has them."""

    storage: Storage
    index_cache: IndexCache[SegmentIndexes]
    transaction_index_cache: IndexCache[TransactionIndex]
    rebuilt_indexes: RebuiltIndexes
    deletions: DeletionQueue
    damage: DamageRegister

    def forget_file(self, file: DataFile) -> None: ...
    def forget_indexes(self, path: str) -> None: ...
