"""What the operations of a partition log answer."""

from __future__ import annotations

from typing import NamedTuple


class AppendInfo(NamedTuple):
    """Where a batch lies. `log_append_time_ms` is -1 unless the broker set it; of a duplicate, that of the original."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool


class ReadResult(NamedTuple):
    """Record batches as they are stored; the last one may be cut."""

    records: bytes


class TimestampAndOffset(NamedTuple):
    """A record found by time; timestamp in ms."""

    timestamp: int
    offset: int
    leader_epoch: int


class DeletedSegment(NamedTuple):
    """A segment that retention removed, and why."""

    base_offset: int
    size_bytes: int
    reason: str
