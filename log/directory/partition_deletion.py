"""Deletes partitions in two steps, as Kafka does: rename the directory to `*-delete` at once, delete its
files later.

Source: Kafka's `LogManager.asyncDelete`, `UnifiedLog.logDeleteDirName`.
"""

from __future__ import annotations

import logging
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

from seqgate.log.files.file_names import LOG_SUFFIX, PARTITION_METADATA

if TYPE_CHECKING:
    from seqgate.log.environment import LogEnvironment
    from seqgate.log.files.storage import Storage

_logger = logging.getLogger(__name__)

DELETE_SUFFIX: Final = "-delete"
STRAY_SUFFIX: Final = "-stray"
_LONGEST_NAME_KEPT: Final = 180


class PartitionDeletion:
    """Renames partition directories to `*-delete`, and queues them in the environment's deletion queue."""

    def __init__(self, environment: LogEnvironment, path: Path) -> None:
        """Take the data directory. `found` queues the files that an earlier run left."""
        self._storage = environment.storage
        self._queue = environment.deletions
        self._path = path

    def found(self, name: str, due_ms: int) -> None:
        """Queue the deletion of a file or `*-delete` directory that an earlier run left."""
        self._queue.add(str(self._path / name), due_ms, is_directory=name.endswith(DELETE_SUFFIX))

    def remove(self, directory: str, due_ms: int) -> None:
        """Rename a partition's directory to `*-delete`, and queue its deletion. Raises OSError.

        The new name is not durable yet: the deletion of the files persists the name first.
        """
        target = rename_away(self._storage, directory, DELETE_SUFFIX)
        self._queue.add(target, due_ms, is_directory=True)

    def set_aside(self, directory: str) -> str:
        """Rename a partition's directory, so that no log uses the files and a person can inspect them. Raises
        OSError.

        Returns the new path, not durable yet. Kafka calls such a directory stray.
        """
        return rename_away(self._storage, directory, STRAY_SUFFIX)

    def discard_unfinished(self, directory: str) -> bool:
        """Remove a directory without a topic id, or set it aside if it holds records; return whether it was
        set aside. Raises OSError.

        The topic id is durable before any record is acknowledged: such records never were, or somebody
        changed the directory.
        """
        files = self._storage.list_files(directory)
        if any(size for name, size in files.items() if name.endswith(LOG_SUFFIX)):
            _logger.error(
                "%s holds records, but %s does not give their topic id; the directory is kept as %s",
                directory,
                PARTITION_METADATA,
                self.set_aside(directory),
            )
            return True
        _logger.warning("%s was never finished and is removed", directory)
        self.remove(directory, 0)
        return False


def rename_away(storage: Storage, directory: str, suffix: str) -> str:
    """Rename a partition's directory to a unique name with this suffix; return the new path. Raises OSError."""
    # Kafka's form is TOPIC-PARTITION.UUID-delete; long topic names are cut so that the new name is not too
    # long.
    path = Path(directory)
    target = str(path.parent / f"{path.name[:_LONGEST_NAME_KEPT]}.{uuid.uuid4().hex}{suffix}")
    storage.rename(directory, target)
    return target
