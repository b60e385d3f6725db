"""The messages between the gateway and the process that cleans.

Decides which part of a log can be cleaned now, and whether to clean it.

The log was cleaned before from its start up to `first_dirty_offset`. From there up to
`first_uncleanable_offset` the log can be cleaned: whole closed segments, decided (below the last stable
offset), durable, and older than `min.compaction.lag.ms`. A cleaning is due when the dirty share of the bytes
exceeds `min.cleanable.dirty.ratio`, or when a dirty record has waited for `max.compaction.lag.ms`. Source:
Kafka's `LogCleanerManager.cleanableOffsets`, `maxCompactionDelay`, `LogToClean`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from seqgate.log.config import LogConfig
from seqgate.log.files.file_names import LOG_SUFFIX, offset_name
from seqgate.log.segments.transaction_index import AbortedTransaction

JOB_VERSION: Final = 2
"""Raised with every change of these messages: the process may start from newer files than the gateway."""


class JobSegment(msgspec.Struct, frozen=True, array_like=True):
    """A closed segment of the log; `end_offset` is exclusive."""

    base_offset: int
    end_offset: int
    size_bytes: int
    has_aborted: bool


class JobLimits(msgspec.Struct, frozen=True):
    """Limits of a cleaning: bytes of the offset map, bytes per read, disk bytes per second (0: no limit)."""

    map_bytes: int
    map_load_factor: float
    read_bytes: int
    bytes_per_s: float


class CleaningJob(msgspec.Struct, frozen=True):
    """The cleaning of a log, made by `cleaning.begin_cleaning`. Times in ms, end offsets exclusive.

    `segments` are all segments from the log's start to `round_end_offset`. The offsets from
    `first_dirty_offset` on were not cleaned before. `producers` are (producer_id, last_offset,
    producer_epoch) of the tracked producers. `token` makes the names of the written files unique.
    """

    directory: str
    token: str
    segments: list[JobSegment]
    first_dirty_offset: int
    round_end_offset: int
    producers: list[tuple[int, int, int]]
    aborted_later: list[AbortedTransaction]
    """The transactions that markers from `round_end_offset` on abort."""
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    max_decompressed_bytes: int
    max_record_bytes: int
    limits: JobLimits
    version: int = JOB_VERSION

    @property
    def paths(self) -> list[str]:
        """The paths of the segments' log files."""
        return [
            f"{self.directory}/{offset_name(segment.base_offset, LOG_SUFFIX)}" for segment in self.segments
        ]


class _JobVersion(msgspec.Struct):
    version: int = 0


class UnknownJobVersion(Exception):
    """The job comes from a gateway of another release than this process."""


class CleanedSegment(msgspec.Struct, frozen=True, tag="segment"):
    """A cleaned segment that replaces the neighbouring segments `sources`. Its files are durable."""

    base_offset: int
    sources: list[int]
    suffixes: list[str]
    size_bytes: int
    has_aborted: bool


class CleaningFinished(msgspec.Struct, frozen=True, tag="finished"):
    """The cleaning is done, and all segments are reported. The log is clean up to `clean_end_offset`. A full
    offset map may have limited that offset.
    """

    clean_end_offset: int
    keys: int
    records_read: int
    records_kept: int
    bytes_read: int
    bytes_kept: int
    keyless_records: int


class CleaningFailed(msgspec.Struct, frozen=True, tag="failed"):
    """The cleaning failed. If the log itself can't be cleaned (`is_corrupt`), a retry fails again. If the
    disk failed (`is_of_disk`), because it is full for example, a later retry may succeed.
    """

    reason: str
    is_corrupt: bool = False
    is_of_disk: bool = False


CleaningReport = CleanedSegment | CleaningFinished | CleaningFailed
encode_job = msgspec.msgpack.Encoder().encode
encode_report = msgspec.msgpack.Encoder().encode
_decode_job = msgspec.msgpack.Decoder(CleaningJob).decode
decode_report: msgspec.msgpack.Decoder[CleaningReport] = msgspec.msgpack.Decoder(CleaningReport)


def decode_job(frame: bytes) -> CleaningJob:
    """Return the job in a frame. Raises UnknownJobVersion."""
    version = msgspec.msgpack.decode(frame, type=_JobVersion).version
    if version != JOB_VERSION:
        raise UnknownJobVersion(
            f"the gateway sent a cleaning job of version {version}, and the process that cleans reads "
            f"version {JOB_VERSION}; restart the gateway"
        )
    return _decode_job(frame)


class SegmentAge(NamedTuple):
    """A closed segment; `end_offset` is exclusive. Timestamps in ms, -1 without any."""

    base_offset: int
    end_offset: int
    size_bytes: int
    largest_timestamp: int
    first_timestamp: int


class Cleanable(msgspec.Struct, frozen=True):
    """The range that can be cleaned. `reason` says why a cleaning is due now, None when it is not."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    dirty_bytes: int
    dirty_ratio: float
    reason: str | None
    checkpoint_was_wrong: bool
    """Whether the end offset of the last cleaning lies outside of this log."""


def cleanable(
    closed: Sequence[SegmentAge],
    config: LogConfig,
    *,
    clean_end_offset: int | None,
    log_start_offset: int,
    log_end_offset: int,
    decided_end_offset: int,
    now_ms: int,
) -> Cleanable:
    """Return the cleanable range of a log, by its closed segments. Offsets named `end` are exclusive.

    `clean_end_offset` is where the last cleaning ended, None before the first. Segments that end after
    `decided_end_offset` are not cleaned.
    """
    first_dirty = log_start_offset if clean_end_offset is None else clean_end_offset
    is_wrong = not log_start_offset <= first_dirty <= log_end_offset
    if is_wrong:
        first_dirty = log_start_offset
    first_uncleanable = first_dirty
    clean_bytes = dirty_bytes = 0
    oldest = now_ms
    for segment in closed:
        if segment.base_offset < first_dirty:
            clean_bytes += segment.size_bytes
        if segment.end_offset <= first_dirty:
            continue
        if segment.end_offset > decided_end_offset or (
            config.min_compaction_lag_ms > 0
            and segment.largest_timestamp > now_ms - config.min_compaction_lag_ms
        ):
            break
        first_uncleanable = segment.end_offset
        dirty_bytes += segment.size_bytes
        if segment.first_timestamp > 0:
            oldest = min(oldest, segment.first_timestamp)
    total_bytes = clean_bytes + dirty_bytes
    ratio = dirty_bytes / total_bytes if total_bytes else 0.0
    return Cleanable(
        first_dirty,
        first_uncleanable,
        dirty_bytes,
        ratio,
        _reason(config, dirty_bytes, ratio, now_ms - oldest),
        is_wrong,
    )


def _reason(config: LogConfig, dirty_bytes: int, ratio: float, waited_ms: int) -> str | None:
    if not dirty_bytes:
        return None
    if waited_ms > config.max_compaction_lag_ms:
        return (
            "its oldest dirty record has waited for more than "
            f"max.compaction.lag.ms={config.max_compaction_lag_ms}"
        )
    if ratio > config.min_cleanable_dirty_ratio:
        return (
            f"{ratio:.0%} of it is dirty, more than "
            f"min.cleanable.dirty.ratio={config.min_cleanable_dirty_ratio}"
        )
    return None
