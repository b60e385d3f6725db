"""Which versions of its files this release reads, and what it says of one that a later release wrote.

`meta.properties` has the version of the directory as a whole. A release that changes a format, or writes a new kind of file
or record, raises DIRECTORY_VERSION; so an earlier release finds out before it has changed anything, however few of the
files it would have looked at. The versions in single files tell of one that was put there by hand.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

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

META: Final = "meta.properties"
OLDEST_DIRECTORY_VERSION: Final = 1
DIRECTORY_VERSION: Final = 4
"""1 is that of all releases before it was raised for the first time; the formats of 2 are the same. 3 has producer names,
4 has `damaged-batches`."""


def read_properties(storage: Storage, path: str) -> dict[str, str]:
    """What `meta.properties` at `path` says. Raises IncompatibleFormat unless this release reads its version, OSError."""
    try:
        text = storage.read_file(path).decode()
    except UnicodeDecodeError as error:
        raise IncompatibleFormat(f"{path} is damaged: {error}.") from error
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and line[:1] != "#")
    version = fields.get("version", "")
    is_number = version.isascii() and version.isdecimal()
    if not is_number or not OLDEST_DIRECTORY_VERSION <= int(version) <= DIRECTORY_VERSION:
        raise IncompatibleFormat(
            f"{path} has version {version or 'nothing'}; this program reads versions "
            f"{OLDEST_DIRECTORY_VERSION} to {DIRECTORY_VERSION}."
        )
    return fields


def check_partition(storage: Storage, directory: str, names: Collection[str]) -> None:
    """Whether the files of a partition, `names`, are of versions that this release reads; changes nothing.

    What is damaged passes, and snapshots that can't be read: they have rules of their own. Raises IncompatibleFormat, OSError.
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
    """A later release has written the newest snapshot, whoever wrote the others."""
    if not offsets:
        return
    path = f"{directory}/{offset_name(offsets[-1], suffix)}"
    version = None
    with contextlib.suppress(OSError):  # whoever wants it decides what goes without it
        version = newer_version(storage.read_file(path))
    if version is not None:
        raise IncompatibleFormat(f"{path} has version {version}; this program reads versions {read}.")
