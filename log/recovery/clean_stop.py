"""The facts that a clean stop records about a partition log, and the check whether they still hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from log.errors import CorruptRecord
from log.files.data_file import NotCached, without_fetching

if TYPE_CHECKING:
    from log.files.storage import Storage
    from log.segments.segment_list import SegmentList


@dataclass(frozen=True, slots=True)
class CleanStop:
    """The facts that a clean stop recorded about one partition. They hold only while the files have not changed."""

    log_end_offset: int
    active_base_offset: int
    active_size_bytes: int
    size_bytes: int
    """The bytes of all segments."""
    oldest_timestamp: int = -1
    """The timestamp (ms) of the oldest segment for retention; -1 when unknown."""
    has_open_transactions: bool = False


def clean_stop(
    storage: Storage, segments: SegmentList, log_end_offset: int, *, has_open_transactions: bool
) -> CleanStop:
    """Return the facts about a log that stops now."""
    first, active = segments.segments[0], segments.active
    try:
        # Of each log whose oldest blocks were evicted, a stop would wait for the bucket.
        with without_fetching(storage):
            oldest_timestamp = first.largest_timestamp() if segments.size_bytes else -1
    except (OSError, CorruptRecord, NotCached):
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
    """Return whether the log is unchanged since the clean stop."""
    return (
        log_end_offset == stop.log_end_offset
        and segments.active.base_offset == stop.active_base_offset
        and segments.size_bytes == stop.size_bytes
    )
