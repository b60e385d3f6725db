"""Starts the compaction of a partition log, and swaps the cleaned segments in.

Another process does the cleaning (`log.compaction.cleaner`). All functions here run in the thread of the log and return
quickly. Source of the rules: Kafka's `LogCleanerManager`, `UnifiedLog.replaceSegments`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from log.compaction.cleanable import CompactionRules, SegmentAge
from log.compaction.cleanable import cleanable as decide_cleanable
from log.compaction.job import CleaningJob, JobSegment
from log.compaction.swap import SwapTicket, delete_swap, rename_to_final, rename_to_swap
from log.errors import StorageFailed
from log.removal.segment_deletion import remove_segments
from log.segments.aborted_transactions import aborted_from
from log.segments.segment import Segment

if TYPE_CHECKING:
    from log.compaction.cleanable import Cleanable
    from log.compaction.job import CleanedSegment, JobLimits
    from log.partition_log import PartitionLog

_NEVER_MS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Cleaning:
    """A cleaning in progress. Its generation tells whether the log was reopened since the cleaning began."""

    job: CleaningJob
    generation: int


def has_closed_segments_after(log: PartitionLog, offset: int) -> bool:
    """Return whether a closed segment reaches beyond `offset`. Without such a segment there is nothing to clean."""
    return log.segments.active.base_offset > offset


def cleanable(
    log: PartitionLog, clean_end_offset: int | None, durable_end_offset: int, now_ms: int
) -> Cleanable:
    """Return the part of the log that compaction may clean, from the end of the last cleaning on.

    Only durable records are cleaned, and no records whose producer names are in no durable snapshot yet. Raises
    StorageFailed, CorruptRecord.
    """
    log.outage.check()
    config, segments, names = log.config, log.segments, log.record_states.names
    is_lagging, is_due = config.min_compaction_lag_ms > 0, config.max_compaction_lag_ms < _NEVER_MS
    dirty = clean_end_offset or 0
    if names is not None and names.unsaved_from is not None:
        durable_end_offset = min(durable_end_offset, names.unsaved_from)
    with log.outage.reading():
        # Timestamps may have to be read from the disk, so skip segments cleaned before: theirs do not count.
        closed = [
            SegmentAge(
                segment.base_offset,
                end_offset,
                segment.size_bytes,
                segment.largest_timestamp() if is_lagging and end_offset > dirty else -1,
                segment.first_timestamp() if is_due and end_offset > dirty else -1,
            )
            for segment, end_offset in zip(segments.segments, segments.bases[1:], strict=False)
        ]
    return decide_cleanable(
        closed,
        CompactionRules(
            config.min_cleanable_dirty_ratio, config.min_compaction_lag_ms, config.max_compaction_lag_ms
        ),
        clean_end_offset=clean_end_offset,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        decided_end_offset=min(
            log.last_stable_offset,
            log.recovery_point,
            durable_end_offset,
            segments.reader.first_damaged_base(),
        ),
        now_ms=now_ms,
    )


def begin_cleaning(
    log: PartitionLog, found: Cleanable, limits: JobLimits, *, token: str, now_ms: int
) -> Cleaning:
    """Return the job that cleans `found`. Raises StorageFailed.

    All files of the log must be durable before. Otherwise a crash could lose the side files that hold the producers of
    removed records.
    """
    log.outage.check()
    end_offset = found.first_uncleanable_offset
    segments, config = log.segments, log.config
    with log.outage.reading():
        aborted_later = aborted_from(segments, end_offset, end_offset)
    job = CleaningJob(
        directory=log.directory,
        token=token,
        segments=[
            JobSegment(segment.base_offset, next_base, segment.size_bytes, segment.aborts.has_any)
            for segment, next_base in zip(segments.segments, segments.bases[1:], strict=False)
            if next_base <= end_offset
        ],
        first_dirty_offset=found.first_dirty_offset,
        round_end_offset=end_offset,
        producers=[
            (entry.producer_id, entry.last_offset, entry.producer_epoch)
            for entry in log.producers
            if entry.last_offset < end_offset
        ],
        aborted_later=aborted_later,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        max_decompressed_bytes=config.max_decompressed_bytes,
        limits=limits,
    )
    return Cleaning(job, log.unflushed.generation)


# --- swapping a cleaned segment in


def begin_swap(log: PartitionLog, cleaning: Cleaning, cleaned: CleanedSegment) -> SwapTicket | None:
    """Rename the cleaned files to `*.swap`, and return the ticket to run next. None when the log has changed since.

    Raises StorageFailed; the log is then unchanged.
    """
    if cleaning.generation != log.unflushed.generation or log.offline:
        return None
    if log.segments.place_of(cleaned.sources) is None:
        return None
    storage = log.environment.storage
    try:
        rename_to_swap(storage, log.directory, cleaned, cleaning.job.token)
    except OSError as error:
        raise StorageFailed(f"a cleaned segment of {log.place} can't be used: {error}") from error
    return SwapTicket(log.environment.durability, log.directory, cleaned, cleaning.generation)


def finish_swap(log: PartitionLog, ticket: SwapTicket, now_ms: int) -> bool:
    """Finish the swap after the ticket ran: readers get the new segment from now on. Return False for an abandoned swap.

    Raises StorageFailed; the log is then offline, and `reopen` finishes the swap.
    """
    if ticket.generation != log.unflushed.generation or log.offline:
        return False
    cleaned, segments = ticket.cleaned, log.segments
    place = segments.place_of(cleaned.sources)
    if place is None:
        abandon_swap(log, ticket)
        return False
    environment = log.environment
    old = segments.segments[place]
    try:
        remove_segments(environment, old, now_ms + log.config.file_delete_delay_ms)
        environment.durability.sync(directories=[log.directory])
        rename_to_final(environment.storage, log.directory, cleaned)
    except OSError as error:
        log.outage.fail(f"a cleaned segment could not take its place: {error}", error)
    new = Segment(environment, log.directory, cleaned.base_offset, cleaned.size_bytes, old[-1].created_ms)
    new.aborts.has_any = cleaned.has_aborted
    segments.replace(place, new)
    # A start accepts the old and the new name, so this rename need not be flushed.
    log.unflushed.add([], log.directory)
    return True


def abandon_swap(log: PartitionLog, ticket: SwapTicket) -> None:
    """Delete the files of a swap that has begun. Raises StorageFailed; the log is then offline."""
    if ticket.generation != log.unflushed.generation or log.offline:
        return
    try:
        delete_swap(log.environment.storage, log.directory, ticket.cleaned)
    except OSError as error:
        log.outage.fail(f"a cleaned segment could not be deleted: {error}", error)
