"""Finds records of a partition log by time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from log.segments import time_lookup

if TYPE_CHECKING:
    from log.partition_log import PartitionLog
    from log.segments.regions import TimestampAndOffset


def offset_for_timestamp(log: PartitionLog, timestamp_ms: int) -> TimestampAndOffset | None:
    """Return the first record whose timestamp is not before `timestamp_ms`. Raises LogError."""
    log.check_online()
    with log.reading():
        return time_lookup.first_not_before(
            log.environment, log.config, log.segments.segments, timestamp_ms, log.log_start_offset
        )


def offset_of_max_timestamp(log: PartitionLog) -> TimestampAndOffset | None:
    """Return the first record with the largest timestamp, deleted records included as in Kafka. Raises LogError."""
    log.check_online()
    with log.reading():
        return time_lookup.first_of_largest(log.environment, log.config, log.segments.segments)
