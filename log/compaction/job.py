"""What the gateway and the process that cleans tell each other."""

from __future__ import annotations

from typing import Final

import msgspec

from log.segments.transaction_index import AbortedTransaction

JOB_VERSION: Final = 1
"""Raised with every change of these messages: the process that cleans may have been started from files that are newer."""


class JobSegment(msgspec.Struct, frozen=True, array_like=True):
    """A closed segment of the log; `end_offset` is exclusive."""

    base_offset: int
    end_offset: int
    size_bytes: int
    has_aborted: bool


class JobLimits(msgspec.Struct, frozen=True):
    """What one cleaning may take: of memory for the map of keys, of a read, and of the disk in a second (0: no limit)."""

    map_bytes: int
    map_load_factor: float
    read_bytes: int
    bytes_per_s: float


class CleaningJob(msgspec.Struct, frozen=True):
    """One log to be cleaned, as `PartitionLog.cleaning_job` describes it. Times in ms, offsets exclusive at their end.

    All segments from the start of the log to `round_end_offset`; what lies from `first_dirty_offset` on has not been
    cleaned before. `producers` are (producer_id, last_offset, producer_epoch) of those that are remembered. `token` makes
    the names of the files that are written unique.
    """

    directory: str
    token: str
    segments: list[JobSegment]
    first_dirty_offset: int
    round_end_offset: int
    producers: list[tuple[int, int, int]]
    aborted_later: list[AbortedTransaction]
    """Aborted by markers beyond `round_end_offset`."""
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    max_decompressed_bytes: int
    limits: JobLimits
    version: int = JOB_VERSION


class _JobVersion(msgspec.Struct):
    version: int = 0


class UnknownJobVersion(Exception):
    """The job comes from a gateway of another release than this process; the message is a sentence."""


class CleanedSegment(msgspec.Struct, frozen=True, tag="segment"):
    """One segment that takes the place of `sources`, which are neighbours; its files are durable."""

    base_offset: int
    sources: list[int]
    suffixes: list[str]
    """Of its files."""
    size_bytes: int
    has_aborted: bool


class CleaningFinished(msgspec.Struct, frozen=True, tag="finished"):
    """All segments were told of. The log is clean up to `clean_end_offset`, which the map of keys may have limited."""

    clean_end_offset: int
    keys: int
    records_read: int
    records_kept: int
    bytes_read: int
    bytes_kept: int
    keyless_records: int


class CleaningFailed(msgspec.Struct, frozen=True, tag="failed"):
    """The cleaning was given up. When the log itself can't be cleaned (`is_corrupt`), trying again is of no use.

    When the disk refused (`is_of_disk`: it is full, say) it will do again some day.
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
    """The job in a frame. Raises UnknownJobVersion."""
    version = msgspec.msgpack.decode(frame, type=_JobVersion).version
    if version != JOB_VERSION:
        raise UnknownJobVersion(
            f"the gateway asks in version {version} and the process that cleans was started from files of version "
            f"{JOB_VERSION}; restart the gateway"
        )
    return _decode_job(frame)
