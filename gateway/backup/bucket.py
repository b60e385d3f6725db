"""Writes the objects of a bucket as files of a new backup, each under its key.

Parts have names that no other object ever has, so the copies of the backup before are shared by hard links.
All other objects are small, or change, and are copied each time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from seqgate.gateway.backup.creation import Created
from seqgate.gateway.backup.repository import (
    DATA,
    NAME,
    BackupManifest,
    CopiedFile,
    Repository,
    encode,
    shares,
)
from seqgate.log import LocalDurability
from seqgate.log.staging import Flush

if TYPE_CHECKING:
    from seqgate.gateway.backup.pace import Pace

_MANY: Final = 1 << 30
"""More files than are worth a flush each."""


class BackedUpObjects:
    """The objects of a new backup. Its methods wait for the disk; call them one after the other. Raises
    OSError.
    """

    def __init__(
        self, repository: Repository, header: BackupManifest, pace: Pace, *, is_full: bool = False
    ) -> None:
        """Take the header of the manifest; `taken_ms` names the backup. With `is_full` nothing is shared."""
        self._storage = repository.storage
        self._repository = repository
        self._header = header
        self._pace = pace
        found = None if is_full else repository.newest_of(header)
        self._before = "" if found is None else f"{found[0]}/{DATA}"
        self._known = {} if found is None else {file.path: file for file in found[1].files}
        self._name = repository.name_for(header.taken_ms)
        self._target = repository.begin(self._name)
        self._data = f"{self._target}/{DATA}"
        self._flush = Flush(self._storage, self._target, _MANY)
        self._directories = {self._target: None, self._data: None}
        self._files: dict[str, CopiedFile] = {}
        self._copied: dict[str, int] = {}
        """The bytes of the objects that were copied, by key."""

    def has(self, key: str) -> bool:
        """Return whether the backup has an object that never changes, or shares it with the one before."""
        return key in self._files or self._is_shared(key)

    def knows(self, key: str) -> bool:
        """Return whether the backup before has the object."""
        return key in self._known

    def write(self, key: str, content: bytes) -> None:
        """Write an object, in place of one that was written before under the key."""
        path = self._path(key)
        if key in self._files:
            self._storage.delete(path)
        self._storage.write_file(path, content)
        self._copied[key] = len(content)
        self._files[key] = CopiedFile(key, len(content), hashlib.sha256(content).hexdigest(), 0, 0)
        self._pace.spend(len(content))

    def finish(self, keys: Collection[str], partitions: int, keep: int | None) -> Created:
        """Complete the backup with these objects, and remove older ones if only `keep` are to stay."""
        for key in self._files.keys() - keys:
            self._storage.delete(f"{self._data}/{key}")
            self._copied.pop(key, None)
        self._flush.run([f"{self._data}/{key}" for key in self._copied], list(self._directories))
        manifest = msgspec.structs.replace(
            self._header,
            partitions=partitions,
            copied_bytes=sum(self._copied.values()),
            files=[self._files[key] for key in sorted(keys)],
        )
        LocalDurability(self._storage).replace(f"{self._target}/{NAME}", encode(manifest))
        path = self._repository.complete(self._name)
        removed = [] if keep is None else self._repository.remove_oldest(keep, manifest)
        return Created(path, manifest, removed)

    def discard(self) -> None:
        """Remove a backup that can't be finished."""
        if self._storage.exists(self._target):
            self._storage.remove_tree(self._target)

    def _is_shared(self, key: str) -> bool:
        """Link an object of the backup before; return False where that is not possible."""
        known = self._known.get(key)
        if known is None or not shares(self._storage, self._before, known, self._path(key)):
            return False
        self._files[key] = known
        return True

    def _path(self, key: str) -> str:
        for directory in _parents(f"{self._data}/{key}", self._data):
            if directory not in self._directories:
                self._storage.make_directory(directory)
                self._directories[directory] = None
        return f"{self._data}/{key}"


def _parents(path: str, root: str) -> Iterator[str]:
    """Yield the directories between a root and a path, the outer ones first."""
    names = path.removeprefix(f"{root}/").split("/")[:-1]
    for count in range(1, len(names) + 1):
        yield "/".join((root, *names[:count]))
