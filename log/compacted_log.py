"""What of a partition log belongs to compaction: what can be cleaned, and putting the result in place.

The cleaning itself happens in another process (`log.compaction.cleaner`). All methods here belong to the thread of the log
and are short. Source of the rules: Kafka's `LogCleanerManager`, `UnifiedLog.replaceSegments`.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from log.compaction.cleanable import CompactionRules, SegmentAge, cleanable
from log.compaction.cleaned_transactions import AbortedTransaction
from log.compaction.job import CleaningJob, JobSegment
from log.compaction.swap import SwapTicket, delete_swap, rename_to_final, rename_to_swap
from log.errors import StorageFailed
from log.removal.segment_deletion import remove_segments
from log.retained_log import RetainedLog
from log.segments.segment import Segment
from log.segments.transaction_index import ENTRY

if TYPE_CHECKING:
    from log.compaction.cleanable import Cleanable
    from log.compaction.job import CleanedSegment, JobLimits

_NEVER_MS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Cleaning:
    """A cleaning of a log that was begun, and which life of the log it belongs to."""

    job: CleaningJob
    generation: int


class CompactedLog(RetainedLog):
    """A partition log's view of its own compaction."""

    def has_closed_segments_after(self, offset: int) -> bool:
        """Whether a closed segment reaches beyond `offset`: without one there is nothing to clean."""
        return self._active.base_offset > offset

    def cleanable(self, clean_end_offset: int | None, durable_end_offset: int, now_ms: int) -> Cleanable:
        """What can be cleaned, given where the last cleaning ended, and up to where a start would take the log for durable.

        Raises StorageFailed, CorruptRecord.
        """
        self._check_online()
        config = self.config
        is_lagging, is_due = config.min_compaction_lag_ms > 0, config.max_compaction_lag_ms < _NEVER_MS
        dirty = clean_end_offset or 0
        try:
            # Timestamps may have to be read: of what was cleaned before they do not count.
            closed = [
                SegmentAge(
                    segment.base_offset,
                    end_offset,
                    segment.size_bytes,
                    segment.largest_timestamp() if is_lagging and end_offset > dirty else -1,
                    segment.first_timestamp() if is_due and end_offset > dirty else -1,
                )
                for segment, end_offset in zip(self._segments, self._bases[1:], strict=False)
            ]
        except OSError as error:
            raise StorageFailed(f"{self.topic}-{self.partition} can't be read: {error}") from error
        return cleanable(
            closed,
            CompactionRules(
                config.min_cleanable_dirty_ratio, config.min_compaction_lag_ms, config.max_compaction_lag_ms
            ),
            clean_end_offset=clean_end_offset,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            decided_end_offset=min(
                self.last_stable_offset,
                self.recovery_point,
                durable_end_offset,
                self._reader.first_damaged_base(),
            ),
            now_ms=now_ms,
        )

    def begin_cleaning(self, found: Cleanable, limits: JobLimits, *, token: str, now_ms: int) -> Cleaning:
        """The job of cleaning what was found. Raises StorageFailed."""
        self._check_online()
        end_offset = found.first_uncleanable_offset
        try:
            # What remembers the producers must not be lost together with what they wrote.
            self._make_names_durable()
            aborted_later = self._aborted_later(end_offset)
        except OSError as error:
            raise StorageFailed(f"{self.topic}-{self.partition} can't be cleaned: {error}") from error
        segments = [
            JobSegment(segment.base_offset, next_base, segment.size_bytes, segment.has_aborted)
            for segment, next_base in zip(self._segments, self._bases[1:], strict=False)
            if next_base <= end_offset
        ]
        producers = [
            (entry.producer_id, entry.last_offset, entry.producer_epoch)
            for entry in self.producers
            if entry.last_offset < end_offset
        ]
        config = self.config
        job = CleaningJob(
            directory=self.directory,
            token=token,
            segments=segments,
            first_dirty_offset=found.first_dirty_offset,
            round_end_offset=end_offset,
            producers=producers,
            aborted_later=aborted_later,
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            max_decompressed_bytes=config.max_decompressed_bytes,
            limits=limits,
        )
        return Cleaning(job, self._generation)

    def _aborted_later(self, end_offset: int) -> list[AbortedTransaction]:
        """What markers from `end_offset` on aborted that begins before it. Raises OSError."""
        found: list[AbortedTransaction] = []
        for base_offset in self._aborting[bisect_left(self._aborting, end_offset) :]:
            index = self._segments[bisect_left(self._bases, base_offset)].transaction_index()
            for _, producer_id, first_offset, last_offset, stable in ENTRY.iter_unpack(index.entries):
                if first_offset < end_offset:
                    found.append(AbortedTransaction(first_offset, producer_id, last_offset, stable))
                if stable >= end_offset:
                    return found
        return found

    # Putting a cleaned segment in place.

    def begin_swap(self, cleaning: Cleaning, cleaned: CleanedSegment) -> SwapTicket | None:
        """The first step of the swap, after which the ticket is to run; None when the log is no longer what it was.

        Raises StorageFailed; the log is then unchanged.
        """
        if cleaning.generation != self._generation or self.offline or self._place_of(cleaned) is None:
            return None
        storage = self._environment.storage
        try:
            rename_to_swap(storage, self.directory, cleaned, cleaning.job.token)
        except OSError as error:
            raise StorageFailed(
                f"a cleaned segment of {self.topic}-{self.partition} can't be used: {error}"
            ) from error
        return SwapTicket(storage, self.directory, cleaned, cleaning.generation)

    def finish_swap(self, ticket: SwapTicket, now_ms: int) -> bool:
        """The rest, after the ticket ran: readers find the new segment from here on. False when it was given up.

        Raises StorageFailed; the log is then offline, and `reopen` finishes the swap.
        """
        if ticket.generation != self._generation or self.offline:
            return False
        cleaned = ticket.cleaned
        place = self._place_of(cleaned)
        if place is None:
            self.abandon_swap(ticket)
            return False
        storage = self._environment.storage
        old = self._segments[place]
        try:
            remove_segments(self._environment, old, now_ms + self.config.file_delete_delay_ms)
            storage.sync_directory(self.directory)
            rename_to_final(storage, self.directory, cleaned)
        except OSError as error:
            self._fail(f"a cleaned segment could not take its place: {error}", error)
        new = Segment(
            self._environment, self.directory, cleaned.base_offset, cleaned.size_bytes, old[-1].created_ms
        )
        new.has_aborted = cleaned.has_aborted
        self._segments[place] = [new]
        self._bases[place] = [new.base_offset]
        self._aborting[:] = [segment.base_offset for segment in self._segments if segment.has_aborted]
        self.size_bytes += new.size_bytes - sum(segment.size_bytes for segment in old)
        self._reader.forget_segments(cleaned.sources)
        # Either name will do after a crash, so nobody waits for this one.
        self._undurable.add([], self.directory)
        return True

    def abandon_swap(self, ticket: SwapTicket) -> None:
        """Give up a swap that has begun. Raises StorageFailed; the log is then offline."""
        if ticket.generation != self._generation or self.offline:
            return
        try:
            delete_swap(self._environment.storage, self.directory, ticket.cleaned)
        except OSError as error:
            self._fail(f"a cleaned segment could not be deleted: {error}", error)

    def _place_of(self, cleaned: CleanedSegment) -> slice | None:
        """Where the sources are in the list of segments; None when they are not all there, or no longer closed."""
        start = bisect_left(self._bases, cleaned.sources[0])
        place = slice(start, start + len(cleaned.sources))
        is_there = self._bases[place] == cleaned.sources and place.stop < len(self._bases)
        return place if is_there else None
