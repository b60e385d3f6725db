"""The port that makes the tickets of a flush round durable, and its implementation for the local disk.

A ticket says what must become durable, a `Durability` how. Everything that a running log writes becomes durable by
tickets, with the exceptions in docs/decisions.md. A start, a repair and the compacting process fsync their own files.
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
    """The largest number of shares into which a round's tickets may be divided; 1 if a round becomes one object."""

    def commit(self, tickets: Sequence[FlushTicket]) -> list[OSError | None]:
        """Make each ticket durable, all or nothing; return the error of each, None for success.

        A ticket that failed is never committed again: nobody knows what reached the disk.
        """


class LocalDurability:
    """Makes files and directories of the local disk durable by fsync."""

    def __init__(self, max_shares: int = 1 << 30) -> None:
        """Divide a round into at most one share per worker thread."""
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
        # The captures of a deleted partition write nothing, because its log was closed before. So any missing file is
        # an error.
        for capture in ticket.captures:
            capture.write()
        if ticket.last is not None:
            ticket.last.write()


def sync_paths(storage: Storage, paths: Iterable[str]) -> None:
    """Make files durable by name. Skip files that retention has deleted meanwhile."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            storage.sync_path(path)


def make_durable(storage: Storage, path: str, content: bytes) -> None:
    """Make sure that the disk, and not only the page cache, has `content` in the file. Raises OSError.

    After a failed flush the page cache can hold data that the disk never got, while another fsync reports success. So
    the file is read back from the disk, and rewritten if it differs.
    """
    file = DataFile(path)
    storage.sync_path(path)
    storage.forget_cached(file)
    storage.descriptors.retire(file)
    if storage.read_file(path) != content:
        storage.replace_file(path, content)
