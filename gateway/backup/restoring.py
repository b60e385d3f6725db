"""Copies a backup into an empty data directory.

`meta.properties` comes last, after everything else is durable, and after `prepare` has made the directory ready. Without that file no
gateway starts on the directory, so an interrupted restore can't be taken for a whole one.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from gateway.backup.errors import BackupError
from gateway.backup.repository import DATA
from log import LocalDurability
from log.copying import Flush, copy_file, empty
from log.staging import META

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.backup.manifest import CopiedFile, Manifest
    from gateway.backup.pace import Pace
    from log import Storage

RESERVE_BYTES: Final = 64 << 20
"""Bytes that a restore leaves free, so that the gateway takes records at once."""


def restore(
    storage: Storage,
    backup: str,
    manifest: Manifest,
    data_dir: str,
    pace: Pace,
    prepare: Callable[[], None],
) -> None:
    """Copy all files of a backup, and compare their checksums. `prepare` runs before the directory becomes a data directory.

    Removes everything again when it fails. Raises BackupError, OSError, LogError, and what `prepare` raises.
    """
    changed = storage.make_directories(data_dir)
    if storage.some_names(data_dir, 1):
        raise BackupError(f"{data_dir} is not empty; restore into a new or empty directory")
    free = storage.free_bytes(data_dir)
    if manifest.size_bytes + RESERVE_BYTES > free:
        raise BackupError(
            f"{data_dir} has {free:,} bytes free, and the backup needs {manifest.size_bytes:,} and {RESERVE_BYTES:,} in reserve"
        )
    try:
        _copy(storage, f"{backup}/{DATA}", manifest, data_dir, changed, pace, prepare)
    except BaseException:
        with suppress(OSError):
            empty(storage, data_dir)
        raise


def _copy(
    storage: Storage,
    source: str,
    manifest: Manifest,
    data_dir: str,
    changed: list[str],
    pace: Pace,
    prepare: Callable[[], None],
) -> None:
    flush = Flush(storage, data_dir, len(manifest.files))
    directories = {data_dir: None}
    last: CopiedFile | None = None
    copied: list[str] = []
    for file in manifest.files:
        if file.path == META:
            last = file
            continue
        path = f"{data_dir}/{file.path}"
        directory = path.rpartition("/")[0]
        if directory not in directories:
            storage.make_directory(directory)
            directories[directory] = None
        _copy_checked(storage, source, file, path, pace)
        copied.append(path)
    if last is None:
        raise BackupError(f"the backup has no {META}")
    flush.run(copied, [*changed, *directories])
    prepare()
    temporary = f"{data_dir}/{META}.tmp"
    _copy_checked(storage, source, last, temporary, pace)
    content = storage.read_file(temporary)
    storage.delete(temporary)
    LocalDurability(storage).replace(f"{data_dir}/{META}", content)


def _copy_checked(storage: Storage, source: str, file: CopiedFile, target: str, pace: Pace) -> None:
    origin = f"{source}/{file.path}"
    try:
        found = copy_file(storage, origin, target, file.size_bytes, pace.spend)
    except FileNotFoundError:
        raise BackupError(f"{origin} is missing: the backup is damaged, so nothing is restored") from None
    if found.sha256 != file.sha256:
        raise BackupError(
            f"{origin} has other bytes than were copied: the backup is damaged, so nothing is restored. Use another backup; "
            "`seqgate backup verify` lists all that is damaged"
        )
