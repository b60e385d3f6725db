"""Measures a partition log from an offset on, in bytes and in age. Backlogs and backlog expiry use the measures.

The functions read the indexes and a few batch headers, never record data. A batch is as old as its newest record. An offset
before the log counts as the log start, and an offset after the log as the log end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from log.segments.index_checks import start_for_time
from log.segments.positions import position_before, position_of
from seq_validator import Duplicate

if TYPE_CHECKING:
    from log.format.record_batch import BatchHeader
    from log.partition_log import PartitionLog

_CHUNK_BYTES: Final = 16 * 1024
MAX_LOOK_BYTES: Final = 1024 * 1024
"""Bytes that one call of `expired_until` searches; the next call resumes at the offset that this call returned."""


def bytes_from(log: PartitionLog, offset: int) -> int:
    """Return the bytes from the batch that holds `offset` to the log end. Raises LogError."""
    log.outage.check()
    offset = max(offset, log.log_start_offset)
    if offset >= log.log_end_offset:
        return 0
    segments = log.segments.holding(offset)
    with log.outage.reading():
        position = position_of(segments[0], offset, segments[0].size_bytes)
    return sum(segment.size_bytes for segment in segments) - position


def newest_timestamp_at(log: PartitionLog, offset: int) -> int | None:
    """Return the largest timestamp in the first batch that ends at `offset` or later; -1 for a batch without timestamps.

    Returns None when no batch ends there. Raises LogError.
    """
    log.outage.check()
    offset = max(offset, log.log_start_offset)
    with log.outage.reading():
        for number in range(log.segments.number_of(offset), len(log.segments)):
            for batch in log.segments.headers_from(number, offset):
                return batch.max_timestamp
    return None


def expired_until(log: PartitionLog, offset: int, before_ms: int, upper_bound: int) -> int:
    """Return the offset up to which all batches from `offset` on are older than `before_ms`; at most `upper_bound`.

    Returns `offset` when the batch at `offset` is younger. A batch without a timestamp counts as old only together with an old
    batch near it. MAX_LOOK_BYTES may end the search before the first young batch. Raises LogError.
    """
    log.outage.check()
    segments = log.segments
    reached = offset = max(offset, log.log_start_offset)
    left = MAX_LOOK_BYTES
    with log.outage.reading():
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
    """Return (reached, bytes left to search, whether the search met a young batch or the limit) for one segment."""
    segment = log.segments.segments[number]
    older = start_for_time(segment, before_ms - 1)
    # The time index entry says: all batches up to this offset, inclusive, are older.
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
    """Return the lowest base offset from which on the log has at most `max_bytes`; the log end offset if no batch fits.

    Raises LogError.
    """
    log.outage.check()
    after = 0
    with log.outage.reading():
        for number in range(len(log.segments) - 1, -1, -1):
            segment = log.segments.segments[number]
            if after + segment.size_bytes > max_bytes:
                return _first_at(log, number, segment.size_bytes - (max_bytes - after))
            after += segment.size_bytes
    return log.log_start_offset


def _first_at(log: PartitionLog, number: int, wanted: int) -> int:
    """Return the base offset of the segment's first batch at the position `wanted` or after it."""
    segment = log.segments.segments[number]
    start = position_before(segment, wanted)
    for position, batch in segment.batches(start, segment.size_bytes, _CHUNK_BYTES):
        if position >= wanted:
            return max(batch.base_offset, log.log_start_offset)
    return log.segments.end_offset(number, log.log_end_offset)


def is_repeated(log: PartitionLog, batch: BatchHeader, now_ms: int) -> bool:
    """Return whether the batch is a duplicate: `append` would answer with the offsets of the original batch."""
    return batch.producer_id >= 0 and isinstance(log.producers.judge(batch, now_ms), Duplicate)
