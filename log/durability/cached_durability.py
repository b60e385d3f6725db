"""The durability of a gateway whose records are durable in a bucket: the local disk is a cache, and no fsync is called.

Objects of the write-ahead log make records, side files and log start offsets durable. A crash may leave the local files in any state,
so a start builds them from the bucket again. Until then the log has every record that a ticket took for an object, even after an
outage. So a side file may be written before its object is confirmed; only the log start offset must wait.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from log.files.durable_files import NoRoom
from log.files.file_names import PARTITION_METADATA

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from log.durability.flush_ticket import FlushTicket
    from log.durability.kept_writes import KeptWrites
    from log.files.data_file import DataFile
    from log.files.disk import FileSystemFlush
    from log.files.storage import Storage


class CachedDurability:
    """Writes and renames the files that `LocalDurability` would persist."""

    max_shares = 1
    rounds_overlap = True

    def __init__(self, storage: Storage, kept_writes: KeptWrites | None = None) -> None:
        """Create for the storage that holds the files. Without `kept_writes` rounds read all batches from their files."""
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

    def write_side_files(self, ticket: FlushTicket, written: list[tuple[str, bytes]]) -> None:
        """Write the side files of a ticket, and append the name and content of each to `written`, for an object; any thread may call.

        The object must have the records of the ticket before. `written` has the log start offset too, which this does not
        write. Raises OSError; what was written so far is in `written`.
        """
        files = _Recorded(self, written)
        for path in ticket.paths:
            directory, _, name = path.rpartition("/")
            if name == PARTITION_METADATA and directory == ticket.place.directory:
                written.append((name, self._storage.read_file(path)))
        for capture in ticket.captures:
            capture.write(files)
        if ticket.last is not None:
            written.append(ticket.last.file())

    def sync(
        self,
        *,
        data: Iterable[DataFile] = (),
        paths: Iterable[str] = (),
        directories: Iterable[str] = (),
    ) -> None:
        """Do nothing: a lost file is built from the bucket again."""

    def settle(self, file: DataFile) -> None:
        """Drop the file from the page cache, but for the first check of a file that was just built from the bucket. Raises OSError.

        Such a file has no failed write behind it. Dropped, most of it would be written to the disk and read again at once.
        """
        if file.path in self._rebuilt:
            self._rebuilt.remove(file.path)
        else:
            self._storage.forget_cached(file)

    def rebuilt(self, paths: Iterable[str]) -> None:
        """Note files that were just built from the bucket, for their first `settle`."""
        self._rebuilt.update(paths)

    def replace(self, path: str, content: bytes) -> None:
        """Write a temporary file next to the old one, then rename it over the old one. Raises OSError, NoRoom."""
        temporary = path + ".tmp"
        try:
            self._storage.write_file(temporary, content)
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise NoRoom(error.errno, error.strerror, error.filename) from error
            raise
        self._storage.rename(temporary, path)

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
