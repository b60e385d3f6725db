"""How the tickets of a flush round become durable: the port, and the local disk behind it.

A ticket says what must become durable, a `Durability` says how. What a running log writes becomes durable by tickets, but
for the exceptions that docs/decisions.md lists. A start, a repair and the process that compacts fsync their own files.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

from log.files.data_file import DataFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from log.durability.flush_ticket import FlushTicket
    from log.files.storage import Storage


class Durability(Protocol):
    """Makes the tickets of one round durable. Knows no log; may be called in several worker threads at once."""

    max_shares: int
    """Into how many parts the tickets of one round may be divided; 1 where a round is one object."""

    def commit(self, tickets: Sequence[FlushTicket]) -> list[OSError | None]:
        """Make each ticket durable, all or nothing; return the error of each, None for success.

        A ticket that failed is never committed again: nobody knows what reached the disk.
        """


class LocalDurability:
    """Files and directories of the local disk, made durable by fsync."""

    def __init__(self, max_shares: int = 1 << 30) -> None:
        """Let a round be divided into as many parts as there are threads."""
        self.max_shares = max_shares

    def commit(self, tickets: Sequence[FlushTicket]) -> list[OSError | None]:
        """Flush the files of each ticket; return the error of each."""
        errors: list[OSError | None] = []
        for ticket in tickets:
            try:
                self.persist(ticket)
            except OSError as error:
                errors.append(error)
            else:
                errors.append(None)
        return errors

    def persist(self, ticket: FlushTicket) -> None:
        """Flush the data first, then files, directories and captures, the log start last. Raises OSError."""
        storage = ticket.storage
        for file in ticket.data:
            storage.sync(file)
        sync_paths(storage, ticket.paths)
        try:
            for directory in ticket.directories:
                storage.sync_directory(directory)
        except FileNotFoundError:
            # The whole partition may have been deleted meanwhile. Then its files were released.
            if not all(file.closing for file in ticket.data):
                raise
        # A log that is closed before its directory goes lets no capture write, so what is missing here is missed.
        for capture in ticket.captures:
            capture.write()
        if ticket.last is not None:
            ticket.last.write()


def sync_paths(storage: Storage, paths: Iterable[str]) -> None:
    """Make files durable by name. A file that retention has deleted meanwhile is needed by nobody."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            storage.sync_path(path)


def make_durable(storage: Storage, path: str, content: bytes) -> None:
    """Make a file durable that shows `content`, which nobody knows to be on the disk. Raises OSError.

    After a failed flush the page cache shows what the disk never got, and another flush reports success. So the file is
    read back from the disk, and written anew if it is something else.
    """
    file = DataFile(path)
    storage.sync_path(path)
    storage.forget_cached(file)
    storage.descriptors.retire(file)
    if storage.read_file(path) != content:
        storage.replace_file(path, content)
