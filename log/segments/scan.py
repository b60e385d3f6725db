"""Reads the batches of a segment file: all with their checks, or only the headers.

`SegmentScan` checks every batch, and finds the next sound batch after a damaged one. A batch is sound when
magic, size and CRC are right and its offset follows the offset before. After an unsound batch the scan tries
where the header's size leads. Past a damaged header it searches byte by byte.

`headers` reads the headers of consecutive batches, a part of the file at a time. It yields (position, header)
of each batch that starts in [position, end), and raises CorruptRecord at a header that can't be right,
OSError, NotCached.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from seqgate.log.errors import CorruptRecord, IncompatibleFormat
from seqgate.log.files.page_cache import PageRange
from seqgate.log.files.storage import DataFile, Storage
from seqgate.log.format.record_batch import (
    CRC_COVERS_FROM,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
    crc_matches,
    parse_header,
)
from seqgate.log.segments.damage import DamagedRange
from seqgate.seq_validator.checksum import crc32c

EVERYWHERE: Final = 2**63 - 1
CHUNK_BYTES: Final = 1024 * 1024
MAX_SEARCHED_BYTES: Final = 64 * 1024**3
"""Bytes whose CRC one search computes; then it gives up, and the rest of the file is one damaged range."""
_LATER_MAGIC: Final = MAGIC + 1
"""The magic that a later release would write. Any other unknown magic in a durable batch is damage."""
_OFFSETS_PER_SEGMENT: Final = 2**31


class SegmentScan:
    """Scans the batches of one segment file, from the file's beginning.

    `kept_below`: batches below this offset were durable, so damage among them is a damaged range. The scan
    ends before the first unsound batch at or above that offset: a torn tail. `gaps_below`: offsets may be
    missing up to there, because compaction removes records. `limit`: the base offset of the next segment, if
    all batches below it were durable.
    """

    def __init__(
        self,
        read: Callable[[int, int], bytes],
        path: str,
        size_bytes: int,
        base_offset: int,
        *,
        next_offset: int,
        kept_below: int,
        gaps_below: int = EVERYWHERE,
        limit: int = EVERYWHERE,
    ) -> None:
        """Take the file's size, and `read(position, size_bytes)` to read it."""
        self._read = read
        self._path = path
        self._base_offset = base_offset
        self._gaps_below = gaps_below
        self._limit = min(limit, base_offset + _OFFSETS_PER_SEGMENT)
        self._kept_below = kept_below
        self._data = memoryview(b"")
        self._data_from = 0
        self.end = size_bytes
        self.position = 0
        """The position of the next batch; after the scan, the end of the sound and the damaged bytes."""
        self.next_offset = next_offset
        """The offset that the next batch must have; after the scan, the end offset of the segment."""

    def __iter__(self) -> Iterator[tuple[int, BatchHeader] | DamagedRange]:
        """Yield (position, header) of each sound batch, and damage. Raises OSError, IncompatibleFormat."""
        while self.position < self.end:
            yield from self._run()
            if self.position == self.end:
                return
            batch = self._sound_at(self.position)
            if batch is not None and self._fits(batch):
                position = self.position
                self.position += batch.size_bytes
                self.next_offset = batch.last_offset + 1
                yield position, batch
                continue
            if self.next_offset >= self._kept_below:
                self._check_magic(EVERYWHERE)
                return
            damaged = self._damaged_here()
            self.position += damaged.size_bytes
            self.next_offset = damaged.end_offset
            yield damaged

    def missing(self) -> DamagedRange | None:
        """Return the durable offsets missing at the last segment's end, after the scan, or None."""
        if self.next_offset >= self._kept_below or self.position < self.end:
            return None
        return DamagedRange(
            self._base_offset,
            self.end,
            0,
            self.next_offset,
            self._kept_below,
            is_framed=False,
            reason="the file ends before it",
        )

    # --- sound batches

    def _run(self) -> Iterator[tuple[int, BatchHeader]]:
        """Yield the sound batches without gaps that are in memory: nearly all of a log, so in one loop. The
        run ends at the first batch that needs a closer look.
        """
        data, data_from, limit = self._data, self._data_from, self._limit
        at, next_offset = self.position - data_from, self.next_offset
        last_at = len(data) - HEADER_BYTES
        while 0 <= at <= last_at:
            batch = parse_header(data, at)
            behind = at + batch.size_bytes
            last_offset = next_offset + batch.last_offset_delta
            if (
                batch.magic != MAGIC
                or batch.base_offset != next_offset
                or behind > len(data)
                or behind - at < HEADER_BYTES
                or not next_offset <= last_offset < limit
                or crc32c(data[at + CRC_COVERS_FROM : behind]) != batch.crc
            ):
                return
            position = data_from + at
            at, next_offset = behind, last_offset + 1
            self.position, self.next_offset = data_from + at, next_offset
            yield position, batch

    def _sound_at(self, position: int) -> BatchHeader | None:
        """Return the header of the batch at `position`; None unless the batch is whole with a right CRC."""
        head = self._bytes(position, HEADER_BYTES)
        if head is None:
            return None
        batch = parse_header(head)
        if not batch.is_plausible:
            return None
        whole = self._bytes(position, batch.size_bytes)
        return batch if whole is not None and crc_matches(batch, whole) else None

    def _fits(self, batch: BatchHeader) -> bool:
        """Return whether a sound batch's offsets follow, perhaps with a gap left by cleaning."""
        if batch.last_offset >= self._limit:
            return False
        if batch.base_offset == self.next_offset:
            return True
        if not self.next_offset < batch.base_offset <= self._gaps_below:
            return False
        if batch.base_offset < self._kept_below <= batch.last_offset:
            return False  # a flush ends between two batches
        # No CRC covers the base offset. If the next batch has a lower base offset, this batch's is damaged.
        after = self._sound_at(self.position + batch.size_bytes)
        return after is None or not self.next_offset < after.base_offset <= batch.last_offset

    def _check_magic(self, highest: int) -> None:
        """Refuse a later release's batch (magic up to `highest`): no damage. Raises IncompatibleFormat."""
        head = self._bytes(self.position, HEADER_BYTES)
        if head is None:
            return
        batch = parse_header(head)
        whole = self._bytes(self.position, batch.size_bytes) if batch.size_bytes >= HEADER_BYTES else None
        if MAGIC < batch.magic <= highest and whole is not None and crc_matches(batch, whole):
            raise IncompatibleFormat(
                f"{self._path} has a batch of magic {batch.magic} at position {self.position}; "
                f"this program reads magic {MAGIC}."
            )

    def _bytes(self, position: int, size_bytes: int) -> memoryview | None:
        """Return `size_bytes` bytes of the file; None where the file ends earlier."""
        if position + size_bytes > self.end:
            return None
        start = position - self._data_from
        if start < 0 or start + size_bytes > len(self._data):
            wanted = min(max(CHUNK_BYTES, size_bytes), self.end - position)
            self._data = memoryview(self._read(position, wanted))
            self._data_from, start = position, 0
            if len(self._data) < size_bytes:
                return None
        return self._data[start : start + size_bytes]

    # --- damaged bytes

    def _damaged_here(self) -> DamagedRange:
        """Return the damaged range that begins at the scan's position. Raises IncompatibleFormat."""
        head = self._bytes(self.position, HEADER_BYTES)
        header = parse_header(head) if head is not None else None
        bound = min(self._limit, self._kept_below)
        behind = None
        if header is not None and header.size_bytes >= HEADER_BYTES:
            behind = self._behind(self.position + header.size_bytes, bound)
        if behind is not None and header is not None:
            position, end_offset = behind
            if position == self.end:
                self._check_magic(_LATER_MAGIC)
            is_framed = (
                header.magic == MAGIC
                and header.base_offset == self.next_offset
                and header.last_offset + 1 == end_offset > header.base_offset
            )
            return self._range(position, end_offset, is_framed=is_framed, reason=self._reason(header))
        found = self._search(header, bound)
        if found is None:
            self._check_magic(_LATER_MAGIC)
            return self._range(self.end, bound, is_framed=False, reason=self._reason(header))
        position, after = found
        return self._range(position, after.base_offset, is_framed=False, reason=self._reason(header))

    def _range(self, position: int, end_offset: int, *, is_framed: bool, reason: str) -> DamagedRange:
        size_bytes = position - self.position
        return DamagedRange(
            self._base_offset, self.position, size_bytes, self.next_offset, end_offset, is_framed, reason
        )

    def _reason(self, header: BatchHeader | None) -> str:
        if header is None:
            return "the file ends within the header of a batch"
        if header.magic != MAGIC:
            return f"the magic is {header.magic}"
        if header.base_offset != self.next_offset:
            return f"the base offset is {header.base_offset}"
        if not HEADER_BYTES <= header.size_bytes <= self.end - self.position:
            return f"the length is {header.batch_length}"
        return "the CRC is wrong"

    def _behind(self, position: int, bound: int) -> tuple[int, int] | None:
        """Return (position, offset) of the sound batch at `position`, or of the file's end, or None."""
        if position == self.end:
            return position, bound
        after = self._sound_at(position)
        if after is None or not self._may_follow(after, bound):
            return None
        return position, after.base_offset

    def _may_follow(self, batch: BatchHeader, bound: int) -> bool:
        """Return whether the batch can be the first sound one after a damaged range."""
        return self.next_offset < batch.base_offset <= bound and batch.last_offset < self._limit

    def _search(self, header: BatchHeader | None, bound: int) -> tuple[int, BatchHeader] | None:
        """Return the next sound batch, searched byte by byte; None without one.

        A record may hold the bytes of a batch, so the search prefers likely positions. Best is a batch up to
        which the damaged batch's CRC is right: only the length was damaged. Next comes a batch that another
        sound batch follows, then any sound one.
        """
        weak = None
        left = MAX_SEARCHED_BYTES
        for position in self._candidates(bound):
            head = self._bytes(position, HEADER_BYTES)
            if head is None:
                break
            batch = parse_header(head)
            if not batch.is_plausible or not self._may_follow(batch, bound):
                continue
            left -= batch.size_bytes
            if left < 0:
                break
            if self._sound_at(position) is None:
                continue
            if header is not None and self._ends_at(header, position):
                return position, batch
            end = position + batch.size_bytes
            after = self._sound_at(end)
            if end == self.end or (after is not None and after.base_offset > batch.last_offset):
                return position, batch
            weak = weak or (position, batch)
        return weak

    def _ends_at(self, header: BatchHeader, position: int) -> bool:
        """Return whether the CRC of the batch at the scan's position is right if it ends at `position`."""
        if position - self.position < HEADER_BYTES:
            return False
        covered = self._read(self.position + CRC_COVERS_FROM, position - self.position - CRC_COVERS_FROM)
        return bool(crc32c(covered) == header.crc)

    def _candidates(self, bound: int) -> Iterator[int]:
        """Yield later positions at which the bytes look like a batch with a fitting base offset."""
        first, last = (self.next_offset + 1).to_bytes(8, "big"), min(bound, EVERYWHERE).to_bytes(8, "big")
        same = next((number for number in range(8) if first[number] != last[number]), 8)
        begins = re.compile(
            b"(?=" + re.escape(first[:same]) + b".{%d}" % (16 - same) + bytes([MAGIC]) + b")", re.DOTALL
        )
        start = self.position + 1
        while start + HEADER_BYTES <= self.end:
            data = self._read(start, min(CHUNK_BYTES + HEADER_BYTES, self.end - start))
            for match in begins.finditer(data):
                if match.start() >= CHUNK_BYTES:
                    break
                yield start + match.start()
            start += CHUNK_BYTES


def headers(
    storage: Storage, file: DataFile, base_offset: int, position: int, end: int, chunk_bytes: int
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the headers of a stretch without known damage. The segment begins at `base_offset`."""
    next_offset = base_offset
    while position + HEADER_BYTES <= end:
        data = storage.read(file, min(chunk_bytes, end - position), position)
        at, last_at = 0, len(data) - HEADER_BYTES
        while at <= last_at:
            batch = parse_header(data, at)
            base_offset, size_bytes, delta = batch.base_offset, batch.size_bytes, batch.last_offset_delta
            # As `is_plausible`, without a call for each batch.
            if base_offset < next_offset or batch.magic != MAGIC or size_bytes < HEADER_BYTES or delta < 0:
                raise CorruptRecord(f"{file.path} is damaged at position {position + at}")
            yield position + at, batch
            next_offset = base_offset + delta + 1
            at += size_bytes
        if not at:
            return
        position += at


# The results that the operations of a partition log return.

_BATCH_LENGTH: Final = slice(8, 12)


class Appended(NamedTuple):
    """The offsets of an accepted batch. A duplicate is not written; its result has the original's offsets."""

    base_offset: int
    """The first offset; -1 if all records are duplicates by name, whose originals' offsets are not kept."""
    last_offset: int
    """The last offset; -1 in the same case."""
    log_append_time_ms: int
    """The timestamp that the broker gave the records; -1 where the producer's timestamps count."""
    log_start_offset: int
    is_duplicate: bool
    """Whether the log wrote nothing, because it holds all the records already."""
    answer_after: int
    """The offset that must be durable before the answer may leave."""
    batch: BatchHeader | None = None
    """The header of the batch; None if all its records are duplicates by producer name."""

    @property
    def has_offsets(self) -> bool:
        """Whether the first and last offset of the region are known."""
        return self.base_offset >= 0


class FileRegion:
    """A range of bytes in a segment file, found but not yet read. `len` is the number of bytes."""

    __slots__ = ("_file", "_position", "_storage", "segment_base_offset", "size_bytes")

    def __init__(
        self, storage: Storage, file: DataFile, position: int, size_bytes: int, segment_base_offset: int
    ) -> None:
        """Point at `size_bytes` bytes from `position` on. The file must hold all of the bytes."""
        self.segment_base_offset = segment_base_offset
        self._storage = storage
        self._file = file
        self._position = position
        self.size_bytes = size_bytes

    def __len__(self) -> int:
        return self.size_bytes

    @property
    def end_position(self) -> int:
        return self._position + self.size_bytes

    def read(self, start: int = 0, size_bytes: int | None = None) -> bytes:
        """Return the bytes from `start` on, all or `size_bytes` of them. Raises OSError."""
        wanted = self.size_bytes - start if size_bytes is None else size_bytes
        return self._storage.read(self._file, wanted, self._position + start)

    def first_batch_bytes(self) -> int:
        """Return the size of the first batch, which may reach beyond the region's end. Raises OSError."""
        head = self.read(0, LOG_OVERHEAD_BYTES)
        return LOG_OVERHEAD_BYTES + int.from_bytes(head[_BATCH_LENGTH], "big")

    def place(self, start: int, size_bytes: int) -> PageRange:
        return PageRange(self._file.path, self._position + start, size_bytes)

    def is_cached(self, start: int, size_bytes: int) -> bool:
        """Return whether these bytes can be read without waiting for the disk. Raises OSError."""
        return self._storage.is_cached(self._file, self._position + start, size_bytes)

    def send(self, socket_descriptor: int, start: int, size_bytes: int | None = None) -> int:
        """Send all or `size_bytes` bytes from `start` on to a socket by sendfile. Return how many it took.
        Raises BlockingIOError when the socket is full, OSError.
        """
        wanted = self.size_bytes - start if size_bytes is None else size_bytes
        return self._storage.send(self._file, socket_descriptor, self._position + start, wanted)

    def kept(self) -> KeptRegion:
        """Return a region of the same bytes, readable until `release` even if the segment is removed."""
        return KeptRegion(
            self._storage, self._file, self._position, self.size_bytes, self.segment_base_offset
        )


class KeptRegion(FileRegion):
    """A region that a reader reads bit by bit, until `release`.

    The file is lost to the reader when the log is recovered in place, or when too many readers hold removed
    files. Reading then raises OSError, and never returns other bytes.
    """

    __slots__ = ("_released",)

    def __init__(
        self, storage: Storage, file: DataFile, position: int, size_bytes: int, segment_base_offset: int
    ) -> None:
        """Point at the bytes, and count a reader so that the file stays open."""
        super().__init__(storage, file, position, size_bytes, segment_base_offset)
        self._released = False
        storage.descriptors.begin_reading(file)

    def read(self, start: int = 0, size_bytes: int | None = None) -> bytes:
        """Return all or `size_bytes` bytes from `start` on. Raises OSError, also when the file is gone."""
        self._check()
        return super().read(start, size_bytes)

    def send(self, socket_descriptor: int, start: int, size_bytes: int | None = None) -> int:
        """Send bytes from `start` on; return how many were taken. Raises OSError, also without the file."""
        self._check()
        return super().send(socket_descriptor, start, size_bytes)

    def release(self) -> None:
        """Release the file, so that it can be closed. A second call does nothing."""
        if not self._released:
            self._released = True
            self._storage.descriptors.end_reading(self._file)

    def _check(self) -> None:
        file = self._file
        # A flush may still hold the descriptor of a file whose bytes are being rewritten.
        if self._released or (file.retired and not file.outlives_name):
            raise FileNotFoundError(errno.ENOENT, "the records are no longer in the log", file.path)

    def __del__(self) -> None:
        # A connection drops an unsent answer without calling `release`.
        self.release()


class TimestampAndOffset(NamedTuple):
    """A record found by time. The timestamp is in ms."""

    timestamp: int
    offset: int
    leader_epoch: int
