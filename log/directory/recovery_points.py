"""The checkpoint of recovery points: the offset below which each log of a data directory is durable.

After a crash, a start checks each log from its recovery point on. So the entry of a deleted log must not
apply to a later log of the same name: the name is free when a checkpoint without that log is durable.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from seqgate.log.directory.stored_logs import RECOVERY_POINTS, StoredLog
from seqgate.log.environment import LogEnvironment
from seqgate.log.files.checkpoints import CLEANER_OFFSETS, CorruptCheckpoint, decode_offsets, encode_offsets
from seqgate.log.files.file_names import parse_partition_directory
from seqgate.log.partition_log import PartitionLog

_logger = logging.getLogger(__name__)
Key = tuple[str, int]


GATHERED_AT_ONCE: Final = 64
"""Logs whose points are gathered without a break."""
FEW_DELETED: Final = 1000
"""Deleted logs that may be remembered although no checkpoint has them."""


class RecoveryPoints:
    """Gathers all logs' recovery points, and writes changed ones. Only `write` may run in any thread."""

    def __init__(self, environment: LogEnvironment, root: str, files: str | None = None) -> None:
        """Take the data directory, and the checkpoint's directory if that is another one."""
        self._environment = environment
        self._storage = environment.storage
        self._root = root
        self._files = root if files is None else files
        self._path = f"{self._files}/{RECOVERY_POINTS}"
        self._gathered: tuple[Mapping[Key, StoredLog], Mapping[Key, int]] = {}, {}
        """The last gathered entries: the logs closed by then, and the recovery points of the open ones."""
        self._gathered_at: tuple[int, int, int] | None = None
        """The moves of durable ends, the open and the closed logs, when the entries were gathered."""
        self._gathers = self._gathered_by = 0
        """The gathers that have begun, and the number of the one that the entries are of."""
        self._written: dict[Key, int] = {}
        self._written_of: object = None
        """The gathered entries that the file has."""
        self._gathering: list[dict[Key, int]] = []
        self._set_aside: dict[Key, None] = {}
        """The logs whose directories were renamed, not durably yet, to keep their records."""
        self._deleted: set[Key] = set()
        """The deleted logs that a checkpoint may still have."""
        self._look_at = FEW_DELETED
        """The number of deleted logs at which those are dropped that no checkpoint has."""
        self._lock = threading.Lock()

    def read(self) -> dict[Key, int]:
        """Return the points of a readable checkpoint, or none. Raises OSError, IncompatibleFormat."""
        if not self._storage.exists(self._path):
            # No log is compacted before the recovery points were written once. So if there are offsets of
            # compaction, the recovery points were lost.
            self._environment.recovery_points_lost = self._storage.exists(f"{self._files}/{CLEANER_OFFSETS}")
            return {}
        try:
            points = decode_offsets(self._storage.read_file(self._path), self._path)
        except CorruptCheckpoint as error:
            _logger.warning("%s Every log is checked from its start.", error)
            self._environment.recovery_points_lost = True
            return {}
        self._written = points
        return dict(points)

    def gather(self, opened: Mapping[Key, PartitionLog], stored: dict[Key, StoredLog]) -> Iterator[None]:
        """Gather the points unless none has moved, and yield now and then to let the caller do other work."""
        present = self._environment.durable_ends.moves, len(opened), len(stored)
        if present == self._gathered_at:
            return
        self._gathered_at = None
        self._gathers += 1
        gather = self._gathers
        points: dict[Key, int] = {}
        self._gathering.append(points)
        try:
            for number, (key, log) in enumerate(list(opened.items())):
                if opened.get(key) is log:
                    points[key] = log.recovery_point
                if number % GATHERED_AT_ONCE == 0:
                    yield
            # Compaction relies on the points of one that began later and has ended: these would be older.
            if gather > self._gathered_by:
                self._gathered = stored.copy(), points
                self._gathered_at = present
                self._gathered_by = gather
        finally:
            self._gathering.remove(points)

    def forget(self, key: Key) -> None:
        """Drop a deleted log from the checkpoints that are being gathered."""
        for points in self._gathering:
            points.pop(key, None)
        self._deleted.add(key)
        if len(self._deleted) >= self._look_at:
            self._deleted = {deleted for deleted in self._deleted if self._is_in_checkpoint(deleted)}
            self._look_at = FEW_DELETED + 2 * len(self._deleted)

    def set_aside(self, directory: str) -> None:
        """Note that the directory of a log was renamed. The next `write` makes the new name durable."""
        key = parse_partition_directory(directory.rpartition("/")[2])
        if key is not None:
            self._set_aside[key] = None

    def written(self, topic: str, partition: int) -> int:
        """Return the recovery point in the checkpoint on disk; 0 without one."""
        return self._written.get((topic, partition), 0)

    def has(self, key: Key) -> bool:
        """Return whether a checkpoint must be written before another log may have the name. The checkpoint
        has a point of the log that had the name, or will have it with the next `write`; or the directory of
        that log was set aside, and a crash could lose the name under which it is kept.
        """
        return self._is_in_checkpoint(key) or key in self._set_aside

    def _is_in_checkpoint(self, key: Key) -> bool:
        stored, points = self._gathered
        return key in self._written or key in points or key in stored

    def has_others(self, logs: Collection[Key]) -> bool:
        """Return whether a checkpoint must be written for the name of any log that is not among `logs`."""
        stored, points = self._gathered
        names = {*self._written, *points, *stored, *self._set_aside}
        return not names <= set(logs)

    def write(self) -> None:
        """Write the points gathered last, and persist the names of directories set aside. The file has the
        points of closed logs too, so that a damaged `stored-logs` loses no recovery point. Raises OSError.
        """
        with self._lock:
            aside = list(self._set_aside)
            if aside:
                self._environment.durability.sync(directories=[self._root])
            for key in aside:
                del self._set_aside[key]
            gathered = stored, opened = self._gathered
            if gathered is self._written_of:
                return
            points = {key: log.recovery_point for key, log in stored.items()} | dict(opened)
            if points != self._written:
                self._environment.durability.replace(self._path, encode_offsets(points))
                self._written = points
            self._written_of = gathered

    def write_last(self, stored: Mapping[Key, StoredLog], closed: Mapping[Key, int]) -> None:
        """Write the recovery points of all logs, also closed ones, at a stop. Keeps the points of logs that
        are missing, but were not deleted: a start that is refused for a missing log writes this, too, and
        must leave the evidence. Raises OSError.
        """
        missing = {
            key: point
            for key, point in self._written.items()
            if key not in stored and key not in closed and key not in self._deleted
        }
        self._gathered = stored, missing | dict(closed)
        self.write()
