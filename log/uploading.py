"""A log for those who copy it elsewhere: its segments, their durable bytes, and its side files."""

from __future__ import annotations

from typing import Final, NamedTuple

from seqgate.log.errors import CorruptRecord
from seqgate.log.files.checkpoints import decode_offset, encode_offsets
from seqgate.log.files.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_START_OFFSET,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_name,
    parse_offset_name,
)
from seqgate.log.files.storage import DataFile, Storage
from seqgate.log.format.record_batch import HEADER_BYTES, crc_matches, parse_header, whole_batches
from seqgate.log.partition_log import PartitionLog
from seqgate.log.recovery.checking import CUT_SUFFIX
from seqgate.log.segments.transaction_index import TransactionIndex

# names of other modules that belong to this face
__all__ = ["LOG_START_OFFSET", "DataFile", "TransactionIndex"]

INDEX_SUFFIXES: Final = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
_PASSING: Final = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, TEMPORARY_SUFFIX, CUT_SUFFIX)
"""The suffixes of files that are about to vanish, or that nobody reads but people."""


class SegmentView(NamedTuple):
    """A segment file at one moment."""

    base_offset: int
    size_bytes: int
    file: DataFile
    """Another object after a compaction has replaced the file."""
    has_indexes: bool
    """Whether the segment is closed, and its index files are written."""
    has_aborts: bool
    """Whether one of its index files is that of aborted transactions."""


class LogView(NamedTuple):
    """A log at one moment."""

    log_start_offset: int
    end_offset: int
    """The offset below which all records are durable."""
    segments: list[SegmentView]
    """The segments that begin at or below the end offset, ascending."""
    stable_offset: int
    """The offset below which every record is decided and durable."""
    last_aborts: bytes | None
    """The last segment's transaction index, maybe in no file yet; None if it is not in memory."""


class SoundBatches(NamedTuple):
    """Whole batches of a segment file, whose checksums fit."""

    data: memoryview
    end_offset: int
    """The offset after the last record; the caller's `first_offset` when there is no batch."""


def view(log: PartitionLog) -> LogView:
    """Return the segments of the log, on its event loop."""
    end_offset = log.recovery_point
    durable = [segment for segment in log.segments.segments if segment.base_offset <= end_offset]
    segments = [
        SegmentView(
            segment.base_offset,
            segment.size_bytes,
            segment.file,
            segment.has_index_files,
            segment.aborts.has_any,
        )
        for segment in durable
    ]
    stable_offset = min(end_offset, log.last_stable_offset)
    last = durable[-1].aborts
    last_aborts = last.entries if last.has_any else b""
    return LogView(log.log_start_offset, end_offset, segments, stable_offset, last_aborts)


def read_sound(
    storage: Storage, file: DataFile, position: int, max_bytes: int, first_offset: int, end_offset: int
) -> SoundBatches:
    """Read whole batches from a pinned file, of records from `first_offset` on and below `end_offset`.
    Returns at most `max_bytes`, but for one larger batch. Any thread may call. Raises OSError, CorruptRecord
    where the CRC of a batch does not fit, or its offsets do not follow on those before.
    """
    data = storage.read_pinned(file, max_bytes, position)
    if len(data) >= HEADER_BYTES:
        first = parse_header(data[:HEADER_BYTES])
        if first.size_bytes > len(data) and first.last_offset < end_offset:
            data = storage.read_pinned(file, first.size_bytes, position)
    content, size_bytes, reached = memoryview(data), 0, first_offset
    for start, batch in whole_batches(data):
        if batch.last_offset >= end_offset:
            break
        # The CRC does not cover the base offset.
        if batch.base_offset < reached or not crc_matches(batch, content, start):
            raise CorruptRecord(f"{file.path} is damaged at position {position + start}")
        size_bytes, reached = start + batch.size_bytes, batch.last_offset + 1
    return SoundBatches(content[:size_bytes], reached)


def side_files(storage: Storage, directory: str) -> dict[str, bytes]:
    """Return a partition's files but for segments, indexes and log start. Any thread may call. A file that is
    replaced meanwhile comes as it was before or after. Raises OSError.
    """
    files: dict[str, bytes] = {}
    for name in storage.list_directory(directory):
        found = parse_offset_name(name)
        is_segment = found is not None and found[1] in SEGMENT_SUFFIXES
        if is_segment or name == LOG_START_OFFSET or name.endswith(_PASSING):
            continue
        try:
            files[name] = storage.read_file(f"{directory}/{name}")
        except FileNotFoundError:
            continue  # an old snapshot was deleted since the listing
    return files


def index_names(base_offset: int) -> list[str]:
    """Return the names of the index files that each closed segment has."""
    return [offset_name(base_offset, suffix) for suffix in INDEX_SUFFIXES[:2]]


def aborts_name(base_offset: int) -> str:
    """Return the name of the file with the transaction index of a closed segment."""
    return offset_name(base_offset, TRANSACTION_INDEX_SUFFIX)


def is_index(name: str) -> bool:
    return name.endswith(INDEX_SUFFIXES)


def index_files(storage: Storage, seen: SegmentView) -> dict[str, bytes] | None:
    """Return a closed segment's index files by name; None if one is missing. Raises OSError. Thread-safe. The
    files are those of the segment only if `seen.file` is not retired after the call.
    """
    directory, _, name = seen.file.path.rpartition("/")
    suffixes = INDEX_SUFFIXES if seen.has_aborts else INDEX_SUFFIXES[:2]
    names = [name.removesuffix(LOG_SUFFIX) + suffix for suffix in suffixes]
    try:
        return {name: storage.read_file(f"{directory}/{name}") for name in names}
    except FileNotFoundError:
        return None


def log_start_in(content: bytes) -> int:
    """Return the offset in the content of a log start file. Raises IncompatibleFormat, CorruptRecord."""
    return decode_offset(content, LOG_START_OFFSET)


def log_start_content(topic: str, partition: int, offset: int) -> bytes:
    return encode_offsets({(topic, partition): offset})
