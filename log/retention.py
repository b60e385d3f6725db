"""Removes the oldest segments of a log, for retention and DeleteRecords: one procedure, two reasons.

    prepare_…  the log captures derived state from the records to remove, in a new flush ticket
    commit     a worker thread commits the ticket, which persists the new log start offset last
    complete   the log moves its log start offset, and renames the segments below to `*.deleted`

After a crash between two steps, the next start finishes the removal or leaves the log as it was. Source of
the rules: Kafka's `UnifiedLog`.

`segments_to_delete` decides from facts alone which segments to delete, and why. Kafka's
`UnifiedLog.deleteOldSegments` removes segments below the log start offset, then by size, then by age, in
three passes. One pass decides the same, because each rule removes from the front only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import islice
from typing import Final

import msgspec

from seqgate.log.durability.unflushed import FlushTicket, LogStart, LogStartCapture
from seqgate.log.errors import OffsetOutOfRange
from seqgate.log.partition_log import PartitionLog
from seqgate.log.state.delays import NOT_HELD

_logger = logging.getLogger(__name__)
SEGMENTS_AT_ONCE: Final = 50
"""Segments removed in one call; the rest go with the next, so that many segments hold up no other work."""
_ALL_BYTES: Final = 1 << 62


class SegmentFacts(msgspec.Struct, frozen=True):
    """The facts about one segment that the decision needs; `end_offset` is exclusive. `largest_timestamp` is
    that of the records in ms, or else the file's modification time.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    largest_timestamp: int
    is_active: bool = False


class DeletionReason(StrEnum):
    LOG_START_OFFSET = "log start offset"
    RETENTION_BYTES = "retention.bytes"
    RETENTION_MS = "retention.ms"


class DeletedSegment(msgspec.Struct, frozen=True):
    """A removed segment, and the rule that removed it. `end_offset` is exclusive."""

    base_offset: int
    end_offset: int
    size_bytes: int
    reason: DeletionReason


class RetentionDecision(msgspec.Struct, frozen=True):
    """The oldest segments to remove, each with the rule, and why the next stays although a rule applies.
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
    """Decide which of the oldest segments of a log to remove. A limit below 0 keeps segments for ever.

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


class RemovalTicket(msgspec.Struct, frozen=True):
    """A flush that must succeed before the log may start at `new_start`; it persists the log start last."""

    flush: FlushTicket
    log_start: LogStart
    new_start: int
    reasons: Mapping[int, DeletionReason]
    """The reasons of retention by base offset; without one a segment goes because of the log start offset."""


def note_quiet(log: PartitionLog, now_ms: int) -> None:
    """Let the passes of retention leave the log out until something may be due, or until it changes.

    Call after `roll_by_time` and `decide_retention` have found nothing at this time. Records that are
    appended to a segment with records make nothing due earlier, unless the size of the log counts.
    """
    states, config = log.record_states, log.config
    if log.kept_because or states.names is not None or states.delays is not None:
        return
    first, active = log.segments.segments[0], log.segments.active
    until_ms = active.time_to_roll_ms(config, now_ms)
    if config.retention_ms >= 0 and (first.size_bytes or first is not active):
        if first.max_timestamp < 0:
            return  # the next record may have a timestamp, and so be older than the file's last write
        until_ms = min(until_ms, first.largest_timestamp() + config.retention_ms + 1)
    log.lists.retention.quiet(log, until_ms)


def roll_by_time(log: PartitionLog, now_ms: int) -> bool:
    """Roll the active segment if it has been open for segment.ms without an append. Return whether it was.
    The new files' names are durable after the next flush. Raises StorageFailed.
    """
    log.check_online()
    try:
        if now_ms < log.segments.active.time_to_roll_ms(log.config, now_ms):
            return False
    except OSError as error:
        log.fail(f"the active segment can't be read: {error}", error)
    return log.roll(now_ms)


def decide_retention(log: PartitionLog, now_ms: int) -> RetentionDecision:
    """Return which of the first SEGMENTS_AT_ONCE segments go, why. None goes before the log was replayed for
    producer names, which only its records may carry. Raises StorageFailed, CorruptRecord.
    """
    log.check_online()
    names = log.record_states.names
    read_until = None if names is None else names.replay_offset
    if read_until is None:
        log.record_states.release_due(now_ms)
    with log.reading():
        decision = segments_to_delete(
            islice(_facts(log), SEGMENTS_AT_ONCE),
            size_bytes=log.size_bytes,
            now_ms=now_ms,
            retention_ms=log.config.retention_ms,
            retention_bytes=log.config.retention_bytes,
            log_start_offset=log.log_start_offset,
            high_watermark=log.high_watermark,
            held_from=log.held_from,
        )
    if decision.doomed and read_until is not None:
        decision = RetentionDecision([], f"producer names are replayed only up to offset {read_until}")
    if decision.kept_because != log.kept_because:  # once, not at every retention pass
        log.kept_because = decision.kept_because
        if decision.kept_because:
            base_offset = log.segments.bases[len(decision.doomed)]
            _logger.info("%s: the segment at %d stays: %s", log.place, base_offset, decision.kept_because)
    return decision


def _facts(log: PartitionLog) -> Iterator[SegmentFacts]:
    """Yield each segment's facts, oldest first, only when asked for: a timestamp may need the disk."""
    segments, by_time = log.segments, log.config.retention_ms >= 0
    for number, segment in enumerate(segments.segments):
        is_active = segment is segments.active
        needs_time = by_time and not (is_active and not segment.size_bytes)
        timestamp = segment.largest_timestamp() if needs_time else -1
        end_offset = segments.end_offset(number, log.log_end_offset)
        yield SegmentFacts(segment.base_offset, end_offset, segment.size_bytes, timestamp, is_active)


def prepare_retention(log: PartitionLog, now_ms: int) -> RemovalTicket | None:
    """Return the ticket that must run before retention may remove segments; None when no segment is due. Give
    each ticket back once, to `complete_removal` or `fail_removal`. Raises StorageFailed, CorruptRecord.
    """
    doomed = decide_retention(log, now_ms).doomed
    if not doomed:
        return None
    if len(doomed) == len(log.segments):
        log.roll(now_ms)
    reasons = {segment.base_offset: reason for segment, reason in doomed}
    return _prepare(log, doomed[-1][0].end_offset, now_ms, reasons)


def prepare_delete_records(log: PartitionLog, offset: int, now_ms: int) -> RemovalTicket | None:
    """Return the ticket that must run before the log may start at `offset` (-1: the high watermark).

    Returns None when the log already starts at the offset or later. Give the ticket back once, to
    `complete_removal` or `fail_removal`. Raises OffsetOutOfRange beyond the high watermark, StorageFailed.
    """
    log.check_online()
    wanted = log.high_watermark if offset == -1 else offset
    if not 0 <= wanted <= log.high_watermark:
        raise OffsetOutOfRange(
            f"Offset {offset} must be between 0 and the high watermark {log.high_watermark}, or -1 for it."
        )
    return None if wanted <= log.log_start_offset else _prepare(log, wanted, now_ms, {})


def _prepare(
    log: PartitionLog, new_start: int, now_ms: int, reasons: Mapping[int, DeletionReason]
) -> RemovalTicket:
    """Return the ticket, with a flush if derived state from the records to remove is not durable yet."""
    states = log.record_states
    # A start can't replay removed records, so replay all records for producer names first.
    states.replay_names(_ALL_BYTES, now_ms)
    try:
        states.capture_below(new_start)
    except OSError as error:
        log.fail(f"the side files of the log can't be written: {error}", error)
    must_flush = (
        log.unflushed.first_flush_pending
        or log.unflushed.has_captures
        or log.segments.number_of(new_start) > 0
        or states.unsaved_below(new_start)
    )
    # A flush in flight may carry the only producer snapshot to outlive the segments: carry it here too.
    flush = log.prepare_flush(counts_out=True) if must_flush else None
    log.check_online()
    if flush is None:
        flush = log.unflushed.prepare_empty(log.epochs.latest)
    flush.last = LogStartCapture(log.log_start, new_start)
    return RemovalTicket(flush, log.log_start, new_start, reasons)


def complete_removal(log: PartitionLog, ticket: RemovalTicket, now_ms: int) -> list[DeletedSegment]:
    """Finish a removal: move the log start offset, and remove segments below it. Return those. This call
    removes the first SEGMENTS_AT_ONCE segments, the next retention the rest. Raises StorageFailed.
    """
    log.complete_flush(ticket.flush)
    if ticket.flush.generation == log.unflushed.generation:  # a closed log must not be listed again
        log.lists.retention.changed(log)
    if ticket.log_start is not log.log_start or log.offline:
        return []
    if ticket.new_start > log.log_start_offset:
        log.log_start_offset = ticket.new_start
        log.transactions.ongoing.log_start_moved(ticket.new_start)
        log.epochs.truncate_start(ticket.new_start)
        log.record_states.discard_below(ticket.new_start)
    segments = log.segments
    # Derived state from records that came below the log start since `prepare_…` may not be durable yet.
    count = min(segments.number_of(ticket.new_start), SEGMENTS_AT_ONCE)
    ends = segments.bases[1 : count + 1]
    if not count or log.record_states.unsaved_below(ends[-1]):
        return []
    gone = segments.drop_first(count)
    try:
        for segment in gone:
            segment.remove(now_ms + log.config.file_delete_delay_ms)
    except OSError as error:
        log.fail(f"a segment could not be removed: {error}", error)
    return [
        DeletedSegment(
            segment.base_offset,
            end_offset,
            segment.size_bytes,
            ticket.reasons.get(segment.base_offset, DeletionReason.LOG_START_OFFSET),
        )
        for segment, end_offset in zip(gone, ends, strict=True)
    ]


def fail_removal(log: PartitionLog, ticket: RemovalTicket, error: OSError) -> None:
    """Finish a removal whose ticket failed: take the log offline, unless the log was reopened meanwhile."""
    log.fail_flush(ticket.flush, error)
    if ticket.log_start is log.log_start:
        log.go_offline(f"the log start offset could not be made durable: {error}", error)
