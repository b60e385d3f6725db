"""Starts the compaction of a partition log, and swaps the cleaned segments in.

Another process does the cleaning (`seqgate.log.compaction.cleaner`). All functions here run in the thread of
the log and return quickly. Source of the rules: Kafka's `LogCleanerManager`, `UnifiedLog.replaceSegments`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from seqgate.log.compaction.job import (
    Cleanable,
    CleanedSegment,
    CleaningJob,
    JobLimits,
    JobSegment,
    SegmentAge,
)
from seqgate.log.compaction.job import cleanable as decide_cleanable
from seqgate.log.compaction.swap import SwapTicket, delete_swap, rename_to_final, rename_to_swap, swap_path
from seqgate.log.errors import StorageFailed
from seqgate.log.files.file_names import LOG_SUFFIX
from seqgate.log.partition_log import PartitionLog
from seqgate.log.segments.segment import Segment

_NEVER_MS: Final = 2**63 - 1


class Cleaning(msgspec.Struct, frozen=True):
    """A cleaning in progress. Its generation tells whether the log was reopened since the cleaning began."""

    job: CleaningJob
    generation: int


def has_closed_segments_after(log: PartitionLog, offset: int) -> bool:
    """Return whether a closed segment reaches beyond `offset`; without one there is nothing to clean."""
    return log.segments.active.base_offset > offset


def cleanable(
    log: PartitionLog, clean_end_offset: int | None, durable_end_offset: int, now_ms: int
) -> Cleanable:
    """Return the part of the log that compaction may clean, from the end of the last cleaning on. Only
    durable records are cleaned, and no records whose producer names are in no durable snapshot yet. Raises
    StorageFailed, CorruptRecord.
    """
    log.check_online()
    config, segments, names = log.config, log.segments, log.record_states.names
    is_lagging, is_due = config.min_compaction_lag_ms > 0, config.max_compaction_lag_ms < _NEVER_MS
    dirty = clean_end_offset or 0
    if names is not None and names.unsaved_from is not None:
        durable_end_offset = min(durable_end_offset, names.unsaved_from)
    with log.reading():
        # Reading a timestamp may need the disk. Skip cleaned segments: their timestamps are not needed.
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
        config,
        clean_end_offset=clean_end_offset,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        decided_end_offset=min(
            log.last_stable_offset, log.recovery_point, durable_end_offset, segments.first_damaged_base()
        ),
        now_ms=now_ms,
    )


def begin_cleaning(
    log: PartitionLog, found: Cleanable, limits: JobLimits, *, token: str, now_ms: int
) -> Cleaning:
    """Return the job that cleans `found`. Raises StorageFailed.

    All files of the log must be durable before. Otherwise a crash could lose the side files that hold the
    producers of removed records.
    """
    log.check_online()
    end_offset = found.first_uncleanable_offset
    segments, config = log.segments, log.config
    with log.reading():
        aborted_later = segments.aborted_from(end_offset, end_offset)
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
        max_record_bytes=config.max_record_bytes,
        limits=limits,
    )
    return Cleaning(job, log.unflushed.generation)


# --- swapping a cleaned segment in


def begin_swap(log: PartitionLog, cleaning: Cleaning, cleaned: CleanedSegment) -> SwapTicket | None:
    """Rename the cleaned files to `*.swap`, and return the next ticket. None when the log has changed. Raises
    StorageFailed; the log is then unchanged.
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
    return SwapTicket(storage, log.environment.durability, log.directory, cleaned, cleaning.generation)


def replace_sources(log: PartitionLog, ticket: SwapTicket, now_ms: int) -> bool:
    """Let readers use the cleaned segment, after `read_and_run`, and rename its sources to `*.deleted`.

    The cleaned files keep the names `*.swap` until the loss of the old names is durable: a start must never
    find a source beside a cleaned segment of a final name. Until then the data is read through an open
    descriptor, and the indexes are in memory. Return False for an abandoned swap. Raises StorageFailed.
    """
    if ticket.generation != log.unflushed.generation or log.offline:
        return False
    cleaned, segments, environment = ticket.cleaned, log.segments, log.environment
    place = segments.place_of(cleaned.sources)
    if place is None:
        abandon_swap(log, ticket)
        return False
    old = segments.segments[place]
    new = Segment(environment, log.directory, cleaned.base_offset, cleaned.size_bytes, old[-1].created_ms)
    try:
        environment.storage.descriptors.pin_as(
            new.file, swap_path(log.directory, cleaned.base_offset, LOG_SUFFIX)
        )
    except OSError as error:
        abandon_swap(log, ticket)
        raise StorageFailed(f"a cleaned segment of {log.place} can't be opened: {error}") from error
    try:
        for segment in old:
            segment.remove(now_ms + log.config.file_delete_delay_ms)
    except OSError as error:
        environment.storage.descriptors.unpin(new.file)
        log.fail(f"a cleaned segment could not take its place: {error}", error)
    new.aborts.has_any = cleaned.has_aborted
    new.hold_indexes(ticket.contents)
    segments.replace(place, new)
    log.lists.retention.changed(log)
    ticket.new = new
    return True


def finish_swap(log: PartitionLog, ticket: SwapTicket) -> bool:
    """Give the cleaned files their final names, after `run`. Return False if the log was reopened or closed.
    Raises StorageFailed; the log is then offline, and `reopen` finishes the swap.
    """
    new, storage = ticket.new, log.environment.storage
    assert new is not None
    try:
        if ticket.generation != log.unflushed.generation or log.offline:
            return False
        if new not in log.segments.segments:
            # Retention has removed the segment, which had no file of its own name yet.
            delete_swap(storage, log.directory, ticket.cleaned)
            return True
        rename_to_final(storage, log.directory, ticket.cleaned)
    except OSError as error:
        log.fail(f"a cleaned segment could not take its place: {error}", error)
    finally:
        storage.descriptors.unpin(new.file)
    new.become_closed()
    # A start accepts the old and the new name, so this rename need not be flushed.
    log.unflushed.add([], log.directory)
    return True


def fail_swap(log: PartitionLog, ticket: SwapTicket, error: Exception) -> None:
    """Take the log offline after the second flush failed, unless the log was reopened or closed meanwhile."""
    assert ticket.new is not None
    log.environment.storage.descriptors.unpin(ticket.new.file)
    if ticket.generation == log.unflushed.generation:
        log.go_offline(f"a cleaned segment could not take its place: {error}", error)


def abandon_swap(log: PartitionLog, ticket: SwapTicket) -> None:
    """Delete the files of a swap that has begun. Raises StorageFailed; the log is then offline."""
    if ticket.generation != log.unflushed.generation or log.offline:
        return
    try:
        delete_swap(log.environment.storage, log.directory, ticket.cleaned)
    except OSError as error:
        log.fail(f"a cleaned segment could not be deleted: {error}", error)
