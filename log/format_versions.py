"""Which versions of its files this release reads, and what it says of one that a later release wrote.

`meta.properties` has the version of the directory as a whole. A release that changes a format, or writes a new kind of file
or record, raises DIRECTORY_VERSION; so an earlier release finds out before it has changed anything, however few of the
files it would have looked at. The versions in single files tell of one that was put there by hand.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from log.checkpoints import check_checkpoint
from log.delayed_snapshots import check_delayed_snapshot
from log.errors import IncompatibleFormat
from log.names import (
    DELAYED_RECORDS,
    LEADER_EPOCHS,
    LOG_START_OFFSET,
    SNAPSHOT_SUFFIX,
    offset_name,
)
from log.producer_snapshots import snapshot_offsets
from seq_validator import NEWEST_SNAPSHOT_VERSION, OLDEST_SNAPSHOT_VERSION, newer_snapshot_version

if TYPE_CHECKING:
    from collections.abc import Collection

    from log.storage import Storage

META: Final = "meta.properties"
OLDEST_DIRECTORY_VERSION: Final = 1
DIRECTORY_VERSION: Final = 2
"""1 is that of all releases before it was raised for the first time; the formats of 2 are the same."""


def read_properties(storage: Storage, path: str) -> dict[str, str]:
    """What `meta.properties` at `path` says. Raises IncompatibleFormat unless this release reads its version, OSError."""
    try:
        text = storage.read_file(path).decode()
    except UnicodeDecodeError as error:
        raise IncompatibleFormat(f"{path} is damaged: {error}.") from error
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and line[:1] != "#")
    version = fields.get("version", "")
    if not version.isdecimal() or not OLDEST_DIRECTORY_VERSION <= int(version) <= DIRECTORY_VERSION:
        raise IncompatibleFormat(
            f"{path} has version {version or 'nothing'}; this program reads versions "
            f"{OLDEST_DIRECTORY_VERSION} to {DIRECTORY_VERSION}."
        )
    return fields


def check_partition(storage: Storage, directory: str, names: Collection[str]) -> None:
    """Whether the files of a partition, `names`, are of versions that this release reads; changes nothing.

    What is damaged passes, and snapshots that can't be read: they have rules of their own. Raises IncompatibleFormat, OSError.
    """
    for name in (LEADER_EPOCHS, LOG_START_OFFSET):
        if name in names:
            check_checkpoint(storage.read_file(f"{directory}/{name}"), f"{directory}/{name}")
    if DELAYED_RECORDS in names:
        path = f"{directory}/{DELAYED_RECORDS}"
        check_delayed_snapshot(storage.read_file(path), path)
    # a later release has written the newest one, whoever wrote the others
    newest = max(snapshot_offsets(names), default=None)
    if newest is not None:
        path = f"{directory}/{offset_name(newest, SNAPSHOT_SUFFIX)}"
        version = None
        with contextlib.suppress(OSError):  # whoever wants it decides what goes without it
            version = newer_snapshot_version(storage.read_file(path))
        if version is not None:
            raise IncompatibleFormat(
                f"{path} has version {version}; this program reads versions "
                f"{OLDEST_SNAPSHOT_VERSION} to {NEWEST_SNAPSHOT_VERSION}."
            )
