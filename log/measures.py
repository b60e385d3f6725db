"""How much of a partition log lies from an offset on, and how old it is: backlogs and TTL go by it.

Found by the indexes and a few batch headers; record data is never scanned. A batch is as old as its newest record. Offsets
outside of the log count as its start or end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from log.segments.index_checks import start_for_time
from seq_validator import Duplicate

if TYPE_CHECKING:
    from log.format.record_batch import BatchHeader
    from log.partition_log import PartitionLog

_CHUNK_BYTES: Final = 16 * 1024
MAX_LOOK_BYTES: Final = 1024 * 1024
"""Bytes that one call of `expired_until` searches at most; the next call goes on from the offset that was returned."""


def bytes_from(log: PartitionLog, offset: int) -> int:
    """Return the bytes from the batch that holds `offset` to the log end. Raises LogError."""
    log.check_online()
    offset = max(offset, log.log_start_offset)
    if offset >= log.log_end_offset:
        return 0
    segments = log.segments.holding(offset)
    with log.reading():
        position = segments[0].position_of(offset, segments[0].size_bytes)
    return sum(segment.size_bytes for segment in segments) - position


def newest_timestamp_at(log: PartitionLog, offset: int) -> int | None:
    """Return the largest timestamp in the first batch that ends at `offset` or later, -1 if it has none.

    None when there is no such batch. Raises LogError.
    """
    log.check_online()
    offset = max(offset, log.log_start_offset)
    with log.reading():
        for number in range(log.segments.number_of(offset), len(log.segments)):
            for batch in log.segments.headers_from(number, offset):
                return batch.max_timestamp
    return None


def expired_until(log: PartitionLog, offset: int, before_ms: int, upper_bound: int) -> int:
    """Return the offset before which, from `offset` on, all is older than `before_ms`; at most `upper_bound`.

    It is `offset` itself when the batch there is young enough. Batches without a timestamp go with old ones near them,
    never by themselves. The offset may be short of the first young batch, see MAX_LOOK_BYTES. Raises LogError.
    """
    log.check_online()
    segments = log.segments
    reached = offset = max(offset, log.log_start_offset)
    left = MAX_LOOK_BYTES
    with log.reading():
        for number in range(segments.number_of(offset), len(segments)):
            segment = segments.segments[number]
            if 0 <= segment.max_timestamp < before_ms:
                reached = max(reached, segments.end_offset(number, log.log_end_offset))
            elif segment.size_bytes:
                reached, left, is_over = _expired_in(log, number, offset, reached, before_ms, left)
                if is_over:
                    break
            if reached >= upper_bound:
                break
    return max(offset, min(reached, upper_bound))


def _expired_in(
    log: PartitionLog, number: int, offset: int, reached: int, before_ms: int, left: int
) -> tuple[int, int, bool]:
    """Return (reached, bytes left to search, whether a young batch or the limit was met) for one segment."""
    segment = log.segments.segments[number]
    older = start_for_time(segment, before_ms - 1)
    # The entry says that all up to this offset, inclusive, is older.
    if older and segment.base_offset + older >= offset:
        reached = max(reached, segment.base_offset + older + 1)
    for batch in log.segments.headers_from(number, max(offset, reached)):
        if batch.max_timestamp >= before_ms:
            return reached, left, True
        if batch.max_timestamp >= 0:
            reached = batch.last_offset + 1
        left -= batch.size_bytes
        if left <= 0:
            return reached, left, True
    return reached, left, False


def offset_with_bytes_left(log: PartitionLog, max_bytes: int) -> int:
    """Return the lowest offset of a batch from which on the log has at most `max_bytes`; the log end if none has.

    Raises LogError.
    """
    log.check_online()
    after = 0
    with log.reading():
        for number in range(len(log.segments) - 1, -1, -1):
            segment = log.segments.segments[number]
            if after + segment.size_bytes > max_bytes:
                return _first_at(log, number, segment.size_bytes - (max_bytes - after))
            after += segment.size_bytes
    return log.log_start_offset


def _first_at(log: PartitionLog, number: int, wanted: int) -> int:
    """Return the base offset of the first batch of a segment at the position `wanted` or behind it."""
    segment = log.segments.segments[number]
    start = segment.position_before(wanted)
    for position, batch in segment.batches(start, segment.size_bytes, _CHUNK_BYTES):
        if position >= wanted:
            return max(batch.base_offset, log.log_start_offset)
    return log.segments.end_offset(number, log.log_end_offset)


def is_repeated(log: PartitionLog, batch: BatchHeader, now_ms: int) -> bool:
    """Return whether `append` would answer with where the original of this batch lies."""
    return batch.producer_id >= 0 and isinstance(log.producers.judge(batch, now_ms), Duplicate)
