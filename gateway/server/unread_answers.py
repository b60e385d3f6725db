"""Limits the bytes of unread answers of all connections together.

A connection with many unread bytes begins no further request, but the answers that it already asked for may be large,
and there may be thousands of connections. Beyond the limit, the connections with the most unread bytes are
dropped, until the others are within the limit.
"""

from __future__ import annotations

from typing import Protocol


class Reader(Protocol):
    """A connection whose answers may stay unread."""

    def abort(self, reason: str) -> None:
        """Close at once; answers that the client has not read are lost."""


class UnreadAnswers:
    """A budget of `limit_bytes`. A single reader may exceed it by any amount."""

    def __init__(self, limit_bytes: int = 0) -> None:
        self.limit_bytes = limit_bytes
        self.total_bytes = 0
        self.dropped = 0
        """The number of readers dropped since the start."""
        self._unread: dict[Reader, int] = {}

    def __len__(self) -> int:
        return len(self._unread)

    def note(self, reader: Reader, unread_bytes: int) -> None:
        """Set how many bytes wait for a reader now."""
        self.total_bytes += unread_bytes - self._unread.get(reader, 0)
        self._unread[reader] = unread_bytes
        while self.total_bytes > self.limit_bytes and len(self._unread) > 1:
            largest = max(self._unread, key=self._unread.__getitem__)
            self.forget(largest)
            self.dropped += 1
            largest.abort("it reads its answers too slowly, and others need the memory")

    def forget(self, reader: Reader) -> None:
        """Forget a connection that has read its answers, or has ended."""
        self.total_bytes -= self._unread.pop(reader, 0)
