"""Queues a data directory's deletions: files of removed segments, directories of removed partitions.

The owner's thread prepares a step, any thread runs the step, and the owner's thread completes it, as with a
flush. A rename is quick, but freeing the space of a large file is slow, so call `DeletionTicket.run` in
another thread. Source: Kafka's `LocalLog.deleteSegmentFiles` and `LogManager.deleteLogs`.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
from pathlib import Path
from typing import Final, NamedTuple

from seqgate.log.files.storage import DurableFiles, Storage

_logger = logging.getLogger(__name__)

RETRY_MS: Final = 10_000
"""The time (ms) after which a failed deletion is retried."""
_NO_LIMIT: Final = 1 << 62


class _Waiting(NamedTuple):
    due_ms: int
    path: str
    is_directory: bool


class DeletionTicket:
    """One bounded deletion step. `run` may be called in any thread and touches no log state."""

    def __init__(
        self, storage: Storage, durable: DurableFiles, entries: list[_Waiting], max_files: int, max_bytes: int
    ) -> None:
        """Take the entries: at most `max_files` files, and no further file once `max_bytes` are freed."""
        self.entries = entries
        self.files = 0
        """The number of files deleted."""
        self.size_bytes = 0
        """The bytes freed."""
        self.done: set[str] = set()
        self.failed: set[str] = set()
        self.cancelled = False
        """Whether to end `run` before the next file. Any thread may set it."""
        self._storage = storage
        self._durable = durable
        self._max_files = max_files
        self._max_bytes = max_bytes

    def run(self) -> None:
        """Delete the entries. An entry that fails stays for a later ticket, without holding up the others."""
        for entry in self.entries:
            if self._is_over():
                return
            try:
                if not entry.is_directory:
                    self._delete(entry.path)
                elif not self._delete_directory(entry.path):
                    return
            except FileNotFoundError:
                pass
            except OSError as error:
                _logger.warning(
                    "%s can't be deleted and is retried in %d s: %s", entry.path, RETRY_MS // 1000, error
                )
                self.failed.add(entry.path)
                continue
            self.done.add(entry.path)

    def _is_over(self) -> bool:
        return self.cancelled or self.files >= self._max_files or self.size_bytes >= self._max_bytes

    def _delete(self, path: str) -> None:
        size_bytes = self._storage.size_bytes(path)
        self._storage.delete(path)
        self.files += 1
        self.size_bytes += size_bytes

    def _delete_directory(self, path: str) -> bool:
        """Delete a directory's files up to the bounds, then itself. Return whether it is gone.

        Persist the directory's new name first. Otherwise a crash could bring some files back.
        """
        self._durable.sync(directories=[str(Path(path).parent)])
        room = self._max_files - self.files
        names = self._storage.some_names(path, room + 1)
        for name in names[:room]:
            if self._is_over():
                return False
            with contextlib.suppress(FileNotFoundError):
                # Another process that shares the data directory may delete the same directory.
                self._delete(f"{path}/{name}")
        if len(names) > room:
            return False
        self._storage.delete_directory(path)
        return True


class DeletionQueue:
    """The paths to delete, each with a time (ms) before which it stays. Use it in the logs' thread only. The
    queue has one entry per file of a removed segment and per directory of a removed partition.
    """

    def __init__(self) -> None:
        self._heap: list[_Waiting] = []
        self.paths: dict[str, _Waiting] = {}
        """The queued deletions by path. The owner may rebuild the table in place."""

    def __len__(self) -> int:
        return len(self.paths)

    def __contains__(self, path: str) -> bool:
        return path in self.paths

    def add(self, path: str, due_ms: int, *, is_directory: bool = False) -> None:
        """Queue a file, or a directory with all its files, for deletion from `due_ms` on."""
        entry = _Waiting(due_ms, path, is_directory)
        self.paths[path] = entry
        heapq.heappush(self._heap, entry)

    def clock_was_set(self, by_ms: int) -> None:
        """Move all times by the change of the clock, so that every path waits as long as before."""
        for path, entry in list(self.paths.items()):
            self.paths[path] = entry._replace(due_ms=entry.due_ms + by_ms)
        self._heap = list(self.paths.values())
        heapq.heapify(self._heap)

    def prepare(
        self,
        storage: Storage,
        durable: DurableFiles,
        now_ms: int,
        *,
        max_files: int,
        max_bytes: int = _NO_LIMIT,
    ) -> DeletionTicket | None:
        """Return the next step, for `complete`; None when nothing is due, or a backup keeps deleted files."""
        if storage.keeps_deleted:
            return None
        entries: list[_Waiting] = []
        while self._heap and self._heap[0].due_ms <= now_ms and len(entries) < max_files:
            entry = heapq.heappop(self._heap)
            if self.paths.get(entry.path) is entry:
                entries.append(entry)
        return DeletionTicket(storage, durable, entries, max_files, max_bytes) if entries else None

    def complete(self, ticket: DeletionTicket, now_ms: int) -> None:
        """Update the queue after a ticket ran. The rest stays queued; failed entries wait RETRY_MS."""
        for entry in ticket.entries:
            if self.paths.get(entry.path) is not entry:
                continue
            if entry.path in ticket.done:
                del self.paths[entry.path]
            elif entry.path in ticket.failed:
                self.add(entry.path, now_ms + RETRY_MS, is_directory=entry.is_directory)
            else:
                heapq.heappush(self._heap, entry)
