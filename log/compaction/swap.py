"""Swaps cleaned segments in for their sources, so that a crash leaves either of them whole.

| step                                     | what a crash leaves                                  |
|------------------------------------------|------------------------------------------------------|
| the cleaner makes `*.cleaned` durable    | the old segments; `*.cleaned` is deleted             |
| `*.cleaned` is renamed to `*.swap`       | the old ones, or the new one if `.log.swap` is there |
| the directory is made durable            | the new one                                          |
| the old files are renamed to `*.deleted` | the new one                                          |
| the directory is made durable            | the new one                                          |
| `*.swap` is renamed to the final names   | the new one                                          |

A `.log.swap` was whole when it got its name, so a start finishes the swap: it deletes the sources whose
offsets the new segment's batches cover, and rebuilds the indexes. A source after the last kept batch may so
come back. The next cleaning cleans it again, as the end of this one was not recorded. If the `.log.swap` was
damaged since and its sources are still there, the start deletes the `.log.swap` instead. A cleaned segment
without batches may be right, but so looks one that was cut between two batches. The cleaned indexes tell them
apart: they were durable before the log got its name. Source: Kafka's `LocalLog.replaceSegments`, `LogLoader`.
The two directory flushes are ours: renames may reach the disk in any order.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection

import msgspec

from seqgate.log.compaction.job import CleanedSegment
from seqgate.log.environment import LogEnvironment
from seqgate.log.files.file_names import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    cleaned_name,
    offset_name,
    parse_offset_name,
)
from seqgate.log.files.storage import DataFile, DurableFiles, Storage
from seqgate.log.format.record_batch import HEADER_BYTES, BatchHeader, crc_matches, parse_header
from seqgate.log.segments.indexes import SegmentIndexes
from seqgate.log.segments.segment import Segment

_logger = logging.getLogger(__name__)


class SwapTicket(msgspec.Struct, eq=False):
    """A swap that has begun: the cleaned segment replaces its source segments in two steps.

    A step is a method that persists file names, in any thread, then a function in the log's thread:

    step   method         on success                            on failure
    1      read_and_run   `replace_sources` of `seqgate.log.cleaning`   `abandon_swap`
    2      run            `finish_swap`                         `fail_swap`
    """

    storage: Storage
    durable: DurableFiles
    directory: str
    """The directory whose names `run` makes durable."""
    cleaned: CleanedSegment
    generation: int
    contents: dict[str, bytes] = {}
    """The indexes of the cleaned segment, by suffix."""
    new: Segment | None = None
    """The cleaned segment, once readers use it."""

    def read_and_run(self) -> None:
        """Read the indexes of the cleaned segment, and persist the names in the directory. Raises OSError."""
        for suffix in self.cleaned.suffixes:
            if suffix != LOG_SUFFIX:
                path = swap_path(self.directory, self.cleaned.base_offset, suffix)
                self.contents[suffix] = self.storage.read_file(path)
        self.run()

    def run(self) -> None:
        """Make the names in the directory durable. Raises OSError."""
        self.durable.sync(directories=[self.directory])


def rename_to_swap(storage: Storage, directory: str, cleaned: CleanedSegment, token: str) -> None:
    """Take the first step: rename `*.cleaned` to `*.swap`. Raises OSError, after undoing it if possible."""
    try:
        for suffix in reversed(cleaned.suffixes):
            storage.rename(
                f"{directory}/{cleaned_name(cleaned.base_offset, suffix, token)}",
                swap_path(directory, cleaned.base_offset, suffix),
            )
    except OSError:
        with contextlib.suppress(OSError):
            delete_swap(storage, directory, cleaned)
        raise


def delete_swap(storage: Storage, directory: str, cleaned: CleanedSegment) -> None:
    """Undo the first step: delete the `*.swap` files. Raises OSError."""
    for suffix in cleaned.suffixes:
        storage.delete(swap_path(directory, cleaned.base_offset, suffix))


def rename_to_final(storage: Storage, directory: str, cleaned: CleanedSegment) -> None:
    """Take the last step: rename `*.swap` to the final names. Raises OSError."""
    for suffix in reversed(cleaned.suffixes):
        path = swap_path(directory, cleaned.base_offset, suffix)
        storage.rename(path, path.removesuffix(SWAP_SUFFIX))


def swap_path(directory: str, base_offset: int, suffix: str) -> str:
    return f"{directory}/{offset_name(base_offset, suffix)}{SWAP_SUFFIX}"


def delete_cleaned(storage: Storage, directory: str, token: str) -> None:
    """Delete the `*.cleaned` files of the cleaning with this token, if there are any. Raises OSError."""
    end = f".{token}{CLEANED_SUFFIX}"
    with contextlib.suppress(FileNotFoundError):
        for name in storage.list_directory(directory):
            if name.endswith(end):
                storage.delete(f"{directory}/{name}")


def finish_swaps(environment: LogEnvironment, directory: str, names: Collection[str]) -> set[int]:
    """Finish the swaps that a crash interrupted, at a start, and delete the files of unfinished cleanings.

    `names` are the files of the directory. Returns the base offsets of segments whose indexes were deleted
    and must be rebuilt. Raises OSError.
    """
    storage = environment.storage
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    doubted: set[int] = set()
    for name in sorted(swaps):
        parsed = parse_offset_name(name.removesuffix(SWAP_SUFFIX))
        if parsed is None or parsed[1] != LOG_SUFFIX:
            continue
        _finish_swap(environment, directory, parsed[0], names)
        doubted.add(parsed[0])
    # Delete the cleaned files last: if this start crashes, the next one must find the same indexes.
    for name in names:
        if name.endswith(CLEANED_SUFFIX):
            storage.delete(f"{directory}/{name}")
    for name in swaps:
        parsed = parse_offset_name(name.removesuffix(SWAP_SUFFIX))
        if parsed is not None and parsed[1] != LOG_SUFFIX:
            # The log file may or may not have its final name yet. Rebuild its indexes in both cases.
            storage.delete(f"{directory}/{name}")
            for suffix in SEGMENT_SUFFIXES:
                if suffix != LOG_SUFFIX:
                    storage.delete(f"{directory}/{offset_name(parsed[0], suffix)}")
            doubted.add(parsed[0])
    if swaps:
        environment.durability.sync(directories=[directory])
    return doubted


class _Contents(msgspec.Struct, frozen=True):
    """The sound batches at the front of a segment file."""

    end_offset: int
    size_bytes: int
    is_sound: bool
    """Whether these batches are the whole file."""


def _finish_swap(
    environment: LogEnvironment, directory: str, base_offset: int, names: Collection[str]
) -> None:
    storage = environment.storage
    swapped = swap_path(directory, base_offset, LOG_SUFFIX)
    contents = _contents_of(environment, directory, base_offset, swapped)
    is_sound = contents.is_sound and _is_all_there(storage, directory, base_offset, contents, names)
    if not is_sound:
        if storage.exists(f"{directory}/{offset_name(base_offset, LOG_SUFFIX)}"):
            _logger.error("%s is damaged and not used: its source segments are still there", swapped)
            storage.delete(swapped)
            return
        contents = _cut_before_the_next(environment, directory, base_offset, contents)
    end_offset = max(contents.end_offset, base_offset + 1)
    _logger.info(
        "%s: the cleaned segment for offsets %d to %d is swapped in after a crash",
        directory,
        base_offset,
        end_offset - 1,
    )
    for name in storage.list_files(directory):
        parsed = parse_offset_name(name)
        if parsed is not None and parsed[1] in SEGMENT_SUFFIXES and base_offset <= parsed[0] < end_offset:
            storage.delete(f"{directory}/{name}")
    environment.durability.sync(directories=[directory])
    storage.rename(swapped, swapped.removesuffix(SWAP_SUFFIX))


def _is_all_there(
    storage: Storage, directory: str, base_offset: int, contents: _Contents, names: Collection[str]
) -> bool:
    """Return whether the sound batches are all that the cleaned segment's indexes know. Raises OSError."""
    offset_entries = _cleaned_contents(
        storage, directory, offset_name(base_offset, OFFSET_INDEX_SUFFIX), names
    )
    time_entries = _cleaned_contents(storage, directory, offset_name(base_offset, TIME_INDEX_SUFFIX), names)
    if not contents.size_bytes and not time_entries:
        return False
    if not all(SegmentIndexes(entries).is_sane(contents.size_bytes) for entries in offset_entries):
        return False
    file = DataFile(swap_path(directory, base_offset, LOG_SUFFIX))
    try:
        for indexes in (SegmentIndexes(time_entries=entries) for entries in time_entries):
            if not indexes.is_sane(contents.size_bytes):
                return False
            last = indexes.last_time()
            if last and not _has_batch_that_ends_with(storage, file, contents, base_offset + last[1]):
                return False
    finally:
        storage.descriptors.release(file)
    return True


def _has_batch_that_ends_with(storage: Storage, file: DataFile, contents: _Contents, offset: int) -> bool:
    position = 0
    while position < contents.size_bytes:
        batch = parse_header(storage.read(file, HEADER_BYTES, position))
        if batch.last_offset >= offset:
            return batch.last_offset == offset
        position += batch.size_bytes
    return False


def _cleaned_contents(storage: Storage, directory: str, name: str, names: Collection[str]) -> list[bytes]:
    """Return what cleanings wrote for the file `name`, under its `.swap` or its `.cleaned` names. The file
    was renamed before its log, but that rename may not have reached the disk.
    """
    if name + SWAP_SUFFIX in names:
        return [storage.read_file(f"{directory}/{name}{SWAP_SUFFIX}")]
    return [
        storage.read_file(f"{directory}/{cleaned}")
        for cleaned in names
        if cleaned.startswith(f"{name}.") and cleaned.endswith(CLEANED_SUFFIX)
    ]


def _cut_before_the_next(
    environment: LogEnvironment, directory: str, base_offset: int, contents: _Contents
) -> _Contents:
    """Truncate a damaged cleaned segment before the next source segment that still exists. Raises OSError."""
    storage = environment.storage
    parsed = [parse_offset_name(name) for name in storage.list_files(directory)]
    later = [found[0] for found in parsed if found and found[1] == LOG_SUFFIX and found[0] > base_offset]
    if not later or min(later) >= contents.end_offset:
        return contents
    path = swap_path(directory, base_offset, LOG_SUFFIX)
    front = _contents_of(environment, directory, base_offset, path, before=min(later))
    file = DataFile(path)
    try:
        with storage.descriptors.pinned(file):
            storage.truncate(file, front.size_bytes)
            environment.durability.sync(data=[file])
    finally:
        storage.descriptors.release(file)
    return front


def _contents_of(
    environment: LogEnvironment, directory: str, base_offset: int, path: str, before: int | None = None
) -> _Contents:
    """Return a segment file's sound batches up to one that ends at `before` or later. Raises OSError."""
    storage = environment.storage
    size_bytes = storage.list_files(directory)[path.rpartition("/")[2]]
    file = DataFile(path)
    end_offset, position = base_offset, 0
    try:
        while position < size_bytes:
            batch = _sound_batch(storage, file, position)
            if (
                batch is None
                or not end_offset <= batch.base_offset <= batch.last_offset < base_offset + 2**31
            ):
                _logger.error("%s is damaged at position %d", path, position)
                return _Contents(end_offset, position, is_sound=False)
            if before is not None and batch.last_offset >= before:
                return _Contents(end_offset, position, is_sound=False)
            end_offset = batch.last_offset + 1
            position += batch.size_bytes
    finally:
        storage.descriptors.release(file)
    return _Contents(end_offset, position, is_sound=True)


def _sound_batch(storage: Storage, file: DataFile, position: int) -> BatchHeader | None:
    head = storage.read(file, HEADER_BYTES, position)
    if len(head) < HEADER_BYTES:
        return None
    batch = parse_header(head)
    if not batch.is_plausible:
        return None
    whole = memoryview(storage.read(file, batch.size_bytes, position))
    return batch if len(whole) == batch.size_bytes and crc_matches(batch, whole) else None
