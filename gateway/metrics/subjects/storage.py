"""Appends, flushes, reads from the disk, retention and compaction."""

from __future__ import annotations

from typing import Final

from gateway.metrics.metric import Samples, Sources, Subject, counter, gauge, histogram
from log import known_cut_bytes, known_damage

APPEND: Final = histogram(
    "seqgate_append_duration_seconds",
    "Time of the append of a batch: its check, the judgement of its sequence, and the write. Ten appends a second are timed. "
    "The count is that of the timed ones.",
)
FLUSH: Final = histogram(
    "seqgate_flush_round_duration_seconds",
    "Time of a flush round, which makes many batches durable together: on the local disk, or in the bucket.",
)
FLUSH_WAITING: Final = gauge("seqgate_flush_waiting_requests", "Requests that wait for a flush.")
FLUSH_FAILURES: Final = counter(
    "seqgate_flush_failures_total", "Flushes of a log that failed and took its partition offline."
)
FREE: Final = gauge("seqgate_disk_free_bytes", "Free bytes of the disk with the data directory.")
SHORT: Final = gauge(
    "seqgate_disk_is_short",
    "1 while the disk has less room than seqgate.log.min.free.bytes and producers are refused.",
)
DISK_REFUSALS: Final = counter(
    "seqgate_disk_refused_batches_total", "Batches refused because the disk was short of room."
)
DAMAGED: Final = gauge("seqgate_damaged_stretches", "Stretches of stored batches that are damaged.")
CUT: Final = gauge("seqgate_cut_stretches", "Stretches of sound records that a recovery has cut off a log.")
COLD_BLOCKS: Final = counter(
    "seqgate_cold_blocks_read_total", "Blocks of old data read into the page cache for fetches."
)
COLD_WAITING: Final = gauge("seqgate_cold_blocks_waiting", "Blocks of old data that fetches wait for.")
RECOMPRESSED: Final = counter(
    "seqgate_recompressed_batches_total", "Batches compressed again for a topic's compression.type."
)
ROLLED: Final = counter("seqgate_retention_rolled_segments_total", "Segments closed because of their age.")
DELETED: Final = counter(
    "seqgate_retention_deleted_segments_total", "Segments deleted by retention, by reason.", "reason"
)
DELETED_BYTES: Final = counter(
    "seqgate_retention_deleted_bytes_total", "Bytes of segments deleted by retention.", "reason"
)
CLEANED: Final = counter("seqgate_compaction_runs_total", "Partitions compacted, each time counted.")
CLEANING_FAILED: Final = counter(
    "seqgate_compaction_failures_total", "Compactions of a partition that failed."
)
UNCLEANABLE: Final = gauge(
    "seqgate_compaction_uncleanable_partitions",
    "Partitions that are not compacted any more until the gateway restarts.",
)
CLEANED_READ: Final = counter("seqgate_compaction_records_read_total", "Records read by compaction.")
CLEANED_KEPT: Final = counter("seqgate_compaction_records_kept_total", "Records kept by compaction.")
CLEANING_TIME: Final = counter("seqgate_compaction_seconds_total", "Time spent with compaction.")


def _read(sources: Sources) -> Samples:
    services = sources.services
    partitions, room = services.partitions, services.upkeep.disk_room
    if partitions.append_times is not None:
        yield APPEND.at(partitions.append_times.durations)
    yield FLUSH.at(partitions.flusher.round_times)
    yield FLUSH_WAITING.at(partitions.flusher.waiting_count)
    yield FLUSH_FAILURES.at(partitions.flusher.failures)
    if room.free_bytes is not None:
        yield FREE.at(room.free_bytes)
    yield SHORT.at(room.is_disk_short)
    yield DISK_REFUSALS.at(room.refused_batches)
    yield DAMAGED.at(sum(1 for _ in known_damage(partitions.log_directory)))
    yield CUT.at(sum(1 for _ in known_cut_bytes(partitions.log_directory)))
    yield COLD_BLOCKS.at(partitions.cold_reads.blocks_read)
    yield COLD_WAITING.at(partitions.cold_reads.blocks_waiting)
    yield RECOMPRESSED.at(partitions.recompressor.batches)
    yield from _retention(sources)
    yield from _compaction(sources)


def _retention(sources: Sources) -> Samples:
    retention = sources.retention
    yield ROLLED.at(retention.rolled_segments)
    for reason, count in list(retention.deleted_segments.items()):
        yield DELETED.at(count, str(reason))
    for reason, size_bytes in list(retention.deleted_bytes.items()):
        yield DELETED_BYTES.at(size_bytes, str(reason))


def _compaction(sources: Sources) -> Samples:
    counts = sources.compaction.counts
    yield CLEANED.at(counts.cleanings)
    yield CLEANING_FAILED.at(counts.failures)
    yield UNCLEANABLE.at(sources.compaction.uncleanable)
    yield CLEANED_READ.at(counts.records_read)
    yield CLEANED_KEPT.at(counts.records_kept)
    yield CLEANING_TIME.at(counts.took_s)


SUBJECT: Final = Subject(
    "Storage",
    (
        APPEND,
        FLUSH,
        FLUSH_WAITING,
        FLUSH_FAILURES,
        FREE,
        SHORT,
        DISK_REFUSALS,
        DAMAGED,
        CUT,
        COLD_BLOCKS,
        COLD_WAITING,
        RECOMPRESSED,
        ROLLED,
        DELETED,
        DELETED_BYTES,
        CLEANED,
        CLEANING_FAILED,
        UNCLEANABLE,
        CLEANED_READ,
        CLEANED_KEPT,
        CLEANING_TIME,
    ),
    _read,
)
