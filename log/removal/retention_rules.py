"""Which segments go, and why: decided from facts, apart from files and clocks.

Source: Kafka's `UnifiedLog.deleteOldSegments`: what lies below the log start offset, then what is too much, then what is
too old. Kafka makes three passes; one pass over the segments finds the same, because each rule takes from the front only.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

NOT_HELD: Final = 2**63 - 1
"""The value of `PartitionLog.held_from` of a log in which nothing is held."""


class SegmentFacts(NamedTuple):
    """What the decision needs of one segment; `end_offset` is exclusive.

    `largest_timestamp` is that of its records in ms, or when its file was last written if none has a timestamp.
    The active segment is the one that is written to, always the last.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    largest_timestamp: int
    is_active: bool = False


class DeletionReason(StrEnum):
    """Which rule a segment goes by."""

    LOG_START_OFFSET = "log start offset"
    RETENTION_BYTES = "retention.bytes"
    RETENTION_MS = "retention.ms"


class DeletedSegment(NamedTuple):
    """A segment that went, and by which rule; `end_offset` is exclusive."""

    base_offset: int
    end_offset: int
    size_bytes: int
    reason: DeletionReason


class RetentionDecision(NamedTuple):
    """The oldest segments, which go, each with the rule; and what keeps the next one although a rule applies to it.

    `kept_because` is empty when no rule applies to the next one.
    """

    doomed: list[tuple[SegmentFacts, DeletionReason]]
    kept_because: str


def segments_to_delete(
    segments: Iterable[SegmentFacts],
    *,
    size_bytes: int,
    now_ms: int,
    retention_ms: int,
    retention_bytes: int,
    log_start_offset: int,
    high_watermark: int,
    held_from: int = NOT_HELD,
) -> RetentionDecision:
    """Decide on the oldest segments of a log of `size_bytes`, given in order; a limit below 0 keeps for ever.

    No more of them are looked at than needed. Only from the front and only below the high watermark. The active segment goes by size or time only, and only when
    it holds something. What reaches beyond `held_from` goes by neither; the log start offset was moved on purpose.
    """
    doomed: list[tuple[SegmentFacts, DeletionReason]] = []
    kept_because = ""
    excess_bytes = size_bytes - retention_bytes
    for segment in segments:
        if segment.is_active and not segment.size_bytes:
            break
        if not segment.is_active and segment.end_offset <= log_start_offset:
            reason = DeletionReason.LOG_START_OFFSET
        elif retention_bytes >= 0 and excess_bytes >= segment.size_bytes:
            reason = DeletionReason.RETENTION_BYTES
        elif 0 <= retention_ms < now_ms - segment.largest_timestamp:
            reason = DeletionReason.RETENTION_MS
        else:
            if retention_ms >= 0 and segment.largest_timestamp > now_ms:
                kept_because = f"its newest record is dated {segment.largest_timestamp}, in the future"
            break
        if segment.end_offset > high_watermark:
            kept_because = "it reaches beyond the high watermark"
            break
        if reason is not DeletionReason.LOG_START_OFFSET and segment.end_offset > held_from:
            kept_because = f"records from offset {held_from} on are held"
            break
        excess_bytes -= segment.size_bytes
        doomed.append((segment, reason))
    return RetentionDecision(doomed, kept_because)
