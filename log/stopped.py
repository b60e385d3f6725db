"""The face of `log` for commands on the data directory of a stopped gateway, which no LogDirectory has open.

The commands read facts without a lock, and hold LOCK while they mend files.

Finds orphaned files in a data directory, by their names alone. Opens no file and removes none.

    partition without a topic    a partition's directory, but there is no such topic or partition
    segment without a partition  a segment's files outside of any partition, or unknown to the open partition
    index without a segment      one of a segment's other files, but its log file is gone
    snapshot without a segment   producer state beyond the end of the log, or of segments long deleted
    temporary file               written to be renamed, and never renamed
    left to be deleted           `*.deleted` or `*-delete`, but nothing waits to delete it
    unknown                      a name that the gateway does not use

Files that changed lately are ignored: the gateway may still be writing them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from seqgate.log.directory.damage_scan import DamagedPartition, durable_ends, scan_directory, stored_batches
from seqgate.log.directory.identity import OF_A_FILE_SYSTEM, check_identity, give_up
from seqgate.log.directory.stored_logs import (
    DELETE_SUFFIX,
    KNOWN_NAMES,
    LOCK,
    StoredLog,
    forget_stops,
    read_stored_logs,
    write_stored_logs,
)
from seqgate.log.files.disk import FileEntry
from seqgate.log.files.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    NAMES_SUFFIX,
    SEGMENT_SUFFIXES,
    SIDE_FILES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    parse_offset_name,
    parse_partition_directory,
)
from seqgate.log.files.sparse_disk import check_directory_version
from seqgate.log.files.storage import Storage
from seqgate.log.state.names import KEPT_SNAPSHOTS as KEPT_NAMES
from seqgate.log.state.names import newest_names
from seqgate.log.state.producer_snapshots import KEPT_SNAPSHOTS

# names of other modules that belong to this face
__all__ = [
    "DELETED_SUFFIX",
    "DELETE_SUFFIX",
    "KNOWN_NAMES",
    "LOCK",
    "DamagedPartition",
    "StoredLog",
    "check_directory_version",
    "check_identity",
    "durable_ends",
    "forget_stops",
    "give_up",
    "newest_names",
    "read_stored_logs",
    "scan_directory",
    "stored_batches",
    "write_stored_logs",
]


_TEMPORARY: Final = (TEMPORARY_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)
_SNAPSHOTS: Final = frozenset({SNAPSHOT_SUFFIX, NAMES_SUFFIX})


class LeakKind(StrEnum):
    PARTITION = "partition without a topic"
    SEGMENT = "segment without a partition"
    INDEX = "index without a segment"
    SNAPSHOT = "snapshot without a segment"
    TEMPORARY = "temporary file"
    DELETED = "left to be deleted"
    UNKNOWN = "unknown"


class FileLeak(NamedTuple):
    """An orphaned file. `path` is relative to the data directory. A file that is not `removable` may hold
    records, so a person must decide about it.
    """

    kind: LeakKind
    path: str
    size_bytes: int
    is_directory: bool
    removable: bool


class OpenPartition(NamedTuple):
    """The facts that an open log knows about its files."""

    base_offsets: Collection[int]
    log_end_offset: int
    recovery_point: int


def leaks_of_directory(
    entries: Iterable[FileEntry],
    *,
    other_names: Collection[str],
    is_partition: Callable[[str, int], bool],
    waits: Callable[[str], bool],
    before_ms: int,
) -> Iterator[FileLeak]:
    """Yield the leaks in the data directory itself.

    `other_names` are files that the log does not write. `waits` tells which paths are to be deleted.
    """
    for entry in entries:
        name = entry.name
        if name in KNOWN_NAMES or name in other_names or name == OF_A_FILE_SYSTEM:
            continue
        if entry.modified_ms > before_ms or waits(name):
            continue
        parsed = parse_partition_directory(name) if entry.is_directory else None
        kind, removable = LeakKind.UNKNOWN, not entry.is_directory
        if entry.is_directory and name.endswith(DELETE_SUFFIX):
            kind, removable = LeakKind.DELETED, True
        elif parsed is not None:
            if is_partition(*parsed):
                continue
            kind, removable = LeakKind.PARTITION, True
        elif not entry.is_directory:
            kind = _kind_of_stray(name)
            removable = kind is not LeakKind.SEGMENT
        yield FileLeak(kind, name, entry.size_bytes, entry.is_directory, removable)


def rename_for_deletion(storage: Storage, path: str) -> str:
    """Rename a file to `*.deleted`, to spare a later one of its name. Return the path. Raises OSError."""
    storage.rename(path, path + DELETED_SUFFIX)
    return path + DELETED_SUFFIX


def _kind_of_stray(name: str) -> LeakKind:
    if name.endswith(_TEMPORARY):
        return LeakKind.TEMPORARY
    if name.endswith(DELETED_SUFFIX):
        return LeakKind.DELETED
    parsed = parse_offset_name(name)
    is_of_segment = parsed is not None and parsed[1] in {*SEGMENT_SUFFIXES, *_SNAPSHOTS}
    return LeakKind.SEGMENT if is_of_segment else LeakKind.UNKNOWN


def leaks_of_partition(
    directory: str,
    entries: Collection[FileEntry],
    *,
    opened: OpenPartition | None,
    waits: Callable[[str], bool],
    before_ms: int,
) -> Iterator[FileLeak]:
    """Yield the leaks in a partition's directory; `opened` is None if the log is not open.

    During a swap of compaction only temporary files count. While a cleaning runs, its files do not count.
    """
    names = {entry.name for entry in entries}
    is_cleaning = any(
        entry.name.endswith(CLEANED_SUFFIX) and entry.modified_ms > before_ms for entry in entries
    )
    is_swapping = any(name.endswith(SWAP_SUFFIX) for name in names)
    stale_snapshots = _stale_snapshots(names, opened)
    for entry in entries:
        path = f"{directory}/{entry.name}"
        if entry.name in SIDE_FILES or entry.modified_ms > before_ms or waits(path):
            continue
        if is_cleaning and entry.name.endswith(CLEANED_SUFFIX):
            continue
        if is_swapping and not entry.name.endswith((TEMPORARY_SUFFIX, SWAP_SUFFIX)):
            continue
        kind = LeakKind.UNKNOWN
        parsed = parse_offset_name(entry.name)
        if entry.is_directory:
            yield FileLeak(kind, path, 0, is_directory=True, removable=False)
            continue
        if entry.name.endswith(_TEMPORARY):
            kind = LeakKind.TEMPORARY
        elif entry.name.endswith(DELETED_SUFFIX):
            kind = LeakKind.DELETED
        elif parsed is not None and parsed[1] in _SNAPSHOTS:
            if entry.name not in stale_snapshots:
                continue
            kind = LeakKind.SNAPSHOT
        elif parsed is not None and parsed[1] in SEGMENT_SUFFIXES:
            has_log = f"{parsed[0]:020d}{LOG_SUFFIX}" in names
            is_known = has_log if opened is None else parsed[0] in opened.base_offsets
            if is_known:
                continue
            kind = LeakKind.SEGMENT if has_log else LeakKind.INDEX
        # Never remove records without a person's decision.
        removable = kind is not LeakKind.SEGMENT and not entry.name.endswith(SWAP_SUFFIX)
        yield FileLeak(kind, path, entry.size_bytes, is_directory=False, removable=removable)


def _stale_snapshots(names: Iterable[str], opened: OpenPartition | None) -> set[str]:
    """Return snapshots beyond the log end offset, and old ones that the next snapshot would delete too."""
    if opened is None:
        return set()
    parsed = {name: found[0] for name in names if (found := parse_offset_name(name)) is not None}
    offsets = {name: offset for name, offset in parsed.items() if name.endswith(SNAPSHOT_SUFFIX)}
    names_of_producers = sorted(name for name in parsed if name.endswith(NAMES_SUFFIX))
    beyond = {
        name
        for name, offset in parsed.items()
        if name.endswith(tuple(_SNAPSHOTS)) and offset > opened.log_end_offset
    }
    durable = sorted(
        (name for name, offset in offsets.items() if offset <= opened.recovery_point), key=offsets.__getitem__
    )
    first = min(opened.base_offsets, default=0)
    return (
        beyond
        | {name for name in durable[:-KEPT_SNAPSHOTS] if offsets[name] < first}
        | set(names_of_producers[:-KEPT_NAMES])
    )
