"""Checking every batch of a segment file, and finding the way back behind damaged ones.

A batch is sound when magic, size and CRC are right and its offset follows the one before. Where one is not, the next sound
batch is looked for: behind the damaged batch as its header tells its size, and byte by byte where the header itself is damaged.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from log.errors import IncompatibleFormat
from log.format.record_batch import CRC_COVERS_FROM, HEADER_BYTES, MAGIC, crc_matches, parse_header
from log.segments.damage import DamagedRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from log.format.record_batch import BatchHeader

EVERYWHERE: Final = 2**63 - 1
CHUNK_BYTES: Final = 1024 * 1024
MAX_SEARCHED_BYTES: Final = 64 * 1024**3
"""Bytes whose CRC one search computes; then it gives up, and all up to the end of the file is one damaged range."""
_LATER_MAGIC: Final = MAGIC + 1
"""The magic that a later release would write. In a durable batch any other one is damage."""
_OFFSETS_PER_SEGMENT: Final = 2**31


class SegmentScan:
    """Walks over the batches of one segment file, from its beginning.

    `kept_below`: what begins below this offset was durable, so damage there is a damaged range. The walk ends before the first
    unsound batch at or above it: a torn tail. `gaps_below`: offsets may be missing up to there, as compaction takes records.
    `limit`: the base offset of the segment after it, where all below was durable.
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
        """Scan the file of `size_bytes` by `read(position, size_bytes)`."""
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
        """Where the next batch begins; after the walk, where the sound and the damaged bytes end."""
        self.next_offset = next_offset
        """The offset that the next batch must have; after the walk, the end offset of the segment."""

    def __iter__(self) -> Iterator[tuple[int, BatchHeader] | DamagedRange]:
        """Walk on; (position, header) of each sound batch, and the damaged ranges between. Raises OSError, IncompatibleFormat."""
        while self.position < self.end:
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
        """After the walk over the last segment: the offsets that must have been behind its end; None when there are none."""
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

    # What is sound.

    def _sound_at(self, position: int) -> BatchHeader | None:
        """The header of the batch there if the batch is whole and its CRC is right."""
        head = self._bytes(position, HEADER_BYTES)
        if head is None:
            return None
        batch = parse_header(head)
        if not batch.is_plausible:
            return None
        whole = self._bytes(position, batch.size_bytes)
        return batch if whole is not None and crc_matches(batch, whole) else None

    def _fits(self, batch: BatchHeader) -> bool:
        """Whether the offsets of a sound batch follow: dense, but for what cleaning may have taken out of durable data."""
        if batch.last_offset >= self._limit:
            return False
        if batch.base_offset == self.next_offset:
            return True
        if not self.next_offset < batch.base_offset <= self._gaps_below:
            return False
        if batch.base_offset < self._kept_below <= batch.last_offset:
            return False  # a flush ends between two batches
        # No CRC covers the base offset. Where the batch behind it goes back, this one's is damaged.
        after = self._sound_at(self.position + batch.size_bytes)
        return after is None or not self.next_offset < after.base_offset <= batch.last_offset

    def _check_magic(self, highest: int) -> None:
        """A batch of a magic up to `highest` that a later release wrote is neither cut off nor damaged. Raises IncompatibleFormat."""
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
        """That many bytes of the file; None where it ends before them."""
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

    # What is damaged.

    def _damaged_here(self) -> DamagedRange:
        """The damaged range that begins at the position. Raises IncompatibleFormat."""
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
        """(position, offset) where the log goes on, if a batch that ends at `position` leads there."""
        if position == self.end:
            return position, bound
        after = self._sound_at(position)
        if after is None or not self._may_follow(after, bound):
            return None
        return position, after.base_offset

    def _may_follow(self, batch: BatchHeader, bound: int) -> bool:
        """Whether the batch can be the first sound one behind a damaged range."""
        return self.next_offset < batch.base_offset <= bound and batch.last_offset < self._limit

    def _search(self, header: BatchHeader | None, bound: int) -> tuple[int, BatchHeader] | None:
        """The next sound batch, searched byte by byte; None when there is none.

        A record may hold the bytes of a batch. So a batch up to which the CRC of the damaged one is right, as its length
        alone is damaged, comes first, then one that is followed by another sound one, then any.
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
        """Whether the CRC of the batch at the present position is right if the batch ends at `position`."""
        if position - self.position < HEADER_BYTES:
            return False
        covered = self._read(self.position + CRC_COVERS_FROM, position - self.position - CRC_COVERS_FROM)
        return bool(crc32c(covered) == header.crc)

    def _candidates(self, bound: int) -> Iterator[int]:
        """Positions behind the present one that look as if a batch with a fitting base offset began there."""
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
