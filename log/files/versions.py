"""Checks that this release can read the versions of the files in a data directory.

`meta.properties` has the version of the directory as a whole. A release that changes a format, or writes a new kind of file
or record, raises DIRECTORY_VERSION. So an earlier release refuses the directory before changing anything in it. The versions in
single files reveal a newer file that somebody copied in by hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from log.errors import IncompatibleFormat

if TYPE_CHECKING:
    from log.files.storage import Storage

META: Final = "meta.properties"
OLDEST_DIRECTORY_VERSION: Final = 1
DIRECTORY_VERSION: Final = 4
"""The version that this release writes. Versions 1 and 2 have the same formats; 3 adds producer names, 4 `damaged-batches`."""
WORKERS_VERSION: Final = 5
"""The version while several workers have the directory: their checkpoints are where earlier releases do not look for them."""


def check_directory_version(storage: Storage, root: str) -> None:
    """Check that this release reads the data directory; one without `meta.properties` passes. Raises IncompatibleFormat, OSError."""
    path = f"{root}/{META}"
    if storage.exists(path):
        read_properties(storage, path)


def read_properties(storage: Storage, path: str) -> dict[str, str]:
    """Return the fields of `meta.properties` at `path`. Raises IncompatibleFormat for damage or an unknown version, OSError."""
    try:
        text = storage.read_file(path).decode()
    except UnicodeDecodeError as error:
        raise IncompatibleFormat(f"{path} is damaged: {error}.") from error
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and line[:1] != "#")
    version = fields.get("version", "")
    is_number = version.isascii() and version.isdecimal()
    if not is_number or not OLDEST_DIRECTORY_VERSION <= int(version) <= WORKERS_VERSION:
        raise IncompatibleFormat(
            f"{path} has {f'version {version}' if version else 'no version'}; this program reads versions "
            f"{OLDEST_DIRECTORY_VERSION} to {WORKERS_VERSION}."
        )
    return fields
