"""The share of a data directory that one process has: all of it, or the partitions of one of several workers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class DirectoryShare(NamedTuple):
    """The partitions that a process opens, and the directory of its own files: its lock, checkpoints, clean stop and damage.

    Only the process that `takes_leftovers` deletes what an earlier process left to be deleted.
    """

    files: Path
    owns: Callable[[str, int], bool]
    takes_leftovers: bool


def whole(path: Path) -> DirectoryShare:
    """Return the share of the one process that has the whole data directory."""
    return DirectoryShare(path, lambda _topic, _partition: True, takes_leftovers=True)
