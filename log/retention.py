"""Which segments retention removes: decided from facts, apart from files and clocks.

Source: Kafka's `UnifiedLog.deleteOldSegments` (retention.ms, retention.bytes, log start offset breaches).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class SegmentFacts(NamedTuple):
    """What the decision needs of one segment; `end_offset` is exclusive, `largest_timestamp` in ms or -1."""

    base_offset: int
    end_offset: int
    size_bytes: int
    largest_timestamp: int


def segments_to_delete(
    segments: Sequence[SegmentFacts],
    *,
    now_ms: int,
    retention_ms: int,
    retention_bytes: int,
    log_start_offset: int,
    high_watermark: int,
) -> list[tuple[SegmentFacts, str]]:
    """The oldest segments that go, each with the reason; `segments` are in order, the last one is the active one.

    Only from the front and only below the high watermark. The active segment goes only when it
    holds something. A limit of -1 keeps for ever.
    """
    doomed: list[tuple[SegmentFacts, str]] = []
    excess_bytes = sum(segment.size_bytes for segment in segments) - retention_bytes
    for number, segment in enumerate(segments):
        is_active = number == len(segments) - 1
        if not segment.size_bytes or segment.end_offset > high_watermark:
            break
        if not is_active and segment.end_offset <= log_start_offset:
            reason = f"all of it is below the log start offset {log_start_offset}"
        elif 0 <= retention_ms < now_ms - segment.largest_timestamp and segment.largest_timestamp >= 0:
            reason = f"its newest record is older than retention.ms={retention_ms}"
        elif retention_bytes >= 0 and excess_bytes >= segment.size_bytes:
            reason = f"the partition is larger than retention.bytes={retention_bytes}"
        else:
            break
        excess_bytes -= segment.size_bytes
        doomed.append((segment, reason))
    return doomed
