"""The share of a data directory that one process has: all of it, or the partitions of one of several workers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from log.files.checkpoints import CorruptCheckpoint, decode_partition_metadata
from log.files.file_names import PARTITION_METADATA

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable

    from log.files.storage import Storage


class DirectoryShare(NamedTuple):
    """The partitions that a process opens, and the directory of its own files: its lock, checkpoints, clean stop and damage.

    Only the process that `takes_leftovers` deletes what an earlier process left to be deleted.
    """

    files: Path
    owns: Callable[[str, int], bool]
    takes_leftovers: bool
    is_whole: bool = False

    def still_has(self, storage: Storage, directory: Path, topic_id: uuid.UUID | None) -> bool:
        """Return whether a partition's directory is still that of the log with this topic id. Raises OSError.

        A worker that learned first of the deletion, and of a newer topic of the name, has taken the directory away, and may have put
        that of the newer topic in its place.
        """
        if self.is_whole or topic_id is None:
            return True
        path = str(directory / PARTITION_METADATA)
        try:
            return decode_partition_metadata(storage.read_file(path), path) == topic_id
        except (FileNotFoundError, CorruptCheckpoint):
            return False  # nothing is there, or the other worker is about to write the file


def whole(path: Path) -> DirectoryShare:
    """Return the share of the one process that has the whole data directory."""
    return DirectoryShare(path, lambda _topic, _partition: True, takes_leftovers=True, is_whole=True)
