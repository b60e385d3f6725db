"""Which versions of its files this release reads, and what it says of one that a later release wrote.

`meta.properties` has the version of the directory as a whole. A release that changes a format, or writes a new kind of file
or record, raises DIRECTORY_VERSION; so an earlier release finds out before it has changed anything, however few of the
files it would have looked at. The versions in single files tell of one that was put there by hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from log.errors import IncompatibleFormat

if TYPE_CHECKING:
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
