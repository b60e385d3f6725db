"""Finds records of a partition log by time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from log.segments import aborted_transactions, time_lookup

if TYPE_CHECKING:
    from log.partition_log import PartitionLog
    from log.segments.regions import FileRegion, TimestampAndOffset


def offset_for_timestamp(log: PartitionLog, timestamp_ms: int) -> TimestampAndOffset | None:
    """Return the first record whose timestamp is not before `timestamp_ms`. Raises LogError."""
    log.outage.check()
    with log.outage.reading():
        return time_lookup.first_not_before(
            log.environment, log.config, log.segments.segments, timestamp_ms, log.log_start_offset
        )


def offset_of_max_timestamp(log: PartitionLog) -> TimestampAndOffset | None:
    """Return the first record with the largest timestamp, deleted records included as in Kafka. Raises LogError."""
    log.outage.check()
    with log.outage.reading():
        return time_lookup.first_of_largest(log.environment, log.config, log.segments.segments)


def aborted_in(log: PartitionLog, offset: int, region: FileRegion | None) -> list[tuple[int, int]]:
    """Return (producer_id, first_offset) of the aborted transactions that a reader of `region`, found for `offset`, must skip.

    Raises LogError.
    """
    if region is None or not log.segments.aborting:
        return []
    log.outage.check()
    with log.outage.reading():
        return aborted_transactions.aborted_in(log.segments, offset, region, log.log_end_offset)
