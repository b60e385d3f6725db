"""Captures of derived state, which flush tickets write as side files of a partition log.

The log makes a capture on the event loop. The flush that follows persists the log's data first, then writes the captures. So no
crash leaves a side file that describes batches that the log does not have.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from log.files.durable_files import DurableFiles


class Capture(Protocol):
    """The content of one side file at one moment."""

    def write(self, files: DurableFiles) -> None:
        """Persist the side file by `files`; called in any thread, once all data that it describes is durable. Raises OSError."""

    def saved(self) -> None:
        """Record that `write` has succeeded; called in the thread of the log."""


class SideFile:
    """Guards the writes of one kind of side file in a directory, while the log is open.

    Captures are numbered, or have an offset that only grows. A late capture, after a newer one was written, writes nothing.
    """

    __slots__ = ("_closed", "_lock", "_number", "_written")

    def __init__(self, written: int = 0) -> None:
        """Take the number of the capture that is on disk; 0 means none."""
        self._lock = threading.Lock()
        self._closed = False
        self._number = written
        self._written = written

    def next_number(self) -> int:
        """Return the number of a new capture."""
        self._number += 1
        return self._number

    def write(self, number: int, write: Callable[[], None]) -> None:
        """Call `write` unless the file is closed or a newer capture was written. Raises what `write` raises."""
        with self._lock:
            if not self._closed and number > self._written:
                write()
                self._written = number

    def write_unnumbered(self, write: Callable[[], None]) -> None:
        """Call `write` unless the file is closed, for content that never changes. Raises what `write` raises."""
        with self._lock:
            if not self._closed:
                write()

    def close(self) -> None:
        """Ignore all further writes, also those of flushes in flight.

        Otherwise a write could reach a new log in a directory of the same name.
        """
        with self._lock:
            self._closed = True
