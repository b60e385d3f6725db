"""Keeps large batches in memory until an object has them, so that nobody reads them back from files.

A producer's batch is a view of the request's memory, which lives as long as the view. So a large batch is
kept without a copy. A batch that is not kept is read from its file, as all are that are small: reading costs
little, and their requests share memory that is used again.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final, NamedTuple

from seqgate.log.durability.unflushed import FileRange
from seqgate.log.files.storage import DataFile

OWNER_SHARE: Final = 2
"""A batch is kept only if the memory that its view holds is at most so many times as large."""


class KeptBatch(NamedTuple):
    """One whole batch as it was written."""

    position: int
    first_offset: int
    end_offset: int
    """The offset after the last record."""
    pieces: tuple[bytes, memoryview]

    @property
    def size_bytes(self) -> int:
        head, rest = self.pieces
        return len(head) + len(rest)


class KeptWrites:
    """The batches that are kept, by file and ascending by position. Any thread may call. At the limit, the
    batches of the file that has had some longest are dropped, and read from it instead.
    """

    def __init__(self, *, least_bytes: int, max_bytes: int) -> None:
        """Keep batches of at least `least_bytes`, as smaller ones share reused memory; `max_bytes` in all."""
        self._least_bytes = least_bytes
        self._max_bytes = max_bytes
        self._files: dict[DataFile, deque[KeptBatch]] = {}
        self._lock = threading.Lock()
        self.size_bytes = 0

    def keep(
        self,
        file: DataFile,
        position: int,
        first_offset: int,
        end_offset: int,
        pieces: tuple[bytes, memoryview],
    ) -> None:
        """Keep a batch just written at the file's end, if it is large. Arguments as in `KeptBatch`."""
        head, rest = pieces
        size_bytes = len(head) + len(rest)
        if not self._least_bytes <= size_bytes <= self._max_bytes:
            return
        owner = rest.obj
        owner_bytes = len(owner) if isinstance(owner, bytes | bytearray) else rest.nbytes
        if owner_bytes > OWNER_SHARE * size_bytes:
            return
        batch = KeptBatch(position, first_offset, end_offset, pieces)
        with self._lock:
            while self.size_bytes + size_bytes > self._max_bytes:
                oldest = next(iter(self._files))
                self._drop_first(oldest)
            self._files.setdefault(file, deque()).append(batch)
            self.size_bytes += size_bytes

    def next_in(self, part: FileRange) -> KeptBatch | None:
        """Return the first kept batch of the range, and keep the file's earlier batches no longer."""
        with self._lock:
            self._drop_below(part.file, part.position)
            batches = self._files.get(part.file)
            return batches[0] if batches and batches[0].position < part.end_position else None

    def drop_below(self, file: DataFile, position: int) -> None:
        """Keep the batches that begin before this position of the file no longer."""
        with self._lock:
            self._drop_below(file, position)

    def forget(self, file: DataFile) -> None:
        with self._lock:
            while file in self._files:
                self._drop_first(file)

    def _drop_below(self, file: DataFile, position: int) -> None:
        while (batches := self._files.get(file)) and batches[0].position < position:
            self._drop_first(file)

    def _drop_first(self, file: DataFile) -> None:
        batches = self._files[file]
        self.size_bytes -= batches.popleft().size_bytes
        if not batches:
            del self._files[file]
