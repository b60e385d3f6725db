"""A flush round that becomes objects of the session's write-ahead log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.runtime.partitions.flush_round import FlushRound
from gateway.runtime.partitions.round_reader import RoundReader
from log import FlushTicket

READ_AT_ONCE_BYTES: Final = 64 << 10
"""Up to this size a round of just written bytes is read in the event loop; a thread would cost more."""


@dataclass(slots=True, eq=False)
class ObjectRound:
    """A flush round, its objects, and the tickets that join it only for their side files."""

    flush: FlushRound
    reader: RoundReader
    commits: list[tuple[FlushTicket, asyncio.Future[OSError | None]]]
    size_bytes: int
    """The bytes of all records in the round."""
    is_quick: bool
    """Whether reading takes less time than a switch to a worker thread."""
    unread_bytes: int
    """The bytes of records that no object has yet; less where objects also have side files."""
    objects_out: int = 0
    """The objects that are put and not confirmed."""
    is_put: bool = False
    """Whether all objects of the round are put."""

    def note_failures(self) -> int:
        """Give back the tickets that could not be read; note those without side files. Return how many were given back."""
        for ticket, error in self.reader.without_files.items():
            self.flush.errors[ticket] = error
            self.flush.failed_files.add(ticket)
        unread, self.reader.unread = self.reader.unread, {}
        for ticket, error in unread.items():
            self.flush.fail(ticket, error)
        return len(unread)


def is_quickly_read(tickets: Sequence[FlushTicket], size_bytes: int) -> bool:
    """Return whether reading tickets with so many bytes takes less time than a switch to a worker thread."""
    return size_bytes <= READ_AT_ONCE_BYTES and all(map(_is_cached, tickets))


def _is_cached(ticket: FlushTicket) -> bool:
    """Whether the ticket has only records, which can be read without waiting for the disk."""
    if ticket.paths or ticket.captures or ticket.last is not None or not ticket.data:
        return False
    storage = ticket.storage
    return all(storage.is_cached(part.file, part.position, part.size_bytes) for part in ticket.ranges)
