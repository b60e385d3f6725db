"""What of one data directory waits to be deleted: files of removed segments, and directories of removed partitions.

A step is prepared by the owner's thread, run in any thread, and completed by the owner's thread, as a flush is. Taking
a name away is quick, giving up the space of a large file is not, so `DeletionTicket.run` belongs in another thread.
Source: Kafka's `LocalLog.deleteSegmentFiles` and `LogManager.deleteLogs`, which delete in a thread of the scheduler's.
"""

from __future__ import annotations

import heapq
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from log.files.storage import Storage

_logger = logging.getLogger(__name__)

RETRY_MS: Final = 10_000
"""After this time (ms) what could not be deleted is tried again."""
_NO_LIMIT: Final = 1 << 62


class _Waiting(NamedTuple):
    due_ms: int
    path: str
    is_directory: bool


class DeletionTicket:
    """One bounded step of deleting. `run` may be called in any thread and touches no log state."""

    def __init__(self, storage: Storage, entries: list[_Waiting], max_files: int, max_bytes: int) -> None:
        """Delete at most `max_files` files of these, and no further one once `max_bytes` are given up."""
        self.entries = entries
        self.files = 0
        """How many files were deleted."""
        self.size_bytes = 0
        """How much they held."""
        self.done: set[str] = set()
        self.failed: set[str] = set()
        self.cancelled = False
        """Set from any thread, it ends `run` before the next file."""
        self._storage = storage
        self._max_files = max_files
        self._max_bytes = max_bytes

    def run(self) -> None:
        """Delete. What fails stays for a later ticket and holds up nothing else."""
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
                _logger.warning("%s stays for now: %s", entry.path, error)
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
        """Delete what the bounds allow of a directory; whether it is gone.

        Its new name is durable first. Otherwise a crash could bring the partition back with some of its files.
        """
        self._storage.sync_directory(str(Path(path).parent))
        room = self._max_files - self.files
        names = self._storage.some_names(path, room + 1)
        for name in names[:room]:
            if self._is_over():
                return False
            self._delete(f"{path}/{name}")
        if len(names) > room:
            return False
        self._storage.delete_directory(path)
        return True


class DeletionQueue:
    """All that waits, with the time at which each may go (ms). Belongs to the thread of the logs.

    It holds as many entries as there are removed segments' files and removed partitions on the disk.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._heap: list[_Waiting] = []
        self._waiting: dict[str, _Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, path: str) -> bool:
        """Whether the path waits or is being deleted."""
        return path in self._waiting

    def add(self, path: str, due_ms: int, *, is_directory: bool = False) -> None:
        """Have a file, or a directory with the files in it, deleted from `due_ms` on."""
        entry = _Waiting(due_ms, path, is_directory)
        self._waiting[path] = entry
        heapq.heappush(self._heap, entry)

    def withdraw(self, path: str) -> None:
        """Leave the path alone."""
        self._waiting.pop(path, None)

    def prepare(
        self, storage: Storage, now_ms: int, *, max_files: int, max_bytes: int = _NO_LIMIT
    ) -> DeletionTicket | None:
        """The next step; None when nothing is due. It must come back to `complete`."""
        entries: list[_Waiting] = []
        while self._heap and self._heap[0].due_ms <= now_ms and len(entries) < max_files:
            entry = heapq.heappop(self._heap)
            if self._waiting.get(entry.path) is entry:
                entries.append(entry)
        return DeletionTicket(storage, entries, max_files, max_bytes) if entries else None

    def complete(self, ticket: DeletionTicket, now_ms: int) -> None:
        """The ticket ran: what it did not get to waits on, what failed is tried again after `RETRY_MS`."""
        for entry in ticket.entries:
            if self._waiting.get(entry.path) is not entry:
                continue
            if entry.path in ticket.done:
                del self._waiting[entry.path]
            elif entry.path in ticket.failed:
                self.add(entry.path, now_ms + RETRY_MS, is_directory=entry.is_directory)
            else:
                heapq.heappush(self._heap, entry)
