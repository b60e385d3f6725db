"""How much of a partition log lies from an offset on, and how old it is: what backlogs and TTL go by.

Found by the indexes and a few batch headers; record data is never scanned. A batch is as old as its newest record.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from log.errors import StorageFailed
from log.segments.index_checks import start_for_time
from log.transactional_log import TransactionalLog
from seq_validator import Duplicate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from log.format.record_batch import BatchHeader

_CHUNK_BYTES: Final = 16 * 1024
MAX_LOOK_BYTES: Final = 1024 * 1024
"""What one call of `expired_until` looks through at most; the next one goes on from what it returned."""


class MeasuredLog(TransactionalLog):
    """Measures from offsets; those outside of the log count as its start or end."""

    def bytes_from(self, offset: int) -> int:
        """Bytes from the batch that holds `offset` to the log end. Raises LogError."""
        self._check_online()
        offset = max(offset, self.log_start_offset)
        if offset >= self.log_end_offset:
            return 0
        number = self._number_of(offset)
        try:
            segment = self._segments[number]
            position = segment.position_of(offset, segment.size_bytes)
        except OSError as error:
            raise StorageFailed(f"{self.topic}-{self.partition} can't be read: {error}") from error
        return sum(segment.size_bytes for segment in self._segments[number:]) - position

    def newest_timestamp_at(self, offset: int) -> int | None:
        """The largest timestamp in the first batch that ends at `offset` or later, -1 if it has none.

        None when there is no such batch. Raises LogError.
        """
        self._check_online()
        offset = max(offset, self.log_start_offset)
        try:
            for number in range(self._number_of(offset), len(self._segments)):
                for batch in self._batches_from(number, offset):
                    return batch.max_timestamp
        except OSError as error:
            raise StorageFailed(f"{self.topic}-{self.partition} can't be read: {error}") from error
        return None

    def expired_until(self, offset: int, before_ms: int, upper_bound: int) -> int:
        """The offset before which, from `offset` on, all is older than `before_ms`; at most `upper_bound`.

        It is `offset` itself when the batch there is young enough. Batches without a timestamp go with old
        ones near them, never by themselves. What is returned may be short of the first young batch, see MAX_LOOK_BYTES. Raises LogError.
        """
        self._check_online()
        reached = offset = max(offset, self.log_start_offset)
        left = MAX_LOOK_BYTES
        try:
            for number in range(self._number_of(offset), len(self._segments)):
                segment = self._segments[number]
                if 0 <= segment.max_timestamp < before_ms:
                    reached = max(reached, self._end_offset(number))
                elif segment.size_bytes:
                    reached, left, is_over = self._expired_in(number, offset, reached, before_ms, left)
                    if is_over:
                        break
                if reached >= upper_bound:
                    break
        except OSError as error:
            raise StorageFailed(f"{self.topic}-{self.partition} can't be read: {error}") from error
        return max(offset, min(reached, upper_bound))

    def _expired_in(
        self, number: int, offset: int, reached: int, before_ms: int, left: int
    ) -> tuple[int, int, bool]:
        """(reached, bytes left to look through, whether a young batch or the limit was met) in one segment."""
        segment = self._segments[number]
        older = start_for_time(segment, before_ms - 1)
        # the entry says that all up to this offset, inclusive, is older
        if older and segment.base_offset + older >= offset:
            reached = max(reached, segment.base_offset + older + 1)
        for batch in self._batches_from(number, max(offset, reached)):
            if batch.max_timestamp >= before_ms:
                return reached, left, True
            if batch.max_timestamp >= 0:
                reached = batch.last_offset + 1
            left -= batch.size_bytes
            if left <= 0:
                return reached, left, True
        return reached, left, False

    def offset_with_bytes_left(self, max_bytes: int) -> int:
        """The lowest offset of a batch from which on the log has at most `max_bytes`; the log end if none has.

        Raises LogError.
        """
        self._check_online()
        after = 0
        try:
            for number in range(len(self._segments) - 1, -1, -1):
                segment = self._segments[number]
                if after + segment.size_bytes > max_bytes:
                    return self._first_at(number, segment.size_bytes - (max_bytes - after))
                after += segment.size_bytes
        except OSError as error:
            raise StorageFailed(f"{self.topic}-{self.partition} can't be read: {error}") from error
        return self.log_start_offset

    def _first_at(self, number: int, wanted: int) -> int:
        """The base offset of the first batch of a segment at the position `wanted` or behind it."""
        segment = self._segments[number]
        start = segment.position_before(wanted)
        for position, batch in segment.batches(start, segment.size_bytes, _CHUNK_BYTES):
            if position >= wanted:
                return max(batch.base_offset, self.log_start_offset)
        return self._end_offset(number)

    def is_repeated(self, batch: BatchHeader, now_ms: int) -> bool:
        """Whether `append` would answer with where the original of this batch lies."""
        return batch.producer_id >= 0 and isinstance(self.producers.judge(batch, now_ms), Duplicate)

    def _number_of(self, offset: int) -> int:
        return max(0, bisect_right(self._bases, offset) - 1)

    def _end_offset(self, number: int) -> int:
        return self._bases[number + 1] if number + 1 < len(self._bases) else self.log_end_offset

    def _batches_from(self, number: int, offset: int) -> Iterator[BatchHeader]:
        """The batches of a segment that end at `offset` or later."""
        segment = self._segments[number]
        start = segment.position_for(max(0, offset - segment.base_offset))
        for _, batch in segment.batches(start, segment.size_bytes, _CHUNK_BYTES):
            if batch.last_offset >= offset:
                yield batch
