"""Indexes that were rebuilt while the log serves, until a thread has written them.

A reader that finds a damaged index rebuilds both indexes of the segment and uses them at once, from memory. The damaged files
stay until `write` replaces each of them atomically. So the event loop never waits for these files, and no crash leaves a short
index: a short time index would understate the newest timestamp, and retention would delete a young segment as an old one.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from log.files.durable_files import DurableFiles

_logger = logging.getLogger(__name__)
MAX_WAITING_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of indexes that wait to be written. Further ones are only cached, and are rebuilt again when they are evicted."""


class RebuiltIndexes:
    """The contents of rebuilt index files, by the path of their segment. Only `write` may run in another thread."""

    __slots__ = ("_lock", "_waiting", "_waiting_bytes", "_writing", "_writing_path")

    def __init__(self) -> None:
        """Begin with no rebuilt indexes."""
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        """Held while the files of `_writing_path` are written."""
        self._writing_path: str | None = None
        self._waiting: dict[str, Mapping[str, bytes]] = {}
        self._waiting_bytes = 0

    def __len__(self) -> int:
        """Return the number of segments whose indexes wait to be written."""
        return len(self._waiting)

    def add(self, segment_path: str, files: Mapping[str, bytes]) -> None:
        """Add the index files of a segment, by path, to the next `write`."""
        self.drop(segment_path)
        size_bytes = sum(map(len, files.values()))
        with self._lock:
            if self._waiting_bytes + size_bytes <= MAX_WAITING_BYTES:
                self._waiting[segment_path] = files
                self._waiting_bytes += size_bytes

    def of(self, segment_path: str) -> Mapping[str, bytes] | None:
        """Return the index files of a segment that wait to be written; None without any."""
        return self._waiting.get(segment_path)

    def drop(self, segment_path: str) -> None:
        """Forget the indexes of a segment that changes or is removed. Afterwards no write replaces its files."""
        if not self._waiting:
            return
        with self._lock:
            self._take(segment_path)
            is_being_written = self._writing_path == segment_path
        if is_being_written:
            with self._writing:
                pass

    def write(self, durable: DurableFiles) -> None:
        """Persist the waiting index files. Files that can't be written stay damaged, and are rebuilt when they are needed again."""
        for segment_path in list(self._waiting):
            with self._writing:
                with self._lock:
                    files = self._waiting.get(segment_path)
                    self._writing_path = segment_path
                try:
                    for path, content in (files or {}).items():
                        durable.replace(path, content)
                except OSError as error:
                    _logger.warning("the rebuilt indexes of %s can't be written: %s", segment_path, error)
                with self._lock:
                    self._writing_path = None
                    if self._waiting.get(segment_path) is files:
                        self._take(segment_path)

    def _take(self, segment_path: str) -> None:
        files = self._waiting.pop(segment_path, None)
        if files is not None:
            self._waiting_bytes -= sum(map(len, files.values()))
