"""Copies staged files, or the objects of a bucket, into a new backup, and shares with the backup before what
has not changed since.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, NamedTuple

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
)
from seqgate.log import LocalDurability, Storage
from seqgate.log.staging import META, FileEntry, Flush, Staged, copy_file, data_path, read_properties

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from seqgate.gateway.backup.pace import Pace


class Created(NamedTuple):
    """A finished backup."""

    path: str
    manifest: BackupManifest
    removed: list[str]
    """The names of older backups that were removed."""


class WantedFile(NamedTuple):
    """A file of the data directory, as the backup must have it."""

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


class NewBackup:
    """A backup that is being made. Its methods wait for the disk; call them one after the other. Raises
    OSError.
    """

    def __init__(
        self,
        repository: Repository,
        header: BackupManifest,
        pace: Pace,
        before: tuple[str, BackupManifest] | None,
        most: int,
    ) -> None:
        """Take the header of the manifest, whose `taken_ms` names the backup, the backup before with its
        path, and the highest number of files.
        """
        self._storage = repository.storage
        self._repository = repository
        self._header = header
        self._pace = pace
        self._before = "" if before is None else f"{before[0]}/{DATA}"
        self._name = repository.name_for(header.taken_ms)
        self._target = repository.begin(self._name)
        self._data = f"{self._target}/{DATA}"
        self._flush = Flush(self._storage, self._target, most)
        self._directories = {self._target: None, self._data: None}
        self._files: dict[str, CopiedFile] = {}
        self._copied: dict[str, int] = {}
        """The bytes of the files that were copied, by path."""

    def copy(self, source: str, file: WantedFile) -> None:
        """Share a file with the backup before, or copy it. Raises BackupError, LogError also."""
        if file.known is not None and self._shares(file.known):
            return
        path = self._path(file.path)
        spend = self._pace.spend
        content = copy_file(self._storage, f"{source}/{file.path}", path, file.size_bytes, spend)
        if content.size_bytes < file.size_bytes and not file.may_shrink:
            raise BackupError(
                f"{file.path} became shorter while it was copied: the disk or another program changed it"
            )
        self._add(CopiedFile(file.path, *content, file.inode, file.modified_ns))

    def _add(self, file: CopiedFile) -> None:
        self._copied[file.path] = file.size_bytes
        self._files[file.path] = file

    def _shares(self, known: CopiedFile) -> bool:
        """Link a file of the backup before; return False where that is not possible, and it is copied."""
        shared, path = f"{self._before}/{known.path}", self._path(known.path)
        try:
            if self._storage.size_bytes(shared) != known.size_bytes:
                return False
            self._storage.link(shared, path)
        except OSError:
            # A file that somebody removed, and a file system without links or with too many of one file.
            return False
        self._files[known.path] = known
        return True

    def _path(self, key: str) -> str:
        """Return the path of a file in the backup, whose directories are made."""
        directory = self._data
        for name in key.split("/")[:-1]:
            directory = f"{directory}/{name}"
            if directory not in self._directories:
                self._storage.make_directory(directory)
                self._directories[directory] = None
        return f"{self._data}/{key}"

    def finish(self, keep: int | None, **facts: int) -> Created:
        """Complete the backup, and remove older ones if only `keep` are to stay; `facts` are further fields
        of the manifest.
        """
        self._flush.run([f"{self._data}/{path}" for path in self._copied], list(self._directories))
        copied_bytes, files = sum(self._copied.values()), list(self._files.values())
        manifest = msgspec.structs.replace(self._header, copied_bytes=copied_bytes, files=files, **facts)
        LocalDurability(self._storage).replace(f"{self._target}/{NAME}", encode(manifest))
        path = self._repository.complete(self._name)
        removed = [] if keep is None else self._repository.remove_oldest(keep, manifest)
        return Created(path, manifest, removed)

    def discard(self) -> None:
        """Remove a backup that can't be finished."""
        if self._storage.exists(self._target):
            self._storage.remove_tree(self._target)


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
    backup = NewBackup(repository, header, pace, before, len(wanted))
    try:
        for file in wanted:
            backup.copy(source, file)
        return backup.finish(keep)
    except BaseException:
        backup.discard()
        raise


def _wanted(storage: Storage, source: str, staged: Staged, before: BackupManifest | None) -> list[WantedFile]:
    known = {} if before is None else {file.path: file for file in before.files}
    found = []
    for path, entry in _files(storage, source):
        size_bytes = staged.sizes.get(path, entry.size_bytes)
        facts = size_bytes, entry.inode, entry.modified_ns
        same = known.get(path)
        if same is not None and (same.size_bytes, same.inode, same.modified_ns) != facts:
            same = None
        found.append(WantedFile(path, *facts, same, path in staged.sizes))
    return found


def _files(storage: Storage, source: str) -> Iterator[tuple[str, FileEntry]]:
    """Yield the files of the data directory and of its partitions, by their paths."""
    for entry in sorted(storage.entries(source)):
        if not entry.is_directory:
            yield entry.name, entry
            continue
        for file in sorted(storage.entries(f"{source}/{entry.name}")):
            yield f"{entry.name}/{file.name}", file


def _check_room(storage: Storage, path: str, wanted: list[WantedFile]) -> None:
    needed = sum(file.size_bytes for file in wanted if file.known is None)
    free = storage.free_bytes(path)
    if needed + RESERVE_BYTES > free:
        raise BackupError(
            f"{path} has {free:,} bytes free, and the backup needs {needed:,} and {RESERVE_BYTES:,} in "
            "reserve; remove older backups there, or name another directory"
        )


# Writes the objects of a bucket as files of a new backup, each under its key. Parts have names that no other
# object ever has, so the copies of the backup before are shared. All other objects are small, or change, and
# are copied each time.

_MANY: Final = 1 << 30
"""More files than are worth a flush each."""


class BackedUpObjects(NewBackup):
    """The objects of a new backup."""

    def __init__(
        self, repository: Repository, header: BackupManifest, pace: Pace, *, is_full: bool = False
    ) -> None:
        """Take the header of the manifest. With `is_full` nothing is shared."""
        before = None if is_full else repository.newest_of(header)
        super().__init__(repository, header, pace, before, _MANY)
        self._known = {} if before is None else {file.path: file for file in before[1].files}

    def has(self, key: str) -> bool:
        """Return whether the backup has an object that never changes, or shares it with the one before."""
        return key in self._files or (key in self._known and self._shares(self._known[key]))

    def knows(self, key: str) -> bool:
        """Return whether the backup before has the object."""
        return key in self._known

    def write(self, key: str, content: bytes) -> None:
        """Write an object, in place of one that was written before under the key."""
        path = self._path(key)
        if key in self._files:
            self._storage.delete(path)
        self._storage.write_file(path, content)
        self._add(CopiedFile(key, len(content), hashlib.sha256(content).hexdigest(), 0, 0))
        self._pace.spend(len(content))

    def finish_with(self, keys: Collection[str], partitions: int, keep: int | None) -> Created:
        """Complete the backup with these objects, and without others."""
        for key in self._files.keys() - keys:
            self._storage.delete(f"{self._data}/{key}")
            self._copied.pop(key, None)
        self._files = {key: self._files[key] for key in sorted(keys)}
        return self.finish(keep, partitions=partitions)
