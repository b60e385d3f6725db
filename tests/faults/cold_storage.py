# ruff: noqa: PTH202 - paths are plain strings here, as in the storage
"""A slow disk: data written before `freeze` is not in the page cache until a test allows the disk to read.

If the event loop itself reads such data, `waited_for` counts the read: on a real disk all clients would have
waited.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

from seqgate.gateway.runtime.partitions.cold_reads import BLOCK_BYTES
from seqgate.log.files.page_cache import NotCached, PageRange
from seqgate.log.files.storage import DataFile, Storage


class ColdStorage(Storage):
    """A storage whose cold files are read into the page cache only while `gate` is set, in whole blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.tells_cached = True
        self.gate = threading.Event()
        self.cold: set[tuple[str, int]] = set()
        self.asked: list[PageRange] = []
        """The places that threads read into the page cache, in order."""
        self.dropped: list[PageRange] = []
        self.waited_for: list[tuple[str, int]] = []
        self.keeps = True
        """Whether data stays in the page cache once it was read."""

    def freeze(self, *paths: str) -> None:
        """Drop everything of these files from the page cache."""
        for path in paths:
            self.cold.update(_blocks(path, 0, os.path.getsize(path)))

    def bring_in(self, place: PageRange) -> int:
        self.asked.append(place)
        assert self.gate.wait(60.0), "the test must open the gate, so that the disk answers"
        size_bytes = os.path.getsize(place.path)
        if self.keeps:
            self.cold.difference_update(_blocks(place.path, place.position, place.size_bytes or size_bytes))
        return max(0, min(place.size_bytes or size_bytes, size_bytes - place.position))

    def drop_cached(self, place: PageRange) -> None:
        self.dropped.append(place)
        self.cold.update(_blocks(place.path, place.position, place.size_bytes))

    def read(self, file: DataFile, size_bytes: int, position: int) -> bytes:
        if self.waits or not self.tells_cached:
            self._note(file, position, size_bytes)
        return super().read(file, size_bytes, position)

    def send(self, file: DataFile, socket_descriptor: int, position: int, size_bytes: int) -> int:
        self._note(file, position, size_bytes)
        return super().send(file, socket_descriptor, position, size_bytes)

    def read_file(self, path: str) -> bytes:
        self.waited_for += self.cold.intersection(_blocks(path, 0, os.path.getsize(path)))
        return super().read_file(path)

    def _note(self, file: DataFile, position: int, size_bytes: int) -> None:
        self.waited_for += self.cold.intersection(_blocks(file.path, position, size_bytes))

    def was_just_written(self, file: DataFile, position: int) -> bool:
        return not any(path == file.path for path, _ in self.cold) and super().was_just_written(
            file, position
        )

    def _is_cached(self, file: DataFile, position: int, size_bytes: int) -> bool:
        return self.cold.isdisjoint(_blocks(file.path, position, size_bytes))

    def _read_cached(self, file: DataFile, size_bytes: int, position: int) -> bytes:
        if not self._is_cached(file, position, size_bytes):
            raise NotCached((PageRange(file.path, position, size_bytes),))
        self.waits = True
        try:
            return super().read(file, size_bytes, position)
        finally:
            self.waits = False


def _blocks(path: str, position: int, size_bytes: int) -> Iterator[tuple[str, int]]:
    for number in range(position // BLOCK_BYTES, -(-(position + size_bytes) // BLOCK_BYTES)):
        yield path, number
