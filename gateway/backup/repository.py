"""The directory that has the backups.

    20260131T134500Z/             a complete backup, named after the moment (UTC) whose state it has
        manifest.json             which directory, when, and each file with its size and checksum
        data/                     the files of the data directory, or the objects of a bucket by their keys
    20260131T140000Z.partial/     a backup that is being made, or that was never finished
    .lock                         locked by the command that makes or removes backups

A backup gets its final name only when all its files are durable. Backups share the copies of unchanged files
by hard links: each is whole, and any of them may be deleted.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from seqgate.log import DirectoryLocked, LocalDurability, Storage
from seqgate.log.staging import Flush, copy_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from seqgate.gateway.backup.pace import Pace


DATA: Final = "data"
PARTIAL: Final = ".partial"
_LOCK: Final = ".lock"
_FORMAT: Final = "%Y%m%dT%H%M%SZ"


class Repository:
    """The backups in one directory. Methods raise OSError."""

    def __init__(self, storage: Storage, path: str) -> None:
        """Take the directory, without a look at it."""
        self.storage = storage
        self.path = path

    def create_and_lock(self) -> None:
        """Create the directory if it is missing, and take its lock. Raises BackupError."""
        changed = self.storage.make_directories(self.path)
        LocalDurability(self.storage).sync(directories=changed)
        try:
            self.storage.lock(f"{self.path}/{_LOCK}")
        except DirectoryLocked:
            raise BackupError(f"another command makes a backup in {self.path}; wait until it ends") from None

    def unlock(self) -> None:
        """Release the lock."""
        self.storage.unlock(f"{self.path}/{_LOCK}")

    def complete_backups(self) -> list[str]:
        """Return the names of the complete backups, the oldest first."""
        return sorted(name for name in self._directories() if _is_moment(name))

    def unfinished_backups(self) -> list[str]:
        """Return the names of backups that were never finished, or are being made."""
        return sorted(name for name in self._directories() if name.endswith(PARTIAL))

    def manifests(self) -> Iterator[tuple[str, BackupManifest | BackupError]]:
        """Yield the name of each backup, the oldest first, with its manifest, or with what makes it unusable;
        reads nothing but the manifests. Raises OSError.
        """
        for name in sorted([*self.complete_backups(), *self.unfinished_backups()]):
            try:
                yield name, manifest_of_complete(self.storage, f"{self.path}/{name}")
            except BackupError as error:
                yield name, error

    def newest_of(self, manifest: BackupManifest) -> tuple[str, BackupManifest] | None:
        """Return the newest complete backup of the same data directory, with its path; None without one.

        A damaged manifest is passed over: then there is less to share.
        """
        for name in reversed(self.complete_backups()):
            path = f"{self.path}/{name}"
            try:
                found = read(self.storage, path)
            except BackupError:
                continue
            if found.is_of_same_directory(manifest):
                return path, found
        return None

    def name_for(self, taken_ms: int) -> str:
        """Return a name behind those of all backups: that of the moment, or of the second after the last name
        if the clock was set back. The order of the names is that in which the backups were made.
        """
        moment = dt.datetime.fromtimestamp(taken_ms // 1000, tz=dt.UTC)
        for name in self.complete_backups()[-1:]:
            last = dt.datetime.strptime(name, _FORMAT).replace(tzinfo=dt.UTC)
            moment = max(moment, last + dt.timedelta(seconds=1))
        return moment.strftime(_FORMAT)

    def begin(self, name: str) -> str:
        """Remove what was never finished, and return the empty directory of a new backup."""
        for other in self.unfinished_backups():
            self.storage.remove_tree(f"{self.path}/{other}")
        path = f"{self.path}/{name}{PARTIAL}"
        self.storage.make_directory(path)
        self.storage.make_directory(f"{path}/{DATA}")
        return path

    def complete(self, name: str) -> str:
        """Give a backup whose files are durable its final name, durably; return its path."""
        path = f"{self.path}/{name}"
        self.storage.rename(path + PARTIAL, path)
        LocalDurability(self.storage).sync(directories=[self.path])
        return path

    def remove_oldest_of_same_directory(self, keep: int, manifest: BackupManifest) -> list[str]:
        """Delete all backups of the same data directory but the `keep` newest; return their names. Damaged
        ones stay.
        """
        own = [
            name
            for name, found in self.manifests()
            if not isinstance(found, BackupError) and found.is_of_same_directory(manifest)
        ]
        removed = own[:-keep]
        for name in removed:
            # A durable name that says so keeps a half deleted backup from being taken for a whole one.
            self.storage.rename(f"{self.path}/{name}", f"{self.path}/{name}{PARTIAL}")
            LocalDurability(self.storage).sync(directories=[self.path])
            self.storage.remove_tree(f"{self.path}/{name}{PARTIAL}")
        return removed

    def _directories(self) -> Iterator[str]:
        return (entry.name for entry in self.storage.entries(self.path) if entry.is_directory)


def _is_moment(name: str) -> bool:
    try:
        dt.datetime.strptime(name, _FORMAT).replace(tzinfo=dt.UTC)
    except ValueError:
        return False
    return True


# Makes a backup.

RESERVE_BYTES: Final = 64 << 20
"""Bytes that a backup and a restore leave free, so that a restored gateway takes records at once."""


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

    def share_or_copy(self, source: str, file: WantedFile) -> None:
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
        removed = [] if keep is None else self._repository.remove_oldest_of_same_directory(keep, manifest)
        return Created(path, manifest, removed)

    def discard(self) -> None:
        """Remove a backup that can't be finished."""
        if self._storage.exists(self._target):
            self._storage.remove_tree(self._target)


# The manifest of a backup: which data directory it is of, when, and each file with its size and checksum.

NAME: Final = "manifest.json"
VERSION: Final = 1
BUCKET_VERSION: Final = 2
"""The version of the manifest of a bucket's backup, which earlier releases do not know."""
_DEPTH: Final = {VERSION: 2, BUCKET_VERSION: 5}
"""The most names in a path below `data`, by version."""


class CopiedFile(msgspec.Struct, frozen=True, array_like=True):
    """A file of a backup. The path is below `data`, the checksum is SHA-256 in hexadecimal.

    `inode` and `modified_ns` are those of the original: the next backup takes the same copy for a file that
    has not changed.
    """

    path: str
    size_bytes: int
    sha256: str
    inode: int
    modified_ns: int


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    """A backup. `taken_ms` is the moment whose state it has; `is_live` says that a gateway ran then."""

    version: int = VERSION
    release: str
    cluster_id: str
    directory_id: str
    node_id: str
    directory_version: str
    taken_ms: int
    is_live: bool
    partitions: int
    copied_bytes: int
    """The bytes that this backup copied; other files are links to those of the backup before."""
    files: list[CopiedFile]
    bucket: str | None = None
    """The address of the bucket whose objects these are; None for a data directory."""

    @property
    def size_bytes(self) -> int:
        """The bytes of all files."""
        return sum(file.size_bytes for file in self.files)

    def is_of_same_directory(self, other: BackupManifest) -> bool:
        """Return whether both are backups of one data directory."""
        return self.directory_id == other.directory_id != ""


class _Sealed(msgspec.Struct):
    sha256: str
    manifest: msgspec.Raw


class _Version(msgspec.Struct):
    version: int


def encode(manifest: BackupManifest) -> bytes:
    """Return the content of the file: the manifest, and the checksum of its bytes."""
    content = msgspec.json.encode(manifest)
    return msgspec.json.encode(_Sealed(hashlib.sha256(content).hexdigest(), msgspec.Raw(content)))


def manifest_of_complete(storage: Storage, backup: str) -> BackupManifest:
    """Return the manifest of a complete backup. Raises BackupError, OSError."""
    if backup.endswith(PARTIAL):
        raise BackupError(f"{backup} was never finished, or is being made now: use another backup")
    return read(storage, backup)


def read(storage: Storage, backup: str) -> BackupManifest:
    """Return the manifest of the backup in a directory. Raises BackupError, OSError."""
    path = f"{backup}/{NAME}"
    try:
        content = storage.read_file(path)
    except (FileNotFoundError, NotADirectoryError):
        raise BackupError(f"{backup} is no backup: it has no {NAME}") from None
    try:
        sealed = msgspec.json.decode(content, type=_Sealed)
        raw: Any = sealed.manifest
        if hashlib.sha256(raw).hexdigest() != sealed.sha256:
            raise BackupError(f"{path} is damaged: its checksum is wrong")
        version = msgspec.json.decode(raw, type=_Version).version
        if version not in _DEPTH:
            raise BackupError(
                f"{path} has version {version}; this release reads versions up to {BUCKET_VERSION}. Use the "
                "release that made the backup"
            )
        manifest = msgspec.json.decode(raw, type=BackupManifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BackupError(f"{path} is damaged: {error}") from error
    for file in manifest.files:
        if not _is_inside(file.path, _DEPTH[version]):
            raise BackupError(f"{path} names the file {file.path!r}, which is not in the data directory")
    return manifest


def _is_inside(path: str, depth: int) -> bool:
    """Return whether a path with at most `depth` names is that of a file below a directory."""
    parts = path.split("/")
    return len(parts) <= depth and not {"", ".", ".."} & set(parts) and "\0" not in path


# The errors of backups.


class BackupError(Exception):
    """A backup can't be made, read or restored; the text is a sentence for a person."""
