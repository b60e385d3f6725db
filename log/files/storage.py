# ruff: noqa: PTH120 - paths are plain strings here
"""The data files of one process: which are open, pinned, read or failed, on a disk (log.disk) that does the rest.

`Storage` keeps at most `max_open_files` descriptors open and closes the least recently used ones (second chance). A
`DataFile` is a name that is opened when needed. Tests put a simulated disk under it.
All methods raise OSError. Only `sync`, `sync_directory`, `bring_in`, `drop_cached` and what takes paths (whole files and
directories) may be called from another thread than the owner's. An owner that must not wait for the disk sets `waits` to
False while it reads: what is not in the page cache then raises NotCached, which tells what another thread must bring in
first.
"""

from __future__ import annotations

import contextlib
import errno
import os
import weakref
from typing import TYPE_CHECKING, Final

from log.errors import DirectoryLocked
from log.files import page_cache
from log.files.data_file import CLOSED, JUST_WRITTEN_BYTES, NEVER, DataFile, NotCached, Place
from log.files.disk import FileSystemFlush, SystemDisk
from log.files.file_names import DELETED_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from log.files.disk import Disk, FileEntry
    from log.format.record_batch import Buffer

DEFAULT_MAX_OPEN_FILES: Final = 512
NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
_BROUGHT_IN: Final = 1024
"""So many paths are remembered as brought in: their directory entries and inodes need no waiting for."""
_READ: Final = os.O_RDONLY | os.O_CLOEXEC
_BUFFER_BYTES: Final = 64 << 10
_READ_BYTES: Final = 64 << 10


class Storage:
    """Files of one data directory."""

    def __init__(self, max_open_files: int = DEFAULT_MAX_OPEN_FILES, disk: Disk | None = None) -> None:
        """Bound the descriptors kept open; pinned files may exceed the bound. Without `disk` it is the system's."""
        disk = SystemDisk() if disk is None else disk
        self._disk = disk
        self._pread, self._pwritev, self._sendfile = disk.pread, disk.pwritev, disk.sendfile
        self.max_open_files = max_open_files
        self.waits = True
        """Whether `read` and `check_brought_in` let their caller wait for the disk."""
        self.tells_cached = disk.tells_cached
        """Whether it can be told what would mean to wait; where it can't, everything counts as cached."""
        self._bytes_written = 0
        self._brought_in: dict[str, None] = {}
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._open_files: dict[DataFile, None] = {}
        self._locks: dict[str, int] = {}
        self._outliving = 0
        self._pinned = 0
        weakref.finalize(self, _close_descriptors, disk.close, self._open_files, self._locks)

    @property
    def open_files(self) -> int:
        """How many data files are open now."""
        return len(self._open_files)

    # Data files.

    def create(self, file: DataFile) -> None:
        """Create the file empty, or empty it, and open it."""
        self.release(file)
        self._adopt(file, self._descriptor_of(file.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC))

    def write(self, file: DataFile, buffers: Sequence[Buffer], position: int) -> int:
        """Write the buffers one after the other at `position` with one call; the bytes written may be fewer."""
        descriptor = file.descriptor
        if descriptor < 0:
            descriptor = self._open(file)
        file.recently_used = True
        if self._bytes_written - file.written_after >= JUST_WRITTEN_BYTES:
            file.written_after = self._bytes_written
            file.written_from = position
        count = self._pwritev(descriptor, buffers, position)
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
        return self._pread(descriptor, size_bytes, position)

    def send(self, file: DataFile, socket_descriptor: int, position: int, size_bytes: int) -> int:
        """Send up to `size_bytes` from `position` on to a non-blocking socket, past this process's memory."""
        descriptor = file.descriptor
        if descriptor < 0:
            descriptor = self._open(file)
        file.recently_used = True
        return self._sendfile(socket_descriptor, descriptor, position, size_bytes)

    def truncate(self, file: DataFile, size_bytes: int) -> None:
        """Cut the file to `size_bytes`."""
        self._disk.ftruncate(file.descriptor if file.descriptor >= 0 else self._open(file), size_bytes)

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
        self._disk.drop_cached(file.descriptor if file.descriptor >= 0 else self._open(file), 0, 0)

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

    @contextlib.contextmanager
    def may_wait(self) -> Iterator[None]:
        """Let the reads of the block wait for the disk, whatever `waits` says around it."""
        waits, self.waits = self.waits, True
        try:
            yield
        finally:
            self.waits = waits

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
        disk = self._disk
        try:
            descriptor = disk.open(place.path, _READ)
        except FileNotFoundError:
            descriptor = disk.open(place.path + DELETED_SUFFIX, _READ)
        try:
            disk.be_asked(descriptor)
            size_bytes = place.size_bytes or disk.open_size_bytes(descriptor)
            return disk.bring_in(descriptor, place.position, size_bytes)
        finally:
            disk.close(descriptor)

    def drop_cached(self, place: Place) -> None:
        """Take what is durable of a place out of the page cache; a file that is gone is fine."""
        with contextlib.suppress(FileNotFoundError):
            descriptor = self._disk.open(place.path, _READ)
            try:
                self._disk.drop_cached(descriptor, place.position, place.size_bytes)
            finally:
                self._disk.close(descriptor)

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
        return self._disk.is_cached(descriptor, position, size_bytes)

    def _read_cached(self, file: DataFile, size_bytes: int, position: int) -> bytes:
        if not file.retired and not self._opens_at_once(file):
            raise NotCached((Place(file.path, position, size_bytes),))
        descriptor = file.descriptor if file.descriptor >= 0 else self._open(file)
        file.recently_used = True
        large = size_bytes > _BUFFER_BYTES
        buffer = memoryview(bytearray(size_bytes)) if large else self._buffer[:size_bytes]
        try:
            count = self._disk.read_cached(descriptor, buffer, position)
        except page_cache.Untold:
            self.tells_cached = False
            return self._pread(descriptor, size_bytes, position)
        if count < 0:
            raise NotCached((Place(file.path, position, size_bytes),))
        return bytes(buffer[:count])

    def may_pin(self, count: int) -> bool:
        """Whether so many more can be pinned and the bound still be kept."""
        return self._pinned + count <= self.max_open_files

    def pin(self, file: DataFile) -> None:
        """Open the file and keep its descriptor until `unpin`."""
        if file.descriptor < 0:
            self._open(file)
        self._pinned += not file.pins
        file.pins += 1

    def unpin(self, file: DataFile) -> None:
        """Undo one `pin`."""
        file.pins -= 1
        self._pinned -= not file.pins
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
        descriptor = self._disk.open(path, _READ)
        try:
            parts = []
            position = 0
            while part := self._pread(descriptor, _READ_BYTES, position):
                parts.append(part)
                position += len(part)
            return b"".join(parts)
        finally:
            self._disk.close(descriptor)

    def write_file(self, path: str, content: bytes) -> None:
        """Write the whole content, not durable and not atomic."""
        descriptor = self._disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            if self._pwritev(descriptor, (content,), 0) != len(content):
                raise OSError(errno.ENOSPC, "short write", path)
        finally:
            self._disk.close(descriptor)

    def sync_path(self, path: str) -> None:
        """Make a file written by `write_file` durable."""
        self._sync_name(path, _READ)

    def sync_directory(self, path: str) -> None:
        """Make the names in the directory durable."""
        self._sync_name(path, _READ | os.O_DIRECTORY)

    def _sync_name(self, path: str, flags: int) -> None:
        descriptor = self._disk.open(path, flags)
        try:
            self._disk.fsync(descriptor)
        finally:
            self._disk.close(descriptor)

    def begin_file_system_flush(self, path: str) -> FileSystemFlush | None:
        """A flush of everything that will be written to the file system of `path` until it is run; None without one."""
        syncfs = self._disk.find_syncfs()
        return None if syncfs is None else FileSystemFlush(self._disk, path, syncfs)

    def rename(self, source: str, target: str) -> None:
        """Rename, replacing `target` atomically."""
        self._disk.replace(source, target)

    def delete(self, path: str) -> None:
        """Delete one file; one that is gone already is fine."""
        with contextlib.suppress(FileNotFoundError):
            self._disk.unlink(path)

    def make_directory(self, path: str) -> None:
        """Create the directory and its missing parents, their names durable; one that exists is fine."""
        if self._disk.is_directory(path):
            return
        parent = os.path.dirname(path) or "."
        self.make_directory(parent)
        with contextlib.suppress(FileExistsError):
            self._disk.mkdir(path)
        self.sync_directory(parent)

    def make_undurable_directory(self, path: str) -> None:
        """Create the directory in one that exists; its name is durable once the parent is synced."""
        self._disk.mkdir(path)

    def delete_directory(self, path: str) -> None:
        """Delete an empty directory."""
        self._disk.rmdir(path)

    def list_directory(self, path: str) -> list[str]:
        """The names in the directory, unordered."""
        return self._disk.list_directory(path)

    def some_names(self, path: str, limit: int) -> list[str]:
        """At most `limit` of the names in the directory, without a look at the others."""
        return self._disk.some_names(path, limit)

    def entries(self, path: str) -> list[FileEntry]:
        """Everything in the directory with its size (0 of a directory) and when it was last modified.

        What vanishes meanwhile is left out.
        """
        return self._disk.entries(path)

    def list_files(self, path: str) -> dict[str, int]:
        """The plain files of the directory with their sizes in bytes."""
        return self._disk.list_files(path)

    def size_bytes(self, path: str) -> int:
        """How large the file is."""
        return self._disk.size_bytes(path)

    def modified_ms(self, path: str) -> int:
        """When the file was last modified, in ms."""
        return self._disk.modified_ms(path)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Have the file look as if it was last modified then."""
        self._disk.set_modified_ms(path, modified_ms)

    def free_bytes(self, path: str) -> int:
        """How much may still be written to the file system of `path`."""
        return self._disk.free_bytes(path)

    def exists(self, path: str) -> bool:
        """Whether there is anything of this name."""
        return self._disk.exists(path)

    def replace_file(self, path: str, content: bytes) -> None:
        """Write the file anew, atomically and durably: a crash leaves the old content or the new."""
        temporary = path + ".tmp"
        self.write_file(temporary, content)
        self.sync_path(temporary)
        self.rename(temporary, path)
        self.sync_directory(os.path.dirname(path))

    def lock(self, path: str) -> None:
        """Lock the file for this process. Raises DirectoryLocked when another holder has it."""
        descriptor = self._disk.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._disk.lock(descriptor)
        except OSError as error:
            self._disk.close(descriptor)
            raise DirectoryLocked(
                f"{os.path.dirname(path)} is in use by another process; stop that one first, or choose another data directory"
            ) from error
        self._locks[path] = descriptor

    def unlock(self, path: str) -> None:
        """Give the lock back."""
        descriptor = self._locks.pop(path, None)
        if descriptor is not None:
            self._disk.close(descriptor)

    # Descriptors.

    def _open(self, file: DataFile) -> int:
        if file.retired:
            raise FileNotFoundError(errno.ENOENT, "the file is no longer part of the log", file.path)
        descriptor = self._descriptor_of(file.path, os.O_RDWR | os.O_CLOEXEC)
        self._adopt(file, descriptor)
        return descriptor

    def _descriptor_of(self, path: str, flags: int) -> int:
        """Open a data file; where the process has no descriptor left, instead of another one."""
        try:
            return self._disk.open(path, flags, 0o644)
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS or not any(not file.pins for file in self._open_files):
                raise
        self._close_least_recently_used(keep=None, down_to=len(self._open_files) - 1)
        return self._disk.open(path, flags, 0o644)

    def _adopt(self, file: DataFile, descriptor: int) -> None:
        if self.tells_cached:
            self._disk.be_asked(descriptor)
        file.descriptor = descriptor
        file.recently_used = True
        file.closing = False
        self._open_files[file] = None
        if len(self._open_files) > self.max_open_files:
            self._close_least_recently_used(keep=file)

    def _close_least_recently_used(self, keep: DataFile | None, down_to: int | None = None) -> None:
        enough = self.max_open_files if down_to is None else down_to
        for _ in range(2 * len(self._open_files)):
            candidate = next(iter(self._open_files))
            del self._open_files[candidate]
            if candidate is keep or candidate.pins or candidate.recently_used:
                candidate.recently_used = False
                self._open_files[candidate] = None
                continue
            descriptor, candidate.descriptor = candidate.descriptor, CLOSED
            self._close(descriptor)
            if len(self._open_files) <= enough:
                return

    def _sync(self, file: DataFile) -> None:
        self._disk.fdatasync(file.descriptor)

    def _close(self, descriptor: int) -> None:
        self._disk.close(descriptor)


def _close_descriptors(
    close: Callable[[int], None], open_files: dict[DataFile, None], locks: dict[str, int]
) -> None:
    """What a storage that nobody needs any more still had open goes with it."""
    for descriptor in (*(file.descriptor for file in open_files), *locks.values()):
        with contextlib.suppress(OSError):
            close(descriptor)
    for file in open_files:
        file.descriptor = CLOSED
    locks.clear()
