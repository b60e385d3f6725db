"""What goes from a partition log, and how: segments are rolled, the log start offset moves, old segments are removed.

A segment goes in three steps: the new log start offset is durable, the segment is taken from the log and its files are
renamed, the files are deleted. Source of the rules: Kafka's `UnifiedLog`; see `log.removal.retention_rules`.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from itertools import islice
from typing import TYPE_CHECKING, Final

from log.durability.log_start import LogStart
from log.errors import OffsetOutOfRange, StorageFailed
from log.measured_log import MeasuredLog
from log.removal.retention_rules import SegmentFacts, segments_to_delete
from log.removal.segment_deletion import remove_segments
from log.segments.regions import DeletedSegment
from log.segments.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from log.durability.flush_ticket import FlushTicket
    from log.recovery.load import CleanStop, LoadedLog
    from log.removal.retention_rules import RetentionDecision

_logger = logging.getLogger(__name__)
SEGMENTS_AT_ONCE: Final = 50
"""Segments removed in one call, so that a log of many holds nobody up."""


class RetentionTicket:
    """What must be durable before the segments that retention found may go. `run` may be called in any thread."""

    __slots__ = ("_offset", "flush", "log_start")

    def __init__(self, flush: FlushTicket | None, log_start: LogStart, offset: int) -> None:
        """The log's flush ticket, if it has one, and the log start offset to be."""
        self.flush = flush
        self.log_start = log_start
        self._offset = offset

    def run(self) -> None:
        """Make all of it durable. Raises OSError."""
        if self.flush is not None:
            self.flush.run()
        self.log_start.advance(self._offset)


class RetainedLog(MeasuredLog):
    """A partition log's segments as they come and go."""

    _log_start: LogStart
    _kept_because: str

    def _take(self, loaded: LoadedLog) -> None:
        super()._take(loaded)
        self._log_start = LogStart(
            self._environment.storage, self.directory, self.topic, self.partition, self.log_start_offset
        )
        self._kept_because = ""

    @property
    def active_base_offset(self) -> int:
        """Base offset of the segment that is written to."""
        return self._active.base_offset

    def base_offsets(self) -> list[int]:
        """Of all segments, in order."""
        return list(self._bases)

    @property
    def segment_count(self) -> int:
        """How many segments the log has."""
        return len(self._segments)

    def reopen(self, now_ms: int) -> None:
        """As DurableLog's; what retention has begun does nothing any more."""
        self._log_start.close()
        super().reopen(now_ms)

    def finish_close(
        self, ticket: FlushTicket | None, error: OSError | None, *, clean: bool = True
    ) -> CleanStop | None:
        """As DurableLog's; what retention has begun does nothing any more."""
        self._log_start.close()
        return super().finish_close(ticket, error, clean=clean)

    # Rolling.

    def roll(self, now_ms: int) -> None:
        """Go on in a new segment that begins at log_end_offset. Raises StorageFailed."""
        self._check_online()
        closing = self._active
        if closing.base_offset == self.log_end_offset:
            return
        segment = Segment(self._environment, self.directory, self.log_end_offset, 0, now_ms)
        try:
            if self._is_newborn:
                # a crash must not leave the second segment without the first
                self._make_names_durable()
            paths = [*self._write_indexes(), self._write_snapshot()]
            self._environment.storage.create(segment.file)
            self._undurable.add(paths, self.directory)
            closing.become_closed()
            self._segments.append(segment)
            self._bases.append(segment.base_offset)
            self._active = segment
        except OSError as error:
            self._fail(f"a new segment could not be created: {error}", error)
        except MemoryError as error:
            self._fail("the memory did not suffice for a new segment", error)

    def roll_by_time(self, now_ms: int) -> bool:
        """Roll an active segment that has been open for segment.ms although nothing is appended; whether it was.

        Its new names are durable after the next flush. Raises StorageFailed.
        """
        self._check_online()
        try:
            if now_ms < self._active.time_to_roll_ms(self.config, now_ms):
                return False
        except OSError as error:
            self._fail(f"the active segment can't be read: {error}", error)
        self.roll(now_ms)
        return True

    # What the caller wants gone.

    def prepare_delete_records(self, offset: int) -> RetentionTicket | None:
        """What to make durable before `delete_records_before`, which else does it itself; None when there is nothing.

        Goes back as that of `prepare_retention`. Raises as `delete_records_before`.
        """
        wanted = self._wanted_start(offset)
        if wanted <= self.log_start_offset:
            return None
        flush = self.prepare_flush() if self._must_flush_before(wanted) else None
        return RetentionTicket(flush, self._log_start, wanted)

    def _must_flush_before(self, start_offset: int) -> bool:
        """Whether something must be durable before the log may start there."""
        return self._is_newborn or self._segments_below(start_offset) > 0

    def delete_records_before(self, offset: int, now_ms: int = 0) -> int:
        """Move log_start_offset to `offset` (-1: the high watermark), durably; returns the new one.

        The first segments wholly before it go now, the others with the next calls of `delete_old_segments`.
        Raises OffsetOutOfRange beyond the high watermark, StorageFailed.
        """
        self._move_log_start(self._wanted_start(offset))
        below = self._segments_below(self.log_start_offset)
        self._remove(self._segments[: min(below, SEGMENTS_AT_ONCE)], now_ms)
        return self.log_start_offset

    def _wanted_start(self, offset: int) -> int:
        self._check_online()
        wanted = self.high_watermark if offset == -1 else offset
        if not 0 <= wanted <= self.high_watermark:
            raise OffsetOutOfRange(
                f"Offset {offset} must be between 0 and the high watermark {self.high_watermark}, or -1 for the high watermark."
            )
        return wanted

    def _segments_below(self, offset: int) -> int:
        """How many segments end at or before the offset, the active one left out."""
        return max(0, bisect_right(self._bases, offset) - 1)

    # What retention wants gone.

    def decide_retention(self, now_ms: int) -> RetentionDecision:
        """Which of the first SEGMENTS_AT_ONCE segments are to go. Raises StorageFailed, CorruptRecord."""
        self._check_online()
        config = self.config
        try:
            decision = segments_to_delete(
                islice(self._facts(), SEGMENTS_AT_ONCE),
                size_bytes=self.size_bytes,
                now_ms=now_ms,
                retention_ms=config.retention_ms,
                retention_bytes=config.retention_bytes,
                log_start_offset=self.log_start_offset,
                high_watermark=self.high_watermark,
                held_from=self.held_from,
            )
        except OSError as error:
            raise StorageFailed(f"{self.topic}-{self.partition} can't be read: {error}") from error
        self._say_what_is_kept(decision)
        return decision

    def prepare_retention(self, now_ms: int) -> RetentionTicket | None:
        """What to make durable before `delete_old_segments`, which else does it itself; None when nothing is to go.

        Each ticket goes back to `complete_retention` or `fail_retention`, once. Raises StorageFailed, CorruptRecord.
        """
        doomed = self.decide_retention(now_ms).doomed
        if not doomed:
            return None
        if len(doomed) == len(self._segments):
            self.roll(now_ms)
        return RetentionTicket(self.prepare_flush(), self._log_start, doomed[-1][0].end_offset)

    def complete_retention(self, ticket: RetentionTicket) -> None:
        """The ticket ran: what it covers is durable."""
        if ticket.flush is not None:
            self.complete_flush(ticket.flush)

    def fail_retention(self, ticket: RetentionTicket, error: OSError) -> None:
        """The ticket failed: nobody knows what reached the disk, so the log goes offline, unless it came back meanwhile."""
        if ticket.flush is not None:
            self.fail_flush(ticket.flush, error)
        if ticket.log_start is self._log_start:
            self.take_offline(f"the log start offset could not be made durable: {error}", error)

    def delete_old_segments(self, now_ms: int) -> list[DeletedSegment]:
        """Remove what retention says must go, at most SEGMENTS_AT_ONCE segments, log_start_offset first.

        Raises StorageFailed, CorruptRecord.
        """
        doomed = self.decide_retention(now_ms).doomed
        if not doomed:
            return []
        if len(doomed) == len(self._segments):
            self.roll(now_ms)
        self._move_log_start(doomed[-1][0].end_offset)
        self._remove(self._segments[: len(doomed)], now_ms)
        return [
            DeletedSegment(segment.base_offset, segment.end_offset, segment.size_bytes, reason)
            for segment, reason in doomed
        ]

    def _facts(self) -> Iterator[SegmentFacts]:
        """One by one: the timestamp of a closed segment may have to be read, and few segments are looked at."""
        active = self._active
        by_time = self.config.retention_ms >= 0
        for number, segment in enumerate(self._segments):
            is_active = segment is active
            end_offset = self.log_end_offset if is_active else self._bases[number + 1]
            needs_time = by_time and not (is_active and not segment.size_bytes)
            timestamp = segment.largest_timestamp() if needs_time else -1
            yield SegmentFacts(segment.base_offset, end_offset, segment.size_bytes, timestamp, is_active)

    def _say_what_is_kept(self, decision: RetentionDecision) -> None:
        """Once until it changes: the look is repeated every few minutes."""
        if decision.kept_because != self._kept_because:
            self._kept_because = decision.kept_because
            if decision.kept_because:
                first = self._segments[len(decision.doomed)]
                _logger.info(
                    "%s-%d: the segment at %d stays: %s",
                    self.topic,
                    self.partition,
                    first.base_offset,
                    decision.kept_because,
                )

    # How it goes.

    def _move_log_start(self, offset: int) -> None:
        if offset <= self.log_start_offset:
            return
        try:
            if self._is_newborn:
                self._make_names_durable()
            self._log_start.advance(offset)
        except OSError as error:
            self._fail(f"the log start offset could not be made durable: {error}", error)
        self.log_start_offset = offset
        self._transactions.log_start_moved(offset)
        self._leader_epochs.truncate_start(offset)

    def _remove(self, doomed: list[Segment], now_ms: int) -> None:
        if not doomed:
            return
        try:
            # The newest snapshot may be all that remembers the producers of what goes.
            self._make_names_durable()
            del self._segments[: len(doomed)]
            del self._bases[: len(doomed)]
            del self._aborting[: bisect_right(self._aborting, doomed[-1].base_offset)]
            self.size_bytes -= sum(segment.size_bytes for segment in doomed)
            remove_segments(self._environment, doomed, now_ms + self.config.file_delete_delay_ms)
        except OSError as error:
            self._fail(f"a segment could not be removed: {error}", error)
