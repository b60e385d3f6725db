"""Keeps the transaction index of one segment: in memory while batches are appended, otherwise in the cache or on the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from log.files.file_names import LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX, replace
from log.segments.transaction_index import TransactionIndex

if TYPE_CHECKING:
    from log.segments.segment_environment import SegmentEnvironment
    from log.segments.transaction_index import AbortedTransaction


class SegmentAborts:
    """The transactions that markers in one segment aborted.

    `has_any` is True when there are some; a segment without aborts has no transaction index.
    """

    __slots__ = ("_environment", "_held", "_log_path", "has_any")

    def __init__(self, environment: SegmentEnvironment, log_path: str) -> None:
        """Begin without aborts, in the segment with this log file."""
        self._environment = environment
        self._log_path = log_path
        self._held: TransactionIndex | None = None
        """The index that is kept in memory, because it grows or is not on the disk yet."""
        self.has_any = False

    @property
    def entries(self) -> bytes | None:
        """The content of the index that is kept in memory; None without one."""
        return None if self._held is None else bytes(self._held.entries)

    def _path(self) -> str:
        return self._log_path.removesuffix(LOG_SUFFIX) + TRANSACTION_INDEX_SUFFIX

    def add(self, aborted: AbortedTransaction) -> None:
        """Add a transaction that a marker in this segment aborted."""
        if self._held is None:
            self._held = TransactionIndex()
            self.has_any = True
        self._held.add(
            aborted.producer_id, aborted.first_offset, aborted.last_offset, aborted.last_stable_offset
        )

    def index(self) -> TransactionIndex:
        """Return the transaction index, from memory or from the disk. Raises OSError, NotCached."""
        if self._held is not None:
            return self._held
        cached = self._environment.transaction_index_cache.get(self._log_path)
        if cached is None:
            storage, path = self._environment.storage, self._path()
            storage.check_brought_in((path,))
            cached = TransactionIndex(storage.read_file(path))
            self._environment.transaction_index_cache.put(self._log_path, cached)
        return cached

    def hold(self) -> None:
        """Keep the index in memory, as batches will be appended. Raises OSError."""
        if self.has_any:
            self._held = self.index()
            self._environment.transaction_index_cache.drop(self._log_path)

    def hold_entries(self, entries: bytes) -> None:
        """Keep these entries in memory, whose file gets its name later."""
        self._held = TransactionIndex(entries)
        self.has_any = True

    def hand_over(self) -> None:
        """Hand the index to the cache, as no more batches will be appended."""
        if self._held is not None:
            self._environment.transaction_index_cache.put(self._log_path, self._held)
            self._held = None

    def forget(self) -> None:
        """Drop the index, to rebuild it with `add`."""
        self._held = None
        self.has_any = False
        self._environment.transaction_index_cache.drop(self._log_path)

    def write(self) -> list[str]:
        """Write the index if it is kept in memory. Return its path, if any; the caller persists it."""
        if self._held is None:
            return []
        return [replace(self._environment.storage, self._path(), bytes(self._held.entries))]
