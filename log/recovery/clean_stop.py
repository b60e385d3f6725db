"""What a clean stop leaves of a partition log, and whether its files are still like that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from log.errors import CorruptRecord

if TYPE_CHECKING:
    from log.segments.segment_list import SegmentList


@dataclass(frozen=True, slots=True)
class CleanStop:
    """What a clean stop left of one partition; it holds only while the files still look like that."""

    log_end_offset: int
    active_base_offset: int
    active_size_bytes: int
    size_bytes: int
    """Bytes of all segments."""
    oldest_timestamp: int = -1
    """What retention goes by in the oldest segment (ms); -1 when unknown."""
    has_open_transactions: bool = False


def clean_stop(segments: SegmentList, log_end_offset: int, *, has_open_transactions: bool) -> CleanStop:
    """Return what a log leaves that stops now."""
    first, active = segments.segments[0], segments.active
    try:
        oldest_timestamp = first.largest_timestamp() if segments.size_bytes else -1
    except (OSError, CorruptRecord):
        oldest_timestamp = -1
    return CleanStop(
        log_end_offset,
        active.base_offset,
        active.size_bytes,
        segments.size_bytes,
        oldest_timestamp=oldest_timestamp,
        has_open_transactions=has_open_transactions,
    )


def is_as(stop: CleanStop, segments: SegmentList, log_end_offset: int) -> bool:
    """Return whether the log is as it was stopped."""
    return (
        log_end_offset == stop.log_end_offset
        and segments.active.base_offset == stop.active_base_offset
        and segments.size_bytes == stop.size_bytes
    )
