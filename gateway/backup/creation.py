"""Copies staged files into a new backup, and shares with the backup before what has not changed since."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from seqgate.gateway.backup.repository import (
    DATA,
    NAME,
    RESERVE_BYTES,
    BackupError,
    BackupManifest,
    CopiedFile,
    Repository,
    encode,
    shares,
)
from seqgate.log import LocalDurability, Storage
from seqgate.log.staging import META, FileEntry, Flush, Staged, copy_file, data_path, read_properties

if TYPE_CHECKING:
    from collections.abc import Iterator

    from seqgate.gateway.backup.pace import Pace


class Created(NamedTuple):
    """A finished backup."""

    path: str
    manifest: BackupManifest
    removed: list[str]
    """The names of older backups that were removed."""


class _Wanted(NamedTuple):
    path: str
    size_bytes: int
    inode: int
    modified_ns: int
    known: CopiedFile | None
    """The same file in the backup before, if that has it."""
    may_shrink: bool
    """Whether a reopening of its partition may cut off bytes that were not durable, and that nobody was
    promised.
    """


def create(
    storage: Storage,
    data_dir: str,
    staged: Staged,
    repository: Repository,
    pace: Pace,
    *,
    release: str,
    is_full: bool = False,
    keep: int | None = None,
) -> Created:
    """Copy what is staged in a data directory; the caller holds the lock of the repository.

    With `is_full` nothing is shared with earlier backups; with `keep` only so many backups stay, this one
    included. A backup that fails is removed again. Raises BackupError, OSError, LogError.
    """
    source = data_path(data_dir)
    properties = read_properties(storage, f"{source}/{META}")
    header = BackupManifest(
        release=release,
        cluster_id=properties.get("cluster.id", ""),
        directory_id=properties.get("directory.id", ""),
        node_id=properties.get("node.id", ""),
        directory_version=properties.get("version", ""),
        taken_ms=staged.taken_ms,
        is_live=staged.is_live,
        partitions=staged.partitions,
        copied_bytes=0,
        files=[],
    )
    before = None if is_full else repository.newest_of(header)
    wanted = _wanted(storage, source, staged, None if before is None else before[1])
    _check_room(storage, repository.path, wanted)
    name = repository.name_for(staged.taken_ms)
    target = repository.begin(name)
    try:
        manifest = _copy(storage, source, target, wanted, None if before is None else before[0], pace, header)
        path = repository.complete(name)
    except BaseException:
        if storage.exists(target):
            storage.remove_tree(target)
        raise
    removed = [] if keep is None else repository.remove_oldest(keep, manifest)
    return Created(path, manifest, removed)


def _wanted(storage: Storage, source: str, staged: Staged, before: BackupManifest | None) -> list[_Wanted]:
    known = {} if before is None else {file.path: file for file in before.files}
    found = []
    for path, entry in _files(storage, source):
        size_bytes = staged.sizes.get(path, entry.size_bytes)
        facts = size_bytes, entry.inode, entry.modified_ns
        same = known.get(path)
        if same is not None and (same.size_bytes, same.inode, same.modified_ns) != facts:
            same = None
        found.append(_Wanted(path, *facts, same, path in staged.sizes))
    return found


def _files(storage: Storage, source: str) -> Iterator[tuple[str, FileEntry]]:
    """Yield the files of the data directory and of its partitions, by their paths."""
    for entry in sorted(storage.entries(source)):
        if not entry.is_directory:
            yield entry.name, entry
            continue
        for file in sorted(storage.entries(f"{source}/{entry.name}")):
            yield f"{entry.name}/{file.name}", file


def _check_room(storage: Storage, path: str, wanted: list[_Wanted]) -> None:
    needed = sum(file.size_bytes for file in wanted if file.known is None)
    free = storage.free_bytes(path)
    if needed + RESERVE_BYTES > free:
        raise BackupError(
            f"{path} has {free:,} bytes free, and the backup needs {needed:,} and {RESERVE_BYTES:,} in "
            "reserve; remove older backups there, or name another directory"
        )


def _copy(
    storage: Storage,
    source: str,
    target: str,
    wanted: list[_Wanted],
    before: str | None,
    pace: Pace,
    header: BackupManifest,
) -> BackupManifest:
    data = f"{target}/{DATA}"
    flush = Flush(storage, target, len(wanted))
    directories = {target: None, data: None}
    files: list[CopiedFile] = []
    copied: list[str] = []
    copied_bytes = 0
    for file in wanted:
        path = f"{data}/{file.path}"
        directory = path.rpartition("/")[0]
        if directory not in directories:
            storage.make_directory(directory)
            directories[directory] = None
        if file.known is not None and shares(storage, f"{before}/{DATA}", file.known, path):
            files.append(file.known)
            continue
        content = copy_file(storage, f"{source}/{file.path}", path, file.size_bytes, pace.spend)
        if content.size_bytes < file.size_bytes and not file.may_shrink:
            raise BackupError(
                f"{file.path} became shorter while it was copied: the disk or another program changed it"
            )
        copied.append(path)
        copied_bytes += content.size_bytes
        files.append(CopiedFile(file.path, *content, file.inode, file.modified_ns))
    flush.run(copied, list(directories))
    manifest = msgspec.structs.replace(header, copied_bytes=copied_bytes, files=files)
    LocalDurability(storage).replace(f"{target}/{NAME}", encode(manifest))
    return manifest
