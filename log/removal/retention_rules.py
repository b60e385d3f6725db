"""Decides which segments to delete, and why, from facts alone: no files, no clock.

Source: Kafka's `UnifiedLog.deleteOldSegments`, which removes segments below the log start offset, then by
size, then by age. Kafka makes three passes. One pass decides the same, because each rule removes from the
front only.

Removes segments in two steps, as Kafka does: rename to `*.deleted` at once, delete after
`file.delete.delay.ms`.

Source: Kafka's `LocalLog.deleteSegmentFiles`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from seqgate.log.files.file_names import DELETED_SUFFIX, SEGMENT_SUFFIXES

if TYPE_CHECKING:
    from seqgate.log.environment import LogEnvironment
    from seqgate.log.segments.segment import Segment


NOT_HELD: Final = 2**63 - 1
"""The value of `PartitionLog.held_from` while no records are held."""


class SegmentFacts(NamedTuple):
    """The facts about one segment that the decision needs; `end_offset` is exclusive.

    `largest_timestamp` is the largest timestamp of the records in ms; without timestamps, the file's
    modification time.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    largest_timestamp: int
    is_active: bool = False


class DeletionReason(StrEnum):
    """The rule by which a segment is removed."""

    LOG_START_OFFSET = "log start offset"
    RETENTION_BYTES = "retention.bytes"
    RETENTION_MS = "retention.ms"


class DeletedSegment(NamedTuple):
    """A removed segment, and the rule that removed it. `end_offset` is exclusive."""

    base_offset: int
    end_offset: int
    size_bytes: int
    reason: DeletionReason


class RetentionDecision(NamedTuple):
    """The oldest segments to remove, each with the rule, and the reason why the next segment stays although a
    rule applies.

    `kept_because` is empty when no rule applies to the next segment.
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
    """Decide which of the oldest segments of a log of `size_bytes` to remove. A limit below 0 keeps segments
    for ever.

    `segments` come oldest first and are consumed only as far as needed. Segments are removed from the front
    and below the high watermark only. The active segment is removed by size or age only, and never while
    empty. A segment that reaches beyond `held_from` is removed only because of the log start offset, which
    somebody moved on purpose.
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
                kept_because = f"its newest record has timestamp {segment.largest_timestamp}, in the future"
            break
        if segment.end_offset > high_watermark:
            kept_because = "it reaches beyond the high watermark"
            break
        if reason is not DeletionReason.LOG_START_OFFSET and segment.end_offset > held_from:
            kept_because = f"delayed records from offset {held_from} on must be kept"
            break
        excess_bytes -= segment.size_bytes
        doomed.append((segment, reason))
    return RetentionDecision(doomed, kept_because)


def remove_segments(environment: LogEnvironment, segments: Iterable[Segment], due_ms: int) -> None:
    """Rename the segments' files to `*.deleted`, and queue the files for deletion from `due_ms` on. Raises
    OSError.

    A crash may leave such files behind; loading the log deletes them.
    """
    for segment in segments:
        environment.storage.descriptors.retire(segment.file, for_readers=True)
        environment.forget_indexes(segment.file.path)
        for suffix in SEGMENT_SUFFIXES:
            path = segment.path(suffix)
            with contextlib.suppress(FileNotFoundError):
                environment.storage.rename(path, path + DELETED_SUFFIX)
                environment.deletions.add(path + DELETED_SUFFIX, due_ms)
