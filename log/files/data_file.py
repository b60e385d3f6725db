"""Data files by name, places in them, and what is raised where reading one would mean to wait for the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

CLOSED: Final = -1
NEVER: Final = 1 << 63
JUST_WRITTEN_BYTES: Final = 32 << 20
"""What was written so little before, in bytes of all files, is cached, and readers of the tail need not ask."""


class DataFile:
    """A data file by name; its descriptor comes and goes. `pins` counts who needs the descriptor to stay.

    `readers` counts those who will read on later, and `outlives_name` tells that it stays open for them alone.
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
        """Name a file; nothing is opened yet."""
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
        """From here on this process wrote it lately, after `written_after` bytes of all files."""
        self.written_after = -JUST_WRITTEN_BYTES


class Place(NamedTuple):
    """Bytes of a file; a size of 0 stands for all of it."""

    path: str
    position: int
    size_bytes: int


class NotCached(Exception):
    """Reading these places would mean to wait for the disk. No OSError: nothing is wrong with the file."""

    def __init__(self, places: Sequence[Place]) -> None:
        """Name the places."""
        super().__init__(places)
        self.places = places
