"""Refuses the files of a partition that a later release wrote, before the files are read or changed."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from log.errors import IncompatibleFormat
from log.files.checkpoints import check_checkpoint
from log.files.file_names import (
    DEDUPLICATION_START,
    DELAYED_RECORDS,
    LEADER_EPOCHS,
    LOG_START_OFFSET,
    NAMES_SUFFIX,
    SNAPSHOT_SUFFIX,
    offset_name,
    offsets_of,
)
from log.state.delayed_snapshots import check_delayed_snapshot
from seq_validator import NEWEST_SNAPSHOT_VERSION, OLDEST_SNAPSHOT_VERSION, newer_snapshot_version
from seq_validator.names import NAMES_VERSION, newer_names_version

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from log.files.storage import Storage


def check_partition(storage: Storage, directory: str, names: Collection[str]) -> None:
    """Check that this release reads the versions of a partition's files, `names`, without changing any.

    Damaged files and unreadable snapshots pass, as the code that loads them handles both. Raises IncompatibleFormat, OSError.
    """
    for name in (LEADER_EPOCHS, LOG_START_OFFSET, DEDUPLICATION_START):
        if name in names:
            check_checkpoint(storage.read_file(f"{directory}/{name}"), f"{directory}/{name}")
    if DELAYED_RECORDS in names:
        path = f"{directory}/{DELAYED_RECORDS}"
        check_delayed_snapshot(storage.read_file(path), path)
    for suffix, newer_version, read in (
        (SNAPSHOT_SUFFIX, newer_snapshot_version, f"{OLDEST_SNAPSHOT_VERSION} to {NEWEST_SNAPSHOT_VERSION}"),
        (NAMES_SUFFIX, newer_names_version, f"up to {NAMES_VERSION}"),
    ):
        _check_newest(storage, directory, offsets_of(names, suffix), suffix, newer_version, read)


def _check_newest(
    storage: Storage,
    directory: str,
    offsets: Sequence[int],
    suffix: str,
    newer_version: Callable[[bytes], int | None],
    read: str,
) -> None:
    """Check the newest snapshot only: if a later release wrote any snapshot, it wrote the newest one."""
    if not offsets:
        return
    path = f"{directory}/{offset_name(offsets[-1], suffix)}"
    version = None
    with contextlib.suppress(OSError):  # the code that restores the snapshot handles an unreadable file
        version = newer_version(storage.read_file(path))
    if version is not None:
        raise IncompatibleFormat(f"{path} has version {version}; this program reads versions {read}.")
