"""The directory that has the backups.

    20260131T134500Z/             a complete backup, named after the moment (UTC) whose state it has
        manifest.json             see `gateway.backup.manifest`
        data/                     the files of the data directory
    20260131T140000Z.partial/     a backup that is being made, or that was never finished
    .lock                         locked by the command that makes or removes backups

A backup gets its final name only when all its files are durable. Backups share the copies of unchanged files by hard links: each is
whole, and any of them may be deleted.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final

from gateway.backup.errors import BackupError
from gateway.backup.manifest import Manifest, read
from log import DirectoryLocked, LocalDurability, Storage
from log.copying import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

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

    def create(self) -> None:
        """Create the directory if it is missing, and take its lock. Raises BackupError."""
        changed = self.storage.make_directories(self.path)
        LocalDurability(self.storage).sync(directories=changed)
        try:
            self.storage.lock(f"{self.path}/{_LOCK}")
        except DirectoryLocked:
            raise BackupError(f"another command makes a backup in {self.path}; wait until it ends") from None

    def close(self) -> None:
        """Release the lock."""
        self.storage.unlock(f"{self.path}/{_LOCK}")

    def names(self) -> list[str]:
        """Return the names of the complete backups, the oldest first."""
        return sorted(name for name in self._directories() if _is_moment(name))

    def partial(self) -> list[str]:
        """Return the names of backups that were never finished, or are being made."""
        return sorted(name for name in self._directories() if name.endswith(PARTIAL))

    def newest_of(self, manifest: Manifest) -> tuple[str, Manifest] | None:
        """Return the newest complete backup of the same data directory, with its path; None without one.

        A damaged manifest is passed over: then there is less to share.
        """
        for name in reversed(self.names()):
            path = f"{self.path}/{name}"
            try:
                found = read(self.storage, path)
            except BackupError:
                continue
            if found.is_of_same_directory(manifest):
                return path, found
        return None

    def name_for(self, taken_ms: int) -> str:
        """Return a name that no backup has: that of the moment, or of the first free second after it."""
        moment = dt.datetime.fromtimestamp(taken_ms // 1000, tz=dt.UTC)
        while self.storage.exists(f"{self.path}/{moment.strftime(_FORMAT)}"):
            moment += dt.timedelta(seconds=1)
        return moment.strftime(_FORMAT)

    def begin(self, name: str) -> str:
        """Remove what was never finished, and return the empty directory of a new backup."""
        for other in self.partial():
            remove_tree(self.storage, f"{self.path}/{other}")
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

    def remove_oldest(self, keep: int, manifest: Manifest) -> list[str]:
        """Delete all backups of the same data directory but the `keep` newest; return their names. Damaged ones stay."""
        own = []
        for name in self.names():
            try:
                if read(self.storage, f"{self.path}/{name}").is_of_same_directory(manifest):
                    own.append(name)
            except BackupError:
                continue
        removed = own[:-keep]
        for name in removed:
            # A name that says so keeps a half deleted backup from being taken for a whole one.
            self.storage.rename(f"{self.path}/{name}", f"{self.path}/{name}{PARTIAL}")
            remove_tree(self.storage, f"{self.path}/{name}{PARTIAL}")
        return removed

    def _directories(self) -> Iterator[str]:
        return (entry.name for entry in self.storage.entries(self.path) if entry.is_directory)


def _is_moment(name: str) -> bool:
    try:
        dt.datetime.strptime(name, _FORMAT).replace(tzinfo=dt.UTC)
    except ValueError:
        return False
    return True
