"""The messages between the gateway and the process that cleans."""

from __future__ import annotations

from typing import Final

import msgspec

from log.files.file_names import LOG_SUFFIX, offset_name
from log.segments.transaction_index import AbortedTransaction

JOB_VERSION: Final = 1
"""Raised with every change of these messages: after an upgrade the process may start from newer files than the gateway."""


class JobSegment(msgspec.Struct, frozen=True, array_like=True):
    """A closed segment of the log; `end_offset` is exclusive."""

    base_offset: int
    end_offset: int
    size_bytes: int
    has_aborted: bool


class JobLimits(msgspec.Struct, frozen=True):
    """The limits of one cleaning: memory for the offset map, bytes per read, and disk bytes per second (0: no limit)."""

    map_bytes: int
    map_load_factor: float
    read_bytes: int
    bytes_per_s: float


class CleaningJob(msgspec.Struct, frozen=True):
    """The cleaning of one log, made by `log.cleaning.begin_cleaning`. Times in ms, end offsets exclusive.

    `segments` are all segments from the log's start to `round_end_offset`. The offsets from `first_dirty_offset` on were not
    cleaned before. `producers` are (producer_id, last_offset, producer_epoch) of the remembered producers. `token` makes the
    names of the written files unique.
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
    """The suffixes of the segment's files."""
    size_bytes: int
    has_aborted: bool


class CleaningFinished(msgspec.Struct, frozen=True, tag="finished"):
    """The cleaning is done, and all segments are reported. The log is clean up to `clean_end_offset`.

    A full offset map may have limited that offset.
    """

    clean_end_offset: int
    keys: int
    records_read: int
    records_kept: int
    bytes_read: int
    bytes_kept: int
    keyless_records: int


class CleaningFailed(msgspec.Struct, frozen=True, tag="failed"):
    """The cleaning failed. If the log itself can't be cleaned (`is_corrupt`), a retry fails again.

    If the disk failed (`is_of_disk`), because it is full for example, a later retry may succeed.
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
            f"the gateway sent a cleaning job of version {version}, and the process that cleans reads version "
            f"{JOB_VERSION}; restart the gateway"
        )
    return _decode_job(frame)
