"""Partitions leave in two steps, as in Kafka: their directory becomes `*-delete` at once, its files go by and by.

Source: Kafka's `LogManager.asyncDelete`, `UnifiedLog.logDeleteDirName`.
"""

from __future__ import annotations

import logging
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from log.storage import Storage

_logger = logging.getLogger(__name__)

DELETE_SUFFIX: Final = "-delete"
_LONGEST_NAME_KEPT: Final = 180


class PartitionDeletion:
    """The `*-delete` directories of one data directory, with the time at which each may go (ms)."""

    def __init__(self, storage: Storage, path: Path) -> None:
        """Begin with none; `found` tells of those from before the start."""
        self._storage = storage
        self._path = path
        self._waiting: list[tuple[int, str]] = []

    def found(self, name: str) -> None:
        """Delete the directory of this name, which an earlier run left."""
        self._waiting.append((0, str(self._path / name)))

    def remove(self, directory: str, due_ms: int) -> None:
        """Take a partition directory's name away, durably. Raises OSError."""
        target = self._name_to_delete(directory)
        self._storage.rename(directory, target)
        self._storage.sync_directory(str(self._path))
        self._waiting.append((due_ms, target))

    def make_directory(self, directory: str) -> str:
        """A directory to make a partition in, which is deleted unless it gets its name and is told `finished`.

        Raises OSError.
        """
        unfinished = self._name_to_delete(directory)
        self._waiting.append((0, unfinished))
        self._storage.make_directory(unfinished)
        return unfinished

    def finished(self, unfinished: str) -> None:
        """What `make_directory` made has the partition's own name now."""
        self._waiting.remove((0, unfinished))

    def _name_to_delete(self, directory: str) -> str:
        # Kafka's form is TOPIC-PARTITION.UUID-delete; long topic names are cut so that the name stays valid.
        name = Path(directory).name[:_LONGEST_NAME_KEPT]
        return str(self._path / f"{name}.{uuid.uuid4().hex}{DELETE_SUFFIX}")

    def delete_due(self, now_ms: int, limit: int) -> int:
        """Delete at most `limit` files whose time has come; returns how many.

        What can't be deleted is tried again at the next call, and holds up nothing else.
        """
        deleted = 0
        for entry in [entry for entry in self._waiting if entry[0] <= now_ms]:
            if deleted >= limit:
                break
            try:
                deleted += self._delete_some(entry, limit - deleted)
            except FileNotFoundError:
                self._waiting.remove(entry)
            except OSError as error:
                _logger.warning("%s stays for now: %s", entry[1], error)
        return deleted

    def _delete_some(self, entry: tuple[int, str], limit: int) -> int:
        names = self._storage.list_directory(entry[1])
        for name in names[:limit]:
            self._storage.delete(f"{entry[1]}/{name}")
        if len(names) <= limit:
            self._storage.delete_directory(entry[1])
            self._waiting.remove(entry)
        return min(len(names), limit)
