# ruff: noqa: PTH120 - paths are plain strings here
"""Reads and writes the files of a data directory, on a `Disk` of system calls (seqgate.log.files.disk).

A `DataFile` is a file name with a descriptor that `Descriptors` opens when needed. Few files are open at a
time: a file is closed when it was not used lately and too many are open (second chance), unless it is pinned.
A retired file is closed for good, because its name may soon belong to another file.

Tests put a simulated disk under the storage. All methods raise OSError. Only the fsyncs, `read_pinned`,
`forget_cached` of a pinned file, `bring_in`, `drop_cached` and the methods that take paths may be called from
another thread than the owner's. An owner that must not wait for the disk sets `waits` to False while it
reads. Bytes that are not in the page cache then raise NotCached, with the places that another thread must
read into the page cache first.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, Protocol

from seqgate.log.errors import DirectoryLocked
from seqgate.log.files import page_cache
from seqgate.log.files.disk import FILE_MODE, Disk, FileEntry, FileSystemFlush, SystemDisk
from seqgate.log.files.file_names import DELETED_SUFFIX, SWAP_SUFFIX, TEMPORARY_SUFFIX
from seqgate.log.files.page_cache import NotCached, PageRange
from seqgate.log.files.sparse_disk import SparseDisk
from seqgate.log.format.record_batch import Buffer

CLOSED: Final = -1
NEVER: Final = 1 << 63
JUST_WRITTEN_BYTES: Final = 32 << 20
"""The last 32 MiB written, to all files together, are assumed to be in the page cache."""
NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
_READ_WRITE: Final = os.O_RDWR | os.O_CLOEXEC
DEFAULT_MAX_OPEN_FILES: Final = 512
_BROUGHT_IN: Final = 1024
"""Paths remembered as in the page cache, directory entry and inode included; the oldest is forgotten."""
_OPEN_APART: Final = 16
"""Data files that a storage of another thread keeps open."""
_READ: Final = os.O_RDONLY | os.O_CLOEXEC
_BUFFER_BYTES: Final = 64 << 10
_READ_BYTES: Final = 64 << 10
_COPIED_AT_ONCE_BYTES: Final = 1 << 20


class Storage:
    """Files of one data directory."""

    def __init__(
        self,
        max_open_files: int = DEFAULT_MAX_OPEN_FILES,
        disk: Disk | None = None,
        kept_locks: dict[str, int] | None = None,
    ) -> None:
        """Keep `max_open_files` data files open at most, beside pinned ones. By default use the system.
        `kept_locks` are descriptors, by real path, of files that the process before has left locked.
        """
        disk = SystemDisk() if disk is None else disk
        self._disk = disk
        self.sparse = disk if isinstance(disk, SparseDisk) else None
        """The disk, if segment files may have holes: a bucket has their bytes."""
        self._pread, self._pwritev, self._sendfile = disk.pread, disk.pwritev, disk.sendfile
        self.descriptors = Descriptors(disk, max_open_files)
        self._making_lock = threading.Lock()
        self.waits = True
        """Whether `read` and `check_brought_in` may wait for the disk; if not, they raise NotCached."""
        self.tells_cached = disk.tells_cached
        """Whether the system reports what is in the page cache. If not, everything counts as cached."""
        self.keeps_deleted = False
        """Whether old snapshots and files to be deleted stay, because a backup gives files second names."""
        self._bytes_written = 0
        self._brought_in: dict[str, None] = {}
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._locks: dict[str, int] = {}
        self._kept_locks = {} if kept_locks is None else kept_locks
        """Locks that `unlock` does not release."""
        weakref.finalize(self, _unlock_all, disk.close, self._locks, self._kept_locks)

    def apart(self) -> Storage:
        """Return a storage for another thread, on the same disk."""
        return Storage(_OPEN_APART, self._disk)

    def with_holes(self) -> Storage:
        """Return a storage on the same disk whose segment files may have holes. Call before any opening."""
        return Storage(self.descriptors.limit, SparseDisk(self._disk), self._kept_locks)

    # --- data files

    def create(self, file: DataFile) -> None:
        """Create the file empty, or empty it, and open it."""
        self.descriptors.create(file)

    def write(self, file: DataFile, buffers: Sequence[Buffer], position: int) -> int:
        """Write the buffers at `position` in one system call. Return the bytes written, perhaps fewer."""
        descriptor = file.descriptor
        if descriptor < 0:
            descriptor = self.descriptors.open(file)
        file.recently_used = True
        if self._bytes_written - file.written_after >= JUST_WRITTEN_BYTES:
            file.written_after = self._bytes_written
            file.written_from = position
        count = self._pwritev(descriptor, buffers, position)
        self._bytes_written += count
        return count

    def read(self, file: DataFile, size_bytes: int, position: int) -> bytes:
        """Return up to `size_bytes` at `position`, fewer at the end. Raises NotCached unless `waits`."""
        if not self.waits and self.tells_cached and not self.was_just_written(file, position):
            return self._read_cached(file, size_bytes, position)
        descriptor = file.descriptor
        if descriptor < 0:
            descriptor = self.descriptors.open(file)
        file.recently_used = True
        return self._pread(descriptor, size_bytes, position)

    def read_pinned(self, file: DataFile, size_bytes: int, position: int) -> bytes:
        """Return up to `size_bytes` bytes of a pinned file; any thread may call, and waits for the disk."""
        return self._pread(file.descriptor, size_bytes, position)

    def read_by_name(self, path: str, size_bytes: int, position: int) -> bytes:
        """Return up to `size_bytes` of a file that may be closed. Any thread may call, and waits."""
        with self._opened(path, _READ) as descriptor:
            return self._pread(descriptor, size_bytes, position)

    def send(self, file: DataFile, socket_descriptor: int, position: int, size_bytes: int) -> int:
        """Send up to `size_bytes` to a non-blocking socket by sendfile. Return how many bytes it took."""
        descriptor = file.descriptor
        if descriptor < 0:
            descriptor = self.descriptors.open(file)
        file.recently_used = True
        return self._sendfile(socket_descriptor, descriptor, position, size_bytes)

    def write_all(self, file: DataFile, data: Buffer, position: int) -> int:
        """Write the data at `position` with as many system calls as needed. Return the position after it."""
        rest = memoryview(data)
        while rest:
            written = self.write(file, (rest,), position)
            rest, position = rest[written:], position + written
        return position

    def copy(self, source: DataFile, start: int, end: int, target: DataFile, position: int) -> int:
        """Copy bytes from `start` to `end` to a position of another file; return the position after."""
        while start < end:
            data = self.read(source, min(_COPIED_AT_ONCE_BYTES, end - start), start)
            if not data or self.write(target, (data,), position) != len(data):
                raise OSError(f"{target.path} can't be written; check that the disk is not full")
            start, position = start + len(data), position + len(data)
        return position

    def truncate(self, file: DataFile, size_bytes: int) -> None:
        self._disk.ftruncate(
            file.descriptor if file.descriptor >= 0 else self.descriptors.open(file), size_bytes
        )

    def fdatasync(self, file: DataFile) -> None:
        """Persist the bytes. After a failure all calls fail: a second fsync would report false success. So
        would one beside it, because Linux tells an error once: calls for one file wait for each other.
        """
        with self._flush_lock(file):
            if file.failed:
                raise OSError(errno.EIO, "an earlier flush of this file failed", file.path)
            try:
                self._sync(file)
            except OSError:
                file.failed = True
                raise

    def _flush_lock(self, file: DataFile) -> threading.Lock:
        lock = file.flush_lock
        if lock is None:
            with self._making_lock:
                lock = file.flush_lock = file.flush_lock or threading.Lock()
        return lock

    def forget_cached(self, file: DataFile) -> None:
        """Drop the file from the page cache, so that later reads return what is on the disk.

        After a failed flush the page cache may hold bytes that the disk never got. The kernel drops only
        flushed pages, so `fdatasync` the file first.
        """
        self._disk.drop_cached(file.descriptor if file.descriptor >= 0 else self.descriptors.open(file), 0, 0)

    # --- the page cache

    def is_cached(self, file: DataFile, position: int, size_bytes: int) -> bool:
        """Return whether these bytes, at least one, are in the page cache. Checks samples only."""
        if not self.tells_cached or self.was_just_written(file, position):
            return True
        if file.retired and file.descriptor < 0:
            return True  # a read of this file fails without waiting
        if not self._opens_at_once(file):
            return False
        try:
            descriptor = file.descriptor if file.descriptor >= 0 else self.descriptors.open(file)
            return self._disk.is_cached(descriptor, position, size_bytes)
        except page_cache.Untold:
            self._stop_asking()
            return True

    @contextlib.contextmanager
    def may_wait(self) -> Iterator[None]:
        """Let the reads inside of the `with` block wait for the disk, even if `waits` is False."""
        waits, self.waits = self.waits, True
        try:
            yield
        finally:
            self.waits = waits

    def check_brought_in(self, paths: Iterable[str]) -> None:
        """Raise NotCached, unless it `waits`, if a file was not read into the page cache lately. Meant for
        files that are seldom read, and then as a whole.
        """
        if self.waits or not self.tells_cached:
            return
        missing = [PageRange(path, 0, 0) for path in paths if path not in self._brought_in]
        if missing:
            raise NotCached(missing)

    def brought_in(self, path: str) -> None:
        """Remember that `bring_in` ran for a part of the file."""
        self._brought_in.pop(path, None)
        self._brought_in[path] = None
        if len(self._brought_in) > _BROUGHT_IN:
            del self._brought_in[next(iter(self._brought_in))]

    def bring_in(self, place: PageRange) -> int:
        """Read a place into the page cache. Return how many bytes of the place exist. Also finds a cleaned
        segment whose swap is not over, and a removed one before its deletion.
        """
        disk = self._disk
        descriptor = self._open_any(place.path, place.path + SWAP_SUFFIX, place.path + DELETED_SUFFIX)
        try:
            disk.be_asked(descriptor)
            size_bytes = place.size_bytes or disk.open_size_bytes(descriptor)
            return disk.bring_in(descriptor, place.position, size_bytes)
        finally:
            disk.close(descriptor)

    def _open_any(self, *paths: str) -> int:
        """Open the first of these files that exists. Raises FileNotFoundError without any."""
        for path in paths[:-1]:
            with contextlib.suppress(FileNotFoundError):
                return self._disk.open(path, _READ)
        return self._disk.open(paths[-1], _READ)

    def drop_cached(self, place: PageRange) -> None:
        """Drop the durable pages of a place from the page cache. A missing file is no error."""
        with contextlib.suppress(FileNotFoundError), self._opened(place.path, _READ) as descriptor:
            self._disk.drop_cached(descriptor, place.position, place.size_bytes)

    def _opens_at_once(self, file: DataFile) -> bool:
        # The inode of a file that this process wrote to is in memory.
        return file.descriptor >= 0 or file.written_from != NEVER or file.path in self._brought_in

    def was_just_written(self, file: DataFile, position: int) -> bool:
        """Return whether the bytes from `position` on are among the last that this process wrote."""
        return (
            position >= file.written_from
            and self._bytes_written - file.written_after < 2 * JUST_WRITTEN_BYTES
            and (self.sparse is None or not self.sparse.lacks_from(file.path, position))
        )

    def _stop_asking(self) -> None:
        """Assume from now on that all bytes are cached, and let the kernel read ahead."""
        self.tells_cached = False
        self.descriptors.reads_ahead = True

    def _read_cached(self, file: DataFile, size_bytes: int, position: int) -> bytes:
        if not file.retired and not self._opens_at_once(file):
            raise NotCached((PageRange(file.path, position, size_bytes),))
        descriptor = file.descriptor if file.descriptor >= 0 else self.descriptors.open(file)
        file.recently_used = True
        large = size_bytes > _BUFFER_BYTES
        buffer = memoryview(bytearray(size_bytes)) if large else self._buffer[:size_bytes]
        try:
            count = self._disk.read_cached(descriptor, buffer, position)
        except page_cache.Untold:
            self._stop_asking()
            return self._pread(descriptor, size_bytes, position)
        if count < 0:
            raise NotCached((PageRange(file.path, position, size_bytes),))
        return bytes(buffer[:count])

    # --- whole files and directories

    @contextlib.contextmanager
    def _opened(self, path: str, flags: int) -> Iterator[int]:
        descriptor = self._disk.open(path, flags, FILE_MODE)
        try:
            yield descriptor
        finally:
            self._disk.close(descriptor)

    def read_file(self, path: str) -> bytes:
        """Return the whole content. Raises FileNotFoundError."""
        parts = []
        position = 0
        with self._opened(path, _READ) as descriptor:
            while part := self._pread(descriptor, _READ_BYTES, position):
                parts.append(part)
                position += len(part)
        return b"".join(parts)

    def write_file(self, path: str, content: bytes) -> None:
        """Write the whole content, neither durably nor atomically."""
        with self._opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC) as descriptor:
            if self._pwritev(descriptor, (content,), 0) != len(content):
                raise OSError(errno.ENOSPC, "only a part of the bytes was written", path)

    def replace(self, path: str, content: bytes, written: Callable[[str], None] | None = None) -> str:
        """Write a temporary file and rename it over the file, so that a reader or a crash of the process
        finds the old content or the new one. Return the path. Raises NoRoom.

        Nothing is durable before a flush. `written` is called with the path of the temporary file before the
        rename; `DurableFiles.replace` replaces durably.
        """
        temporary = path + TEMPORARY_SUFFIX
        try:
            self.write_file(temporary, content)
            if written is not None:
                written(temporary)
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise NoRoom(error.errno, error.strerror, error.filename) from error
            raise
        self.rename(temporary, path)
        return path

    def fsync_path(self, path: str) -> None:
        """Persist a file written by `write_file`. Only `seqgate.log.durability` decides about the fsyncs."""
        with self._opened(path, _READ) as descriptor:
            self._disk.fsync(descriptor)

    def fsync_directory(self, path: str) -> None:
        """Make the names in the directory durable."""
        with self._opened(path, _READ | os.O_DIRECTORY) as descriptor:
            self._disk.fsync(descriptor)

    def begin_syncfs(self, path: str) -> FileSystemFlush | None:
        """Return a flush of all written to the file system of `path` until it runs; None without."""
        syncfs = self._disk.find_syncfs()
        return None if syncfs is None else FileSystemFlush(self._disk, path, syncfs)

    def rename(self, source: str, target: str) -> None:
        """Rename, replacing `target` atomically."""
        self._disk.replace(source, target)

    def link(self, source: str, target: str) -> None:
        """Give the file a second name on the same file system."""
        self._disk.link(source, target)

    def delete(self, path: str) -> None:
        """Delete one file. A missing file is no error."""
        with contextlib.suppress(FileNotFoundError):
            self._disk.unlink(path)

    def make_directories(self, path: str) -> list[str]:
        """Create the directory and missing parents. Return those with new names, not durable yet."""
        if self._disk.is_directory(path):
            return []
        parent = os.path.dirname(path) or "."
        changed = self.make_directories(parent)
        with contextlib.suppress(FileExistsError):
            self._disk.mkdir(path)
        return [*changed, parent]

    def make_directory(self, path: str) -> None:
        """Create the directory inside of an existing one. Its name is durable once the parent is synced."""
        self._disk.mkdir(path)

    def delete_directory(self, path: str) -> None:
        self._disk.rmdir(path)

    def empty(self, path: str, kept: Collection[str] = ()) -> None:
        """Delete all that a directory holds, but for these names."""
        for entry in self.entries(path):
            if entry.name in kept:
                continue
            if entry.is_directory:
                self.remove_tree(f"{path}/{entry.name}")
            else:
                self.delete(f"{path}/{entry.name}")

    def remove_tree(self, path: str) -> None:
        self.empty(path)
        self.delete_directory(path)

    def list_directory(self, path: str) -> list[str]:
        """Return the names in the directory, unordered."""
        return self._disk.list_directory(path)

    def some_names(self, path: str, limit: int) -> list[str]:
        """Return at most `limit` of the names in the directory, without listing the others."""
        return self._disk.some_names(path, limit)

    def entries(self, path: str) -> list[FileEntry]:
        """Return the entries of the directory, except those that are deleted during the call."""
        return self._disk.entries(path)

    def list_files(self, path: str) -> dict[str, int]:
        """Return the plain files of the directory with their sizes in bytes."""
        return self._disk.list_files(path)

    def size_bytes(self, path: str) -> int:
        return self._disk.size_bytes(path)

    def modified_ms(self, path: str) -> int:
        return self._disk.modified_ms(path)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._disk.set_modified_ms(path, modified_ms)

    def free_bytes(self, path: str) -> int:
        return self._disk.free_bytes(path)

    def exists(self, path: str) -> bool:
        return self._disk.exists(path)

    def lock(self, path: str) -> None:
        """Lock the file for this process. Raises DirectoryLocked when another process holds the lock."""
        real_path = self._disk.real_path(path)
        if real_path in self._kept_locks:
            self._locks[real_path] = self._kept_locks[real_path]
            return
        descriptor = self._disk.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            self._disk.lock(descriptor)
        except OSError as error:
            pid = self._disk.lock_holder(descriptor)
            self._disk.close(descriptor)
            raise DirectoryLocked(
                f"{os.path.dirname(path)} is in use by another process{f' (pid {pid})' if pid else ''}; stop "
                "that one first, or choose another data directory"
            ) from error
        self._locks[real_path] = descriptor

    def unlock(self, path: str) -> None:
        real_path = self._disk.real_path(path)
        descriptor = self._locks.pop(real_path, None)
        if descriptor is not None and real_path not in self._kept_locks:
            self._disk.close(descriptor)

    def keep_locks(self) -> dict[str, int]:
        """Return the descriptors of the locked files by real path, for the process that takes the place of
        this one. From now on `unlock` leaves them locked, until `release_kept_locks`.
        """
        self._kept_locks.update(self._locks)
        return dict(self._kept_locks)

    def release_kept_locks(self) -> None:
        """Let `unlock` release again what was kept; release at once what this process has not locked."""
        for path, descriptor in self._kept_locks.items():
            if path not in self._locks:
                self._disk.close(descriptor)
        self._kept_locks.clear()

    def _sync(self, file: DataFile) -> None:
        self._disk.fdatasync(file.descriptor)


def _unlock_all(close: Callable[[int], None], locks: dict[str, int], kept: dict[str, int]) -> None:
    """Release all locks of a storage that was garbage-collected, but for those that are kept."""
    for path, descriptor in locks.items():
        if path not in kept:
            with contextlib.suppress(OSError):
                close(descriptor)
    locks.clear()


class DataFile:
    """A data file by name. `Storage` opens and closes its descriptor as needed, unless `pins` is above 0.

    `readers` counts the readers that will read more of the file later. `outlives_name` is True while the
    retired file stays open for these readers.
    """

    __slots__ = (
        "closing",
        "descriptor",
        "failed",
        "flush_lock",
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
        self.flush_lock: threading.Lock | None = None
        """Held by a thread that flushes the file; None before its first flush."""
        self.retired = False
        self.readers = 0
        self.outlives_name = False
        self.written_from = NEVER
        """The position from which on this process has recently written the file."""
        self.written_after = -JUST_WRITTEN_BYTES
        """The bytes written to all files before that write."""


class Descriptors:
    """The open data files of a `Storage`. All methods raise OSError, and belong to its owner's thread."""

    __slots__ = ("__weakref__", "_disk", "_open", "_outliving", "_pinned", "limit", "reads_ahead")

    def __init__(self, disk: Disk, limit: int) -> None:
        """Keep at most `limit` files open; pinned files may exceed the limit."""
        self._disk = disk
        self.limit = limit
        self.reads_ahead = not disk.tells_cached
        """Whether the kernel may read ahead in files opened now; see `seqgate.log.files.page_cache`."""
        self._open: dict[DataFile, None] = {}
        self._outliving = 0
        self._pinned = 0
        weakref.finalize(self, _close_all, disk.close, self._open)

    def __len__(self) -> int:
        return len(self._open)

    # --- opening

    def create(self, file: DataFile) -> None:
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

    def pin_all(self, files: Sequence[DataFile]) -> bool:
        """Pin all of the files. Return False, without pinning any, where that could exceed the limit."""
        if self._pinned + len(files) > self.limit:
            return False
        for number, file in enumerate(files):
            if file.descriptor < 0:
                try:
                    self.open(file)
                except OSError:
                    for pinned in files[:number]:
                        self.unpin(pinned)
                    raise
            self._pinned += not file.pins
            file.pins += 1
        return True

    def pin(self, file: DataFile) -> None:
        """Open the file and keep its descriptor until `unpin`."""
        if file.descriptor < 0:
            self.open(file)
        self._pinned += not file.pins
        file.pins += 1

    @contextlib.contextmanager
    def pinned(self, file: DataFile) -> Iterator[None]:
        self.pin(file)
        try:
            yield
        finally:
            self.unpin(file)

    def pin_as(self, file: DataFile, path: str) -> None:
        """Pin a new file whose bytes have the name `path`, until the caller renames them."""
        self._adopt(file, self._descriptor_of(path, _READ_WRITE))
        self._pinned += 1
        file.pins = 1

    def unpin(self, file: DataFile) -> None:
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
        """Close the file for good. Its name may soon be another's, whose bytes no read must return.

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


class NoRoom(OSError):
    """The disk has no room for the new content of a file, which surely has its old content still."""


class DurableFiles(Protocol):
    """Persists files and names. Any thread may call, but no method belongs on the event loop. All methods
    raise OSError. `seqgate.log.durability.durability` implements it.

    A start, a repair and the process that compacts call them for files that no ticket carries. They say what
    must be durable and in which order. The durability decides whether the local disk must know: another one
    may keep the truth elsewhere.
    """

    def sync(
        self, *, data: Iterable[DataFile] = (), paths: Iterable[str] = (), directories: Iterable[str] = ()
    ) -> None:
        """Persist the bytes of open data files, then of the files at `paths`, then the directories' names."""

    def replace(self, path: str, content: bytes) -> None:
        """Replace the content atomically and durably: a crash leaves one of both. Raises NoRoom."""

    def ensure(self, path: str, content: bytes) -> None:
        """Make sure that a file which was read as `content` is durable with that content."""
