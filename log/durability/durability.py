"""Makes files and directories durable: the port `Durability`, and its implementation on the local disk. No
other module calls an fsync.

A flush ticket says what a running log must persist, a `Durability` says how, in rounds of tickets. What no ticket carries, because
no log runs yet or another process made it, goes through the methods of `DurableFiles`.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Protocol

from log.files.data_file import DataFile, Place
from log.files.durable_files import DurableFiles, NoRoom

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from log.durability.flush_ticket import FlushTicket
    from log.durability.kept_writes import KeptWrites
    from log.files.disk import FileSystemFlush
    from log.files.storage import Storage


class Durability(DurableFiles, Protocol):
    """Makes the tickets of one round durable. Knows no log; may be called in several worker threads at once."""

    max_shares: int
    """The most parts into which the tickets of one round may be divided; 1 where one object holds a whole round."""
    rounds_overlap: bool
    """Whether a round may begin before the previous round has ended. If so, a ticket leaves out the data of tickets in flight."""

    @property
    def kept_writes(self) -> KeptWrites | None:
        """The batches that are kept in memory until a round takes them; None where rounds do not need their bytes."""

    def commit(self, tickets: Sequence[FlushTicket]) -> list[OSError | None]:
        """Make each ticket durable, all or nothing; return the error of each, None for success.

        A ticket that failed is never committed again: nobody knows what reached the disk.
        """

    def settle(self, file: DataFile) -> None:
        """Persist the bytes of an open data file before a check reads them, so that the check finds what is durable.

        Raises OSError.
        """

    def rebuilt(self, paths: Iterable[str]) -> None:
        """Note the segment files that this process has just written as a whole, from a place that keeps them."""

    def begin_common_flush(self, path: str) -> FileSystemFlush | None:
        """Return one flush for everything written below `path` until it runs; None where files are flushed one by one.

        Raises OSError.
        """


class LocalDurability:
    """Makes files and directories of the local disk durable by fsync."""

    rounds_overlap = False
    kept_writes = None

    def __init__(self, storage: Storage, max_shares: int = 1 << 30) -> None:
        """Take the disk's storage. By default a round may be divided into one share per worker thread."""
        self._storage = storage
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
        self.sync(data=ticket.data)
        for path in ticket.paths:
            with contextlib.suppress(FileNotFoundError):
                # Retention may have deleted the file meanwhile. A deleted file needs no flush.
                self.sync(paths=(path,))
        try:
            self.sync(directories=ticket.directories)
        except FileNotFoundError:
            # The whole partition may have been deleted meanwhile. Then its files were released.
            if not all(file.closing for file in ticket.data):
                raise
        # The captures of a deleted partition write nothing, because its log was closed before. So any missing file is
        # an error.
        for capture in ticket.captures:
            capture.write(self)
        if ticket.last is not None:
            ticket.last.write(self)

    def sync(
        self,
        *,
        data: Iterable[DataFile] = (),
        paths: Iterable[str] = (),
        directories: Iterable[str] = (),
    ) -> None:
        """Fsync the open data files, then the files at `paths`, then the directories. Raises OSError."""
        storage = self._storage
        for file in data:
            storage.fdatasync(file)
        for path in paths:
            storage.fsync_path(path)
        for directory in directories:
            storage.fsync_directory(directory)

    def replace(self, path: str, content: bytes) -> None:
        """Write and fsync a temporary file next to the old one, then rename it over the old one and fsync the
        directory. Raises OSError, NoRoom.
        """
        temporary = path + ".tmp"
        try:
            self._storage.write_file(temporary, content)
            self._storage.fsync_path(temporary)
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise NoRoom(error.errno, error.strerror, error.filename) from error
            raise
        self._storage.rename(temporary, path)
        self._storage.fsync_directory(os.path.dirname(path))  # noqa: PTH120 - paths are plain strings here

    def ensure(self, path: str, content: bytes) -> None:
        """Fsync the file, read it back from the disk, and write it again if the disk holds something else. Raises
        OSError.

        After a failed flush the page cache shows what the disk never got, and another flush reports success.
        """
        storage = self._storage
        storage.fsync_path(path)
        storage.drop_cached(Place(path, 0, 0))
        if storage.read_file(path) != content:
            self.replace(path, content)

    def settle(self, file: DataFile) -> None:
        """Fsync the file, and drop it from the page cache: see `Storage.forget_cached`. Raises OSError."""
        self._storage.fdatasync(file)
        self._storage.forget_cached(file)

    def rebuilt(self, paths: Iterable[str]) -> None:
        """Do nothing: the local disk must have the bytes, so `settle` flushes them."""

    def begin_common_flush(self, path: str) -> FileSystemFlush | None:
        """Return a flush of the file system of `path`; None without syncfs. Raises OSError."""
        return self._storage.begin_syncfs(path)
