# ruff: noqa: PTH102, PTH105, PTH106, PTH108, PTH110, PTH112, PTH116, PTH120, PTH123, PTH208
"""The one place that opens, writes, flushes, renames and deletes data files.

`Storage` keeps at most `max_open_files` descriptors open and closes the least recently used ones (second chance). A
`DataFile` is a name that is opened when needed. Tests put a storage with a faulty disk in its place.
All methods raise OSError. Only `sync`, `sync_directory`, `bring_in`, `drop_cached` and what takes paths (whole files and
directories) may be called from another thread than the owner's. An owner that must not wait for the disk sets `waits` to
False while it reads: what is not in the page cache then raises NotCached, which tells what another thread must bring in
first.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import itertools
import os
import weakref
from typing import TYPE_CHECKING, Final, NamedTuple

from log import page_cache
from log.data_file import CLOSED, JUST_WRITTEN_BYTES, NEVER, DataFile, NotCached, Place
from log.errors import DirectoryLocked
from log.names import DELETED_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from log.record_batch import Buffer


class FileEntry(NamedTuple):
    """A name in a directory; the size is 0 for a directory."""

    name: str
    size_bytes: int
    modified_ms: int
    is_directory: bool


DEFAULT_MAX_OPEN_FILES: Final = 512
_BROUGHT_IN: Final = 1024
"""So many paths are remembered as brought in: their directory entries and inodes need no waiting for."""
_BUFFER_BYTES: Final = 64 << 10


class FileSystemFlush:
    """One flush for what many files got, which takes a fraction of the time of one each. `run` it, once."""

    __slots__ = ("_descriptor", "_path", "_syncfs")

    def __init__(self, path: str, syncfs: Callable[[int], int]) -> None:
        """Errors count from here on: the kernel tells those of later writes to whoever had the directory open."""
        self._path = path
        self._syncfs = syncfs
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def run(self) -> None:
        """Flush. Raises OSError; nobody knows then what reached the disk."""
        try:
            if self._syncfs(self._descriptor):
                raise OSError(ctypes.get_errno(), "the file system could not be flushed", self._path)
        finally:
            os.close(self._descriptor)


class Storage:
    """Files of one data directory on a real disk."""

    def __init__(self, max_open_files: int = DEFAULT_MAX_OPEN_FILES) -> None:
        """Bound the descriptors kept open; pinned files may exceed the bound."""
        self.max_open_files = max_open_files
        self.waits = True
        """Whether `read` and `check_brought_in` let their caller wait for the disk."""
        self.tells_cached = page_cache.TELLS
        """Whether it can be told what would mean to wait; where it can't, everything counts as cached."""
        self._bytes_written = 0
        self._brought_in: dict[str, None] = {}
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
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
        if self._bytes_written - file.written_after >= JUST_WRITTEN_BYTES:
            file.written_after = self._bytes_written
            file.written_from = position
        count = os.pwritev(descriptor, buffers, position)
        self._bytes_written += count
        return count

    def read(self, file: DataFile, size_bytes: int, position: int) -> bytes:
        """Read up to `size_bytes` at `position`; fewer at the end of the file. Raises NotCached unless `waits`."""
        if not self.waits and self.tells_cached and not self._was_just_written(file, position):
            return self._read_cached(file, size_bytes, position)
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

    # The page cache.

    def is_cached(self, file: DataFile, position: int, size_bytes: int) -> bool:
        """Whether reading these bytes, at least one, would not mean to wait for the disk. Looks at samples."""
        if not self.tells_cached or self._was_just_written(file, position):
            return True
        if file.retired and file.descriptor < 0:
            return True  # there is nothing to wait for
        if not self._opens_at_once(file):
            return False
        try:
            return self._is_cached(file, position, size_bytes)
        except page_cache.Untold:
            self.tells_cached = False
            return True

    def check_brought_in(self, paths: Iterable[str]) -> None:
        """Unless `waits`, raises NotCached if any of these files, read whole and seldom, was not brought in lately."""
        if self.waits or not self.tells_cached:
            return
        missing = [Place(path, 0, 0) for path in paths if path not in self._brought_in]
        if missing:
            raise NotCached(missing)

    def brought_in(self, path: str) -> None:
        """Take note that `bring_in` ran for some of the file."""
        self._brought_in.pop(path, None)
        self._brought_in[path] = None
        if len(self._brought_in) > _BROUGHT_IN:
            del self._brought_in[next(iter(self._brought_in))]

    def bring_in(self, place: Place) -> int:
        """Wait until a place is in the page cache; returns how many bytes of it there are.

        Of a segment that was removed and may still be read, too, for as long as its file is there.
        """
        try:
            descriptor = os.open(place.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            descriptor = os.open(place.path + DELETED_SUFFIX, os.O_RDONLY | os.O_CLOEXEC)
        try:
            page_cache.be_asked(descriptor)
            size_bytes = place.size_bytes or os.fstat(descriptor).st_size
            return page_cache.bring_in(descriptor, place.position, size_bytes)
        finally:
            os.close(descriptor)

    def drop_cached(self, place: Place) -> None:
        """Take what is durable of a place out of the page cache; a file that is gone is fine."""
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(place.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                page_cache.drop(descriptor, place.position, place.size_bytes)
            finally:
                os.close(descriptor)

    def _opens_at_once(self, file: DataFile) -> bool:
        # of a file that this process wrote to the inode is in memory
        return file.descriptor >= 0 or file.written_from != NEVER or file.path in self._brought_in

    def _was_just_written(self, file: DataFile, position: int) -> bool:
        return (
            position >= file.written_from
            and self._bytes_written - file.written_after < 2 * JUST_WRITTEN_BYTES
        )

    def _is_cached(self, file: DataFile, position: int, size_bytes: int) -> bool:
        descriptor = file.descriptor if file.descriptor >= 0 else self._open(file)
        return page_cache.is_cached(descriptor, position, size_bytes)

    def _read_cached(self, file: DataFile, size_bytes: int, position: int) -> bytes:
        if not file.retired and not self._opens_at_once(file):
            raise NotCached((Place(file.path, position, size_bytes),))
        descriptor = file.descriptor if file.descriptor >= 0 else self._open(file)
        file.recently_used = True
        large = size_bytes > _BUFFER_BYTES
        buffer = memoryview(bytearray(size_bytes)) if large else self._buffer[:size_bytes]
        try:
            count = page_cache.read(descriptor, buffer, position)
        except page_cache.Untold:
            self.tells_cached = False
            return os.pread(descriptor, size_bytes, position)
        if count < 0:
            raise NotCached((Place(file.path, position, size_bytes),))
        return bytes(buffer[:count])

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
        descriptor, file.descriptor = file.descriptor, CLOSED
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
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            if os.write(descriptor, content) != len(content):
                raise OSError(errno.ENOSPC, "short write", path)
        finally:
            os.close(descriptor)

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

    def begin_file_system_flush(self, path: str) -> FileSystemFlush | None:
        """A flush of everything that will be written to the file system of `path` until it is run; None without one."""
        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        return None if syncfs is None else FileSystemFlush(path, syncfs)

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

    def some_names(self, path: str, limit: int) -> list[str]:
        """At most `limit` of the names in the directory, without a look at the others."""
        with os.scandir(path) as entries:
            return [entry.name for entry in itertools.islice(entries, limit)]

    def entries(self, path: str) -> list[FileEntry]:
        """Everything in the directory with its size (0 of a directory) and when it was last modified.

        What vanishes meanwhile is left out.
        """
        found = []
        with os.scandir(path) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    is_directory = entry.is_dir(follow_symlinks=False)
                    size_bytes = 0 if is_directory else status.st_size
                    found.append(
                        FileEntry(entry.name, size_bytes, status.st_mtime_ns // 1_000_000, is_directory)
                    )
        return found

    def list_files(self, path: str) -> dict[str, int]:
        """The plain files of the directory with their sizes in bytes."""
        with os.scandir(path) as entries:
            return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}

    def size_bytes(self, path: str) -> int:
        """How large the file is."""
        return os.lstat(path).st_size

    def modified_ms(self, path: str) -> int:
        """When the file was last modified, in ms."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Have the file look as if it was last modified then."""
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

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
        if self.tells_cached:
            page_cache.be_asked(descriptor)
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
            descriptor, candidate.descriptor = candidate.descriptor, CLOSED
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
        file.descriptor = CLOSED
    locks.clear()
