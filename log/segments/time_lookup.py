"""Finds records by time, and decodes only the batches that can hold the answer.

Source: Kafka's `UnifiedLog.fetchOffsetByTimestamp`, `LogSegment.findOffsetByTimestamp` (KIP-79, KIP-734).
"""

from __future__ import annotations

import math
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from seqgate.log.files.page_cache import NotCached
from seqgate.log.format.batch_validation import plain_records, stored_records
from seqgate.log.format.records import as_int64
from seqgate.log.segments.indexes import position_for, position_of, start_for_time
from seqgate.log.segments.scan import TimestampAndOffset

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from seqgate.log.config import LogConfig
    from seqgate.log.files.page_cache import Place
    from seqgate.log.format.record_batch import BatchHeader
    from seqgate.log.segments.segment import Segment, SegmentEnvironment

_PLACES_AT_ONCE: Final = 128


def first_not_before(
    environment: SegmentEnvironment,
    config: LogConfig,
    segments: Sequence[Segment],
    timestamp_ms: int,
    log_start_offset: int,
) -> TimestampAndOffset | None:
    """Return the first record from the log start on whose timestamp is `timestamp_ms` or later.

    A batch with more than `max_decoded_records` records is not decoded. For such a batch the offset is its
    base offset, or the log start offset if that is higher. Raises LogError, OSError, NotCached.
    """
    _check_timestamps(segments, timestamp_ms)
    for segment in segments:
        if segment.max_timestamp < timestamp_ms:
            continue
        start = position_for(segment, start_for_time(segment, timestamp_ms - 1))
        for position, batch in segment.batches(start, segment.size_bytes):
            if batch.max_timestamp >= timestamp_ms and batch.last_offset >= log_start_offset:
                found = _in_batch(
                    environment, config, segment, position, batch, timestamp_ms, log_start_offset
                )
                if found is not None:
                    return found
    return None


def first_of_largest(
    environment: SegmentEnvironment, config: LogConfig, segments: Sequence[Segment]
) -> TimestampAndOffset | None:
    """Return the first record with the largest timestamp of all.

    A batch with more than `max_decoded_records` records is not decoded. For such a batch the result has the
    largest timestamp and the base offset of its header. Raises LogError, OSError, NotCached.
    """
    holding = [segment for segment in segments if segment.size_bytes]
    _check_timestamps(holding)
    if not holding:
        return None
    segment = max(holding, key=lambda candidate: candidate.max_timestamp)
    largest = segment.max_timestamp
    start = position_of(segment, segment.offset_of_max_timestamp, segment.size_bytes)
    for position, batch in segment.batches(start, segment.size_bytes):
        if batch.max_timestamp == largest:
            return _first_of_largest_in_batch(environment, config, segment, position, batch)
    return None


def _check_timestamps(segments: Sequence[Segment], wanted_ms: float = math.inf) -> None:
    """Raise one NotCached for many segments whose largest timestamps are not in memory.

    Stops at the first segment whose timestamp is `wanted_ms` or later, as no later segment is needed.
    """
    missing: list[Place] = []
    for segment in segments:
        try:
            if segment.max_timestamp >= wanted_ms:
                break
        except NotCached as cold:
            missing += cold.places
            if len(missing) >= _PLACES_AT_ONCE:
                break
    if missing:
        raise NotCached(missing)


def _is_whole(batch: BatchHeader) -> bool:
    """Return whether the batch still has all its records: compaction removed none."""
    return batch.record_count == batch.last_offset_delta + 1


def _first_of_largest_in_batch(
    environment: SegmentEnvironment, config: LogConfig, segment: Segment, position: int, batch: BatchHeader
) -> TimestampAndOffset | None:
    """Return the first record of the batch with the largest timestamp; None when compaction has emptied the
    batch.

    Decodes the records, because without deep validation the header's max_timestamp may be wrong.
    """
    leader_epoch = batch.partition_leader_epoch
    if not batch.record_count:
        return None
    if (batch.is_log_append_time and _is_whole(batch)) or batch.record_count > config.max_decoded_records:
        return TimestampAndOffset(batch.max_timestamp, batch.base_offset, leader_epoch)
    records = _records(environment, config, segment, position, batch)
    timestamp, offset = max(records, key=itemgetter(0))
    return TimestampAndOffset(timestamp, offset, leader_epoch)


def _in_batch(
    environment: SegmentEnvironment,
    config: LogConfig,
    segment: Segment,
    position: int,
    batch: BatchHeader,
    timestamp_ms: int,
    log_start_offset: int,
) -> TimestampAndOffset | None:
    leader_epoch = batch.partition_leader_epoch
    if (batch.is_log_append_time and _is_whole(batch)) or batch.record_count > config.max_decoded_records:
        return TimestampAndOffset(batch.max_timestamp, max(batch.base_offset, log_start_offset), leader_epoch)
    for timestamp, offset in _records(environment, config, segment, position, batch):
        if timestamp >= timestamp_ms and offset >= log_start_offset:
            return TimestampAndOffset(timestamp, offset, leader_epoch)
    return None


def _records(
    environment: SegmentEnvironment, config: LogConfig, segment: Segment, position: int, batch: BatchHeader
) -> Iterator[tuple[int, int]]:
    """Yield (timestamp, offset) of each record of a batch, without decoding the record headers: there may be
    millions.
    """
    data = environment.storage.read(segment.file, batch.size_bytes, position)
    plain = plain_records(batch, memoryview(data), config.max_decompressed_bytes)
    for record in stored_records(batch, plain):
        if batch.is_log_append_time:
            yield batch.max_timestamp, record.offset
        else:
            yield as_int64(batch.base_timestamp + record.timestamp_delta), record.offset
