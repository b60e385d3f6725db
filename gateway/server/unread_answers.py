"""How many bytes of answers all connections together may leave unread.

A connection with much unread begins no further request, but what it asked for before may be large, and there may be
thousands of them. Beyond the limit the one with the most unread is dropped, again and again, until the rest fits.
"""

from __future__ import annotations

from typing import Protocol


class Reader(Protocol):
    """A connection whose client reads, or does not."""

    def abort(self, reason: str) -> None:
        """Close at once; what the client did not read is lost."""


class UnreadAnswers:
    """A budget of `limit_bytes`. One reader alone may have more unread, as much as its answers are large."""

    def __init__(self, limit_bytes: int = 0) -> None:
        self.limit_bytes = limit_bytes
        self.total_bytes = 0
        self.dropped = 0
        """Readers that were dropped since the start."""
        self._unread: dict[Reader, int] = {}

    def __len__(self) -> int:
        return len(self._unread)

    def note(self, reader: Reader, unread_bytes: int) -> None:
        """So much waits for a reader now."""
        self.total_bytes += unread_bytes - self._unread.get(reader, 0)
        self._unread[reader] = unread_bytes
        while self.total_bytes > self.limit_bytes and len(self._unread) > 1:
            largest = max(self._unread, key=self._unread.__getitem__)
            self.forget(largest)
            self.dropped += 1
            largest.abort("it reads its answers too slowly, and others need the memory")

    def forget(self, reader: Reader) -> None:
        """It has read what waited, or is gone."""
        self.total_bytes -= self._unread.pop(reader, 0)
