# ruff: noqa: PTH102, PTH105, PTH106, PTH108, PTH110, PTH112, PTH116, PTH120, PTH123, PTH208
"""The one place that opens, writes, flushes, renames and deletes data files.

`Storage` keeps at most `max_open_files` descriptors open and closes the least recently used ones (second chance). A
`DataFile` is a name that is opened when needed. Tests put a storage with a faulty disk in its place.
All methods raise OSError. Only `sync` and `sync_directory` may be called from another thread than the owner's.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import weakref
from typing import TYPE_CHECKING, Final

from log.errors import DirectoryLocked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from log.record_batch import Buffer

DEFAULT_MAX_OPEN_FILES: Final = 512
_CLOSED: Final = -1


class DataFile:
    """A data file by name; its descriptor comes and goes. `pins` counts who needs the descriptor to stay.

    `readers` counts those who will read on later, and `outlives_name` tells that it stays open for them alone.
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
    )

    def __init__(self, path: str) -> None:
        """Name a file; nothing is opened yet."""
        self.path = path
        self.descriptor = _CLOSED
        self.pins = 0
        self.recently_used = False
        self.closing = False
        self.failed = False
        self.retired = False
        self.readers = 0
        self.outlives_name = False


class Storage:
    """Files of one data directory on a real disk."""

    def __init__(self, max_open_files: int = DEFAULT_MAX_OPEN_FILES) -> None:
        """Bound the descriptors kept open; pinned files may exceed the bound."""
        self.max_open_files = max_open_files
        self._open_files: dict[DataFile, None] = {}
        self._locks: dict[str, int] = {}
        self._outliving = 0
        weakref.finalize(self, _close_descriptors, self._open_files, self._locks)

    @property
    def open_files(self) -> int:
        """How many data files are open now."""
        return len(self._open_files)

    # Data files.

    def create(self, file: DataFile) -> None:
        """Create the file empty, or empty it, and open it."""
        self.release(file)
        self._adopt(file, os.open(file.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644))

    def write(self, file: DataFile, buffers: Sequence[Buffer], position: int) -> int:
        """Write the buffers one after the other at `position` with one call; the bytes written may be fewer."""
        descriptor = file.descriptor
        if descriptor < 0:
            descriptor = self._open(file)
        file.recently_used = True
        return os.pwritev(descriptor, buffers, position)

    def read(self, file: DataFile, size_bytes: int, position: int) -> bytes:
        """Read up to `size_bytes` at `position`; fewer at the end of the file."""
        descriptor = file.descriptor
        if descriptor < 0:
            descriptor = self._open(file)
        file.recently_used = True
        return os.pread(descriptor, size_bytes, position)

    def send(self, file: DataFile, socket_descriptor: int, position: int, size_bytes: int) -> int:
        """Send up to `size_bytes` from `position` on to a non-blocking socket, past this process's memory."""
        descriptor = file.descriptor
        if descriptor < 0:
            descriptor = self._open(file)
        file.recently_used = True
        return os.sendfile(socket_descriptor, descriptor, position, size_bytes)

    def truncate(self, file: DataFile, size_bytes: int) -> None:
        """Cut the file to `size_bytes`."""
        os.ftruncate(file.descriptor if file.descriptor >= 0 else self._open(file), size_bytes)

    def sync(self, file: DataFile) -> None:
        """Make the file's bytes durable. After one failure it fails for ever: a second fsync would lie."""
        if file.failed:
            raise OSError(errno.EIO, "an earlier flush of this file failed", file.path)
        try:
            self._sync(file)
        except OSError:
            file.failed = True
            raise

    def forget_cached(self, file: DataFile) -> None:
        """Have what is read next come from the disk: after a failed flush the page cache shows what the disk never got.

        Only flushed pages can be dropped, so `sync` the file first.
        """
        if hasattr(os, "posix_fadvise"):
            descriptor = file.descriptor if file.descriptor >= 0 else self._open(file)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def pin(self, file: DataFile) -> None:
        """Open the file and keep its descriptor until `unpin`."""
        if file.descriptor < 0:
            self._open(file)
        file.pins += 1

    def unpin(self, file: DataFile) -> None:
        """Undo one `pin`."""
        file.pins -= 1
        if not file.pins and file.closing:
            self.release(file)
        elif len(self._open_files) > self.max_open_files:
            self._close_least_recently_used(keep=None)

    def release(self, file: DataFile) -> None:
        """Close the descriptor, at once or when the last pin goes."""
        file.closing = file.pins > 0
        if file.closing or file.descriptor < 0:
            return
        self._open_files.pop(file, None)
        descriptor, file.descriptor = file.descriptor, _CLOSED
        self._close(descriptor)

    def retire(self, file: DataFile, *, for_readers: bool = False) -> None:
        """Close it for good: its name may soon be another file's, which must not be taken for it.

        With `for_readers` those who have begun may finish: the bytes stay theirs until the last one lets go, even when
        the name is gone. At most `max_open_files` files are kept so; the readers of any more fail.
        """
        if for_readers and file.readers and self._outliving < self.max_open_files:
            with contextlib.suppress(OSError):
                self.pin(file)
                file.outlives_name = True
                self._outliving += 1
        file.retired = True
        self.release(file)

    def begin_reading(self, file: DataFile) -> None:
        """Note one who will read on later; it calls `end_reading` once."""
        file.readers += 1

    def end_reading(self, file: DataFile) -> None:
        """Undo one `begin_reading`."""
        file.readers -= 1
        if not file.readers and file.outlives_name:
            file.outlives_name = False
            self._outliving -= 1
            self.unpin(file)

    # Whole files and directories.

    def read_file(self, path: str) -> bytes:
        """The whole content. Raises FileNotFoundError."""
        with open(path, "rb") as stream:
            return stream.read()

    def write_file(self, path: str, content: bytes) -> None:
        """Write the whole content, not durable and not atomic."""
        with open(path, "wb", buffering=0) as stream:
            if stream.write(content) != len(content):
                raise OSError(errno.ENOSPC, "short write", path)

    def sync_path(self, path: str) -> None:
        """Make a file written by `write_file` durable."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_directory(self, path: str) -> None:
        """Make the names in the directory durable."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: str, target: str) -> None:
        """Rename, replacing `target` atomically."""
        os.replace(source, target)

    def delete(self, path: str) -> None:
        """Delete one file; one that is gone already is fine."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def make_directory(self, path: str) -> None:
        """Create the directory and its missing parents, their names durable; one that exists is fine."""
        if os.path.isdir(path):
            return
        parent = os.path.dirname(path) or "."
        self.make_directory(parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
        self.sync_directory(parent)

    def make_undurable_directory(self, path: str) -> None:
        """Create the directory in one that exists; its name is durable once the parent is synced."""
        os.mkdir(path)

    def delete_directory(self, path: str) -> None:
        """Delete an empty directory."""
        os.rmdir(path)

    def list_directory(self, path: str) -> list[str]:
        """The names in the directory, unordered."""
        return os.listdir(path)

    def list_files(self, path: str) -> dict[str, int]:
        """The plain files of the directory with their sizes in bytes."""
        with os.scandir(path) as entries:
            return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}

    def modified_ms(self, path: str) -> int:
        """When the file was last modified, in ms."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def exists(self, path: str) -> bool:
        """Whether there is anything of this name."""
        return os.path.exists(path)

    def replace_file(self, path: str, content: bytes) -> None:
        """Write the file anew, atomically and durably: a crash leaves the old content or the new."""
        temporary = path + ".tmp"
        self.write_file(temporary, content)
        self.sync_path(temporary)
        self.rename(temporary, path)
        self.sync_directory(os.path.dirname(path))

    def lock(self, path: str) -> None:
        """Lock the file for this process. Raises DirectoryLocked when another holder has it."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise DirectoryLocked(
                f"{os.path.dirname(path)} is in use by another process; stop that one first, or choose another data directory"
            ) from error
        self._locks[path] = descriptor

    def unlock(self, path: str) -> None:
        """Give the lock back."""
        descriptor = self._locks.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)

    # Descriptors.

    def _open(self, file: DataFile) -> int:
        if file.retired:
            raise FileNotFoundError(errno.ENOENT, "the file is no longer part of the log", file.path)
        descriptor = os.open(file.path, os.O_RDWR | os.O_CLOEXEC)
        self._adopt(file, descriptor)
        return descriptor

    def _adopt(self, file: DataFile, descriptor: int) -> None:
        file.descriptor = descriptor
        file.recently_used = True
        file.closing = False
        self._open_files[file] = None
        if len(self._open_files) > self.max_open_files:
            self._close_least_recently_used(keep=file)

    def _close_least_recently_used(self, keep: DataFile | None) -> None:
        for _ in range(2 * len(self._open_files)):
            candidate = next(iter(self._open_files))
            del self._open_files[candidate]
            if candidate is keep or candidate.pins or candidate.recently_used:
                candidate.recently_used = False
                self._open_files[candidate] = None
                continue
            descriptor, candidate.descriptor = candidate.descriptor, _CLOSED
            self._close(descriptor)
            if len(self._open_files) <= self.max_open_files:
                return

    def _sync(self, file: DataFile) -> None:
        os.fdatasync(file.descriptor)

    def _close(self, descriptor: int) -> None:
        os.close(descriptor)


def _close_descriptors(open_files: dict[DataFile, None], locks: dict[str, int]) -> None:
    """What a storage that nobody needs any more still had open goes with it."""
    for descriptor in (*(file.descriptor for file in open_files), *locks.values()):
        with contextlib.suppress(OSError):
            os.close(descriptor)
    for file in open_files:
        file.descriptor = _CLOSED
    locks.clear()
