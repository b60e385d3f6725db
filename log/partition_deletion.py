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
STRAY_SUFFIX: Final = "-stray"
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
        target = self._unique_name(directory, DELETE_SUFFIX)
        self._storage.rename(directory, target)
        self._storage.sync_directory(str(self._path))
        self._waiting.append((due_ms, target))

    def set_aside(self, directory: str) -> str:
        """Take a partition directory's name away for good, durably, and keep what is in it; the new name. Raises OSError.

        Kafka calls such a directory stray.
        """
        target = self._unique_name(directory, STRAY_SUFFIX)
        self._storage.rename(directory, target)
        self._storage.sync_directory(str(self._path))
        return target

    def _unique_name(self, directory: str, suffix: str) -> str:
        # Kafka's form is TOPIC-PARTITION.UUID-delete; long topic names are cut so that the name stays valid.
        name = Path(directory).name[:_LONGEST_NAME_KEPT]
        return str(self._path / f"{name}.{uuid.uuid4().hex}{suffix}")

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
