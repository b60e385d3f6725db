"""Data files by name, places in them, and the exception of a read that would wait for the disk.

Opens the data files of one process, and keeps few of them open at a time.

A file is closed when it was not used lately and too many are open (second chance), unless it is pinned. A
retired file is closed for good, because its name may soon belong to another file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from seqgate.log.files.disk import FILE_MODE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from seqgate.log.files.disk import Disk


CLOSED: Final = -1
NEVER: Final = 1 << 63
JUST_WRITTEN_BYTES: Final = 32 << 20
"""The last 32 MiB written, to all files together, are assumed to be in the page cache."""


class DataFile:
    """A data file by name. `Storage` opens and closes its descriptor as needed, unless `pins` is above 0.

    `readers` counts the readers that will read more of the file later. `outlives_name` is True while the
    retired file stays open for these readers.
    """

    __slots__ = (
        "closing",
        "descriptor",
        "failed",
        "outlives_name",
        "path",
        "pins",
        "readers",
        "recently_used",
        "retired",
        "written_after",
        "written_from",
    )

    def __init__(self, path: str) -> None:
        """Take the path, without opening the file."""
        self.path = path
        self.descriptor = CLOSED
        self.pins = 0
        self.recently_used = False
        self.closing = False
        self.failed = False
        self.retired = False
        self.readers = 0
        self.outlives_name = False
        self.written_from = NEVER
        """The position from which on this process has recently written the file."""
        self.written_after = -JUST_WRITTEN_BYTES
        """The bytes written to all files before that write."""


class Place(NamedTuple):
    """A range of bytes in a file. A size of 0 stands for the whole file."""

    path: str
    position: int
    size_bytes: int


class NotCached(Exception):
    """Reading these places would wait for the disk. This is no OSError, because nothing is wrong with the
    file.
    """

    def __init__(self, places: Sequence[Place]) -> None:
        """Take the places that must be read into the page cache first."""
        super().__init__(places)
        self.places = places


# Reads that must not wait for a bucket: the thread of the event loop gets NotCached where only the bucket has
# the bytes.


class Refuses(Protocol):
    """A disk that some threads may ask not to wait for the bucket."""

    refusing: Refusing


class Sparse(Protocol):
    """A storage, and the disk below it if segment files may have holes."""

    @property
    def sparse(self) -> Refuses | None:
        """The disk with holes; None without a bucket."""


class Refusing(threading.local):
    """Whether the reads of a thread must not wait for the bucket."""

    is_on = False


@contextmanager
def without_fetching(storage: Sparse) -> Iterator[None]:
    """Let this thread's reads of absent bytes raise NotCached inside of the `with` block. Reads of the local
    disk wait as ever.

    The block must not await.
    """
    if storage.sparse is None:
        yield
        return
    refusing = storage.sparse.refusing
    before = refusing.is_on
    refusing.is_on = True
    try:
        yield
    finally:
        refusing.is_on = before


NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
_READ_WRITE: Final = os.O_RDWR | os.O_CLOEXEC


class Descriptors:
    """The open data files of a `Storage`. All methods raise OSError, and belong to the thread of the
    storage's owner.
    """

    __slots__ = ("__weakref__", "_disk", "_open", "_outliving", "_pinned", "limit", "reads_ahead")

    def __init__(self, disk: Disk, limit: int) -> None:
        """Keep at most `limit` files open; pinned files may exceed the limit."""
        self._disk = disk
        self.limit = limit
        self.reads_ahead = not disk.tells_cached
        """Whether the kernel may read ahead in files that are opened from now on; see `seqgate.log.files.page_cache`.
        """
        self._open: dict[DataFile, None] = {}
        self._outliving = 0
        self._pinned = 0
        weakref.finalize(self, _close_all, disk.close, self._open)

    def __len__(self) -> int:
        """Return the number of files that are open now."""
        return len(self._open)

    # --- opening

    def create(self, file: DataFile) -> None:
        """Create the file empty, or empty it, and open it."""
        self.release(file)
        self._adopt(file, self._descriptor_of(file.path, _READ_WRITE | os.O_CREAT | os.O_TRUNC))

    def open(self, file: DataFile) -> int:
        """Open a closed file and return its descriptor. Raises FileNotFoundError for a retired file."""
        if file.retired:
            raise FileNotFoundError(errno.ENOENT, "the file is no longer part of the log", file.path)
        descriptor = self._descriptor_of(file.path, _READ_WRITE)
        self._adopt(file, descriptor)
        return descriptor

    def _descriptor_of(self, path: str, flags: int) -> int:
        """Open a data file. If the process has no descriptor left, close another data file and try again."""
        try:
            return self._disk.open(path, flags, FILE_MODE)
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS or not any(not file.pins for file in self._open):
                raise
        self._close_least_recently_used(keep=None, down_to=len(self._open) - 1)
        return self._disk.open(path, flags, FILE_MODE)

    def _adopt(self, file: DataFile, descriptor: int) -> None:
        if not self.reads_ahead:
            self._disk.be_asked(descriptor)
        file.descriptor = descriptor
        file.recently_used = True
        file.closing = False
        self._open[file] = None
        if len(self._open) > self.limit:
            self._close_least_recently_used(keep=file)

    def _close_least_recently_used(self, keep: DataFile | None, down_to: int | None = None) -> None:
        enough = self.limit if down_to is None else down_to
        for _ in range(2 * len(self._open)):
            candidate = next(iter(self._open))
            del self._open[candidate]
            if candidate is keep or candidate.pins or candidate.recently_used:
                candidate.recently_used = False
                self._open[candidate] = None
                continue
            descriptor, candidate.descriptor = candidate.descriptor, CLOSED
            self._disk.close(descriptor)
            if len(self._open) <= enough:
                return

    # --- pinning

    def may_pin(self, count: int) -> bool:
        """Return whether `count` more files can be pinned without exceeding the limit."""
        return self._pinned + count <= self.limit

    def pin(self, file: DataFile) -> None:
        """Open the file and keep its descriptor until `unpin`."""
        if file.descriptor < 0:
            self.open(file)
        self._pinned += not file.pins
        file.pins += 1

    def pin_as(self, file: DataFile, path: str) -> None:
        """Pin a new file whose bytes still have the name `path`; the caller renames them to the file's own
        name later.
        """
        self._adopt(file, self._descriptor_of(path, _READ_WRITE))
        self._pinned += 1
        file.pins = 1

    def unpin(self, file: DataFile) -> None:
        """Undo one `pin`."""
        file.pins -= 1
        self._pinned -= not file.pins
        if not file.pins and file.closing:
            self.release(file)
        elif len(self._open) > self.limit:
            self._close_least_recently_used(keep=None)

    # --- closing

    def release(self, file: DataFile) -> None:
        """Close the descriptor, at once or when the last pin is released."""
        file.closing = file.pins > 0
        if file.closing or file.descriptor < 0:
            return
        self._open.pop(file, None)
        descriptor, file.descriptor = file.descriptor, CLOSED
        self._disk.close(descriptor)

    def retire(self, file: DataFile, *, for_readers: bool = False) -> None:
        """Close the file for good. Its name may soon belong to another file, and a read must never return
        that file's bytes.

        With `for_readers` readers that have begun may finish, even after the file's name is gone. At most
        `limit` retired files are kept open for readers; readers of further files fail.
        """
        if for_readers and file.readers and self._outliving < self.limit:
            with contextlib.suppress(OSError):
                self.pin(file)
                file.outlives_name = True
                self._outliving += 1
        file.retired = True
        self.release(file)

    def begin_reading(self, file: DataFile) -> None:
        """Count a reader that will read more of the file later. The reader must call `end_reading` once."""
        file.readers += 1

    def end_reading(self, file: DataFile) -> None:
        """Undo one `begin_reading`."""
        file.readers -= 1
        if not file.readers and file.outlives_name:
            file.outlives_name = False
            self._outliving -= 1
            self.unpin(file)


def _close_all(close: Callable[[int], None], files: dict[DataFile, None]) -> None:
    """Close all files of descriptors that were garbage-collected."""
    for file in files:
        with contextlib.suppress(OSError):
            close(file.descriptor)
        file.descriptor = CLOSED
