"""Makes files durable: the port `Durability`, and its implementations. No other module calls an fsync.

A flush ticket says what a running log must persist, a `Durability` says how, in rounds of tickets. What no
ticket carries, because no log runs yet or another process made it, goes through `DurableFiles`.

Where a bucket has the records durably, the local disk is a cache, and no fsync is called.

Objects of the write-ahead log make records, side files and log start offsets durable. A crash may leave the
local files in any state, so a start builds them from the bucket again. Until then the log has every record
that a ticket took for an object, even after an outage. So a side file may be written before its object is
confirmed; only the log start offset must wait.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Sequence
from typing import Protocol

from seqgate.log.durability.kept_writes import KeptWrites
from seqgate.log.durability.unflushed import FlushTicket
from seqgate.log.files.disk import FileSystemFlush
from seqgate.log.files.file_names import PARTITION_METADATA
from seqgate.log.files.page_cache import PageRange
from seqgate.log.files.storage import DataFile, DurableFiles, Storage


class Durability(DurableFiles, Protocol):
    """Makes the tickets of a round durable. Knows no log; several worker threads may call it at once."""

    max_shares: int
    """The most parts into which a round's tickets may be divided; 1 where one object holds them all."""
    rounds_overlap: bool
    """Whether rounds may overlap. If so, a ticket leaves out the data of tickets in flight."""

    @property
    def kept_writes(self) -> KeptWrites | None:
        """The batches kept in memory until a round takes them; None where rounds need no bytes."""

    def commit(self, tickets: Sequence[FlushTicket]) -> list[OSError | None]:
        """Make each ticket durable, all or nothing; return the error of each, None for success. A ticket that
        failed is never committed again: nobody knows what reached the disk.
        """

    def settle(self, file: DataFile) -> None:
        """Persist an open data file's bytes, so that a check reads what is durable. Raises OSError."""

    def rebuilt(self, paths: Iterable[str]) -> None:
        """Note the segment files that this process has just written whole, from a place that keeps them."""

    def begin_common_flush(self, path: str) -> FileSystemFlush | None:
        """Return a flush of all written below `path` until it runs; None: flush each file. Raises OSError."""


class LocalDurability:
    """Makes files and directories of the local disk durable by fsync."""

    max_shares = 1 << 30
    rounds_overlap = False
    kept_writes = None

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def commit(self, tickets: Sequence[FlushTicket]) -> list[OSError | None]:
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
        # A deleted partition's captures write nothing: its log is closed. So a missing file is an error.
        for capture in ticket.captures:
            capture.write(self)
        if ticket.last is not None:
            ticket.last.write(self)

    def sync(
        self, *, data: Iterable[DataFile] = (), paths: Iterable[str] = (), directories: Iterable[str] = ()
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
        """Fsync a temporary file, rename it over the old one, fsync the directory. Raises OSError, NoRoom."""
        self._storage.replace(path, content, self._storage.fsync_path)
        self._storage.fsync_directory(os.path.dirname(path))  # noqa: PTH120 - paths are plain strings here

    def ensure(self, path: str, content: bytes) -> None:
        """Fsync the file, read it back from the disk, and write it again if it differs. After a failed flush
        the page cache shows what the disk never got, and another flush reports success. Raises OSError.
        """
        storage = self._storage
        storage.fsync_path(path)
        storage.drop_cached(PageRange(path, 0, 0))
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


class CachedDurability:
    """Writes and renames the files that `LocalDurability` would persist."""

    max_shares = 1
    rounds_overlap = True

    def __init__(self, storage: Storage, kept_writes: KeptWrites | None = None) -> None:
        """Take the storage with the files. Without `kept_writes` rounds read all batches from their files."""
        self._storage = storage
        self.kept_writes = kept_writes
        self._rebuilt: set[str] = set()
        """The segment files that were built from the bucket, and not checked since."""

    def commit(self, tickets: Sequence[FlushTicket]) -> list[OSError | None]:
        """Write the side files of each ticket without records; return the error of each.

        Refuse a ticket with records or a log start offset. Only an object makes these durable.
        """
        return [self._commit(ticket) for ticket in tickets]

    def _commit(self, ticket: FlushTicket) -> OSError | None:
        if ticket.ranges or ticket.last is not None:
            return OSError(errno.EIO, "no object has the records or the log start offset", str(ticket.place))
        try:
            for capture in ticket.captures:
                capture.write(self)
        except OSError as error:
            return error
        return None

    def first_files(self, ticket: FlushTicket) -> list[tuple[str, bytes]]:
        """Return name and content of what must be in an object no later than the first records of a ticket:
        `partition.metadata` tells whether producer names are tracked from offset 0 on. Raises OSError.
        """
        return [
            (PARTITION_METADATA, self._storage.read_file(path))
            for path in ticket.paths
            if path == f"{ticket.place.directory}/{PARTITION_METADATA}"
        ]

    def write_side_files(self, ticket: FlushTicket, written: list[tuple[str, bytes]]) -> None:
        """Write a ticket's other side files, and append name and content of each to `written`; any thread may
        call.

        The object must have the records of the ticket before. `written` has the log start offset too, which
        this does not write. Raises OSError; what was written so far is in `written`.
        """
        files = _Recorded(self, written)
        for capture in ticket.captures:
            capture.write(files)
        if ticket.last is not None:
            written.append(ticket.last.file())

    def sync(
        self, *, data: Iterable[DataFile] = (), paths: Iterable[str] = (), directories: Iterable[str] = ()
    ) -> None:
        """Do nothing: a lost file is built from the bucket again."""

    def settle(self, file: DataFile) -> None:
        """Drop the file from the page cache, but for the first check of one just built. Raises OSError.

        Such a file has no failed write behind it. Dropped, it would be written and read again at once.
        """
        if file.path in self._rebuilt:
            self._rebuilt.remove(file.path)
        else:
            self._storage.forget_cached(file)

    def rebuilt(self, paths: Iterable[str]) -> None:
        """Note files that were just built from the bucket, for their first `settle`."""
        self._rebuilt.update(paths)

    def replace(self, path: str, content: bytes) -> None:
        """Write a temporary file next to the old one, then rename it over that. Raises OSError, NoRoom."""
        self._storage.replace(path, content)

    def ensure(self, path: str, content: bytes) -> None:
        """Do nothing: the file was read as `content`, and need not survive a crash."""

    def begin_common_flush(self, path: str) -> FileSystemFlush | None:
        """Return None: files need no flush."""


class _Recorded:
    """Replaces files by another `DurableFiles`, and records their names and contents."""

    def __init__(self, files: CachedDurability, written: list[tuple[str, bytes]]) -> None:
        self._files = files
        self._written = written
        self.sync, self.ensure = files.sync, files.ensure

    def replace(self, path: str, content: bytes) -> None:
        self._files.replace(path, content)
        self._written.append((path.rpartition("/")[2], content))
