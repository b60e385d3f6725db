"""Compares a backup with its manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gateway.backup.errors import BackupError
from gateway.backup.manifest import Manifest, read
from gateway.backup.repository import DATA, PARTIAL
from log.copying import digest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.backup.pace import Pace
    from log import Storage


class Damage(NamedTuple):
    """A file of a backup that is not as the manifest says; the path is below the data of the backup."""

    path: str
    reason: str


def open_backup(storage: Storage, backup: str) -> Manifest:
    """Return the manifest of a complete backup. Raises BackupError, OSError."""
    if backup.endswith(PARTIAL):
        raise BackupError(f"{backup} was never finished: use another backup")
    return read(storage, backup)


def damage_of(storage: Storage, backup: str, manifest: Manifest, pace: Pace) -> Iterator[Damage]:
    """Yield the files that are missing or have other bytes than the manifest says. Reads every byte. Raises OSError."""
    for file in manifest.files:
        path = f"{backup}/{DATA}/{file.path}"
        try:
            size_bytes = storage.size_bytes(path)
        except FileNotFoundError:
            yield Damage(file.path, "the file is missing")
            continue
        if size_bytes != file.size_bytes:
            yield Damage(file.path, f"the file has {size_bytes:,} bytes instead of {file.size_bytes:,}")
            continue
        try:
            found = digest(storage, path, file.size_bytes, pace.spend)
        except OSError as error:
            yield Damage(file.path, f"the file can't be read: {error}")
            continue
        if found.sha256 != file.sha256:
            yield Damage(file.path, "the bytes differ from those that were copied (SHA-256)")
