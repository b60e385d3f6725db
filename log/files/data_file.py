"""Data files by name, places in them, and the exception of a read that would wait for the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

CLOSED: Final = -1
NEVER: Final = 1 << 63
JUST_WRITTEN_BYTES: Final = 32 << 20
"""The last 32 MiB written, to all files together, are assumed to be in the page cache."""


class DataFile:
    """A data file by name. `Storage` opens and closes its descriptor as needed, unless `pins` is above 0.

    `readers` counts the readers that will read more of the file later. `outlives_name` is True while the
    retired file stays open for these readers.
    """

    __slots__ = (
        "closing",
        "descriptor",
        "failed",
        "outlives_name",
        "path",
        "pins",
        "readers",
        "recently_used",
        "retired",
        "written_after",
        "written_from",
    )

    def __init__(self, path: str) -> None:
        """Take the path, without opening the file."""
        self.path = path
        self.descriptor = CLOSED
        self.pins = 0
        self.recently_used = False
        self.closing = False
        self.failed = False
        self.retired = False
        self.readers = 0
        self.outlives_name = False
        self.written_from = NEVER
        """The position from which on this process has recently written the file."""
        self.written_after = -JUST_WRITTEN_BYTES
        """The bytes written to all files before that write."""


class Place(NamedTuple):
    """A range of bytes in a file. A size of 0 stands for the whole file."""

    path: str
    position: int
    size_bytes: int


class NotCached(Exception):
    """Reading these places would wait for the disk. This is no OSError, because nothing is wrong with the file."""

    def __init__(self, places: Sequence[Place]) -> None:
        """Take the places that must be read into the page cache first."""
        super().__init__(places)
        self.places = places
