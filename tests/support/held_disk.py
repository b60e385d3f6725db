"""A disk that can hold back, or fail, the flushes of one topic."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from seqgate.log import Storage
from seqgate.log.files.storage import DataFile

PATIENCE_S = 60.0


class HeldDisk(Storage):
    """A disk on which one topic's flushes wait while the topic is held, and fail while it is broken.

    Only flushes on worker threads wait. A flush on the test's own thread would wait for ever, because that
    thread must release it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.held_topic = ""
        self.broken_topic = ""
        self.waiting = 0
        self._go_on = threading.Event()

    @contextmanager
    def held(self, topic: str) -> Iterator[None]:
        self._go_on.clear()
        self.held_topic = topic
        try:
            yield
        finally:
            self.held_topic = ""
            self._go_on.set()

    def _sync(self, file: DataFile) -> None:
        self._wait(file.path)
        super()._sync(file)

    def fsync_path(self, path: str) -> None:
        self._wait(path)
        super().fsync_path(path)

    def _wait(self, path: str) -> None:
        is_worker = threading.current_thread() is not threading.main_thread()
        if is_worker and self.held_topic and f"/{self.held_topic}-" in path:
            self.waiting += 1
            assert self._go_on.wait(PATIENCE_S)
        if self.broken_topic and f"/{self.broken_topic}-" in path:
            raise OSError(errno.EIO, "the disk is broken")
