# ruff: noqa: PTH102, PTH116 - paths are plain strings here, as in the storage
"""The one module that opens data files, with the system calls that the storage needs.

`Disk` declares the calls, `SystemDisk` makes them. Tests use a simulated disk instead, which can fail, or
lose bytes that were never flushed. Only the disk that returned a descriptor understands it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from seqgate.log.files import page_cache
from seqgate.log.format.record_batch import Buffer

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
"""Only the owner reads the data, whatever the umask is: records, names of users and their credentials."""

_PUNCH_HOLE: Final = 0x03
"""FALLOC_FL_PUNCH_HOLE and FALLOC_FL_KEEP_SIZE of Linux's fallocate(2)."""


class FileEntry(NamedTuple):
    """An entry of a directory. The size is 0 if the entry is a directory itself. Inode and time in ns tell
    whether this is the file that had the name before; 0 where unknown.
    """

    name: str
    size_bytes: int
    modified_ms: int
    is_directory: bool
    inode: int = 0
    modified_ns: int = 0


class Disk(Protocol):
    """Calls as in the modules `os` and `os.path`, with positional arguments; the others have a sentence. Any
    thread may call; all raise OSError.
    """

    @property
    def tells_cached(self) -> bool:
        """Whether `is_cached` and `read_cached` may be called."""

    # --- descriptors

    def open(self, path: str, flags: int, mode: int = ..., /) -> int: ...
    def close(self, descriptor: int, /) -> None: ...
    def pread(self, descriptor: int, size_bytes: int, position: int, /) -> bytes: ...
    def pwritev(self, descriptor: int, buffers: Sequence[Buffer], position: int, /) -> int: ...
    def ftruncate(self, descriptor: int, size_bytes: int, /) -> None: ...
    def fdatasync(self, descriptor: int, /) -> None: ...
    def fsync(self, descriptor: int, /) -> None: ...

    def punch(self, descriptor: int, position: int, size_bytes: int, /) -> None:
        """Make a hole: free the space of these bytes, which read as zeros then. The file keeps its size."""

    def find_syncfs(self) -> Callable[[int], None] | None:
        """Return the system's syncfs, which flushes the file system of a descriptor; None without one."""

    def open_size_bytes(self, descriptor: int, /) -> int:
        """Return the size of the open file in bytes."""

    def sendfile(self, socket_descriptor: int, descriptor: int, position: int, size_bytes: int, /) -> int:
        """Send bytes to a socket; return how many it took. Raises BlockingIOError when the socket is full."""

    def lock(self, descriptor: int, /) -> None:
        """Lock the file until the descriptor is closed. Raises OSError when another process has the lock."""

    def lock_holder(self, descriptor: int, /) -> int | None:
        """Return the process that has the lock of an open file; None if it is unknown."""

    # --- page cache; see seqgate.log.files.page_cache

    def be_asked(self, descriptor: int, /) -> None:
        """Prepare an open file for `is_cached` and `read_cached`, which need read-ahead to be off."""

    def is_cached(self, descriptor: int, position: int, size_bytes: int, /) -> bool:
        """Return whether a read would not wait. Raises page_cache.Untold if the system can't say."""

    def read_cached(self, descriptor: int, buffer: memoryview, position: int, /) -> int:
        """Read into the buffer; return the bytes, -1 if the read would wait. Raises page_cache.Untold."""

    def bring_in(self, descriptor: int, position: int, size_bytes: int, /) -> int:
        """Wait until the bytes are in the page cache. Return how many of the bytes exist."""

    def drop_cached(self, descriptor: int, position: int, size_bytes: int, /) -> None:
        """Drop the durable pages of the bytes from the page cache; a size of 0 means the rest of the file."""

    # --- file names

    def replace(self, source: str, target: str, /) -> None: ...
    def link(self, source: str, target: str, /) -> None: ...
    def unlink(self, path: str, /) -> None: ...
    def mkdir(self, path: str, /) -> None: ...
    def rmdir(self, path: str, /) -> None: ...
    def exists(self, path: str, /) -> bool: ...

    def real_path(self, path: str, /) -> str:
        """Return the one absolute path, without links, of what may have several."""

    def is_directory(self, path: str, /) -> bool: ...
    def size_bytes(self, path: str, /) -> int: ...
    def modified_ms(self, path: str, /) -> int: ...
    def set_modified_ms(self, path: str, modified_ms: int, /) -> None: ...

    def free_bytes(self, path: str, /) -> int:
        """Return the free space of the path's file system, in bytes."""

    def list_directory(self, path: str, /) -> list[str]: ...

    def some_names(self, path: str, limit: int, /) -> list[str]:
        """Return at most `limit` of the names in the directory, without listing the others."""

    def entries(self, path: str, /) -> list[FileEntry]:
        """Return every entry of the directory, except entries that are deleted during the call."""

    def list_files(self, path: str, /) -> dict[str, int]:
        """Return the plain files of the directory with their sizes in bytes."""


class SystemDisk:
    """The system calls themselves. The storage calls them directly, without a Python function between."""

    tells_cached: Final = page_cache.TELLS
    open = staticmethod(os.open)
    close = staticmethod(os.close)
    pread = staticmethod(os.pread)
    pwritev = staticmethod(os.pwritev)
    ftruncate = staticmethod(os.ftruncate)
    fdatasync = staticmethod(getattr(os, "fdatasync", os.fsync))
    fsync = staticmethod(os.fsync)
    sendfile = staticmethod(os.sendfile)
    be_asked = staticmethod(page_cache.be_asked)
    is_cached = staticmethod(page_cache.is_cached)
    read_cached = staticmethod(page_cache.read)
    bring_in = staticmethod(page_cache.bring_in)
    drop_cached = staticmethod(page_cache.drop)
    replace = staticmethod(os.replace)
    link = staticmethod(os.link)
    unlink = staticmethod(os.unlink)
    rmdir = staticmethod(os.rmdir)
    exists = staticmethod(os.path.exists)
    is_directory = staticmethod(os.path.isdir)
    list_directory = staticmethod(os.listdir)

    @staticmethod
    def real_path(path: str) -> str:
        return os.path.realpath(path)

    @staticmethod
    def mkdir(path: str) -> None:
        """Create a directory, for its owner only, inside of an existing one."""
        os.mkdir(path, DIRECTORY_MODE)

    @staticmethod
    def punch(descriptor: int, position: int, size_bytes: int) -> None:
        """Make a hole by Linux's fallocate. Raises OSError (EOPNOTSUPP) on systems or disks without holes."""
        fallocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
        if fallocate is None:
            raise OSError(errno.EOPNOTSUPP, "this system can't punch holes into files")
        offsets = ctypes.c_longlong(position), ctypes.c_longlong(size_bytes)
        if fallocate(descriptor, _PUNCH_HOLE, *offsets):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    @staticmethod
    def find_syncfs() -> Callable[[int], None] | None:
        """Return Linux's syncfs, which reports write errors since the descriptor's open; None elsewhere."""
        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:
            return None

        def run(descriptor: int) -> None:
            if syncfs(descriptor):
                raise OSError(ctypes.get_errno(), "the file system could not be flushed")

        return run

    @staticmethod
    def open_size_bytes(descriptor: int) -> int:
        return os.fstat(descriptor).st_size

    @staticmethod
    def lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    @staticmethod
    def lock_holder(descriptor: int) -> int | None:
        try:
            wanted = str(os.fstat(descriptor).st_ino)
            rows = [line.split() for line in Path("/proc/locks").read_text(encoding="ascii").splitlines()]
        except OSError:
            return None
        # 1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF, with "->" behind the number of a waiter
        return next(
            (int(row[4]) for row in rows if row[1] == "FLOCK" and row[5].rpartition(":")[2] == wanted), None
        )

    @staticmethod
    def size_bytes(path: str) -> int:
        return os.lstat(path).st_size

    @staticmethod
    def modified_ms(path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    @staticmethod
    def set_modified_ms(path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    @staticmethod
    def free_bytes(path: str) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    @staticmethod
    def some_names(path: str, limit: int) -> list[str]:
        with os.scandir(path) as entries:
            return [entry.name for entry in itertools.islice(entries, limit)]

    @staticmethod
    def entries(path: str) -> list[FileEntry]:
        found = []
        with os.scandir(path) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    is_directory = entry.is_dir(follow_symlinks=False)
                    size_bytes = 0 if is_directory else status.st_size
                    found.append(
                        FileEntry(
                            entry.name,
                            size_bytes,
                            status.st_mtime_ns // 1_000_000,
                            is_directory,
                            status.st_ino,
                            status.st_mtime_ns,
                        )
                    )
        return found

    @staticmethod
    def list_files(path: str) -> dict[str, int]:
        with os.scandir(path) as entries:
            return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}


class FileSystemFlush:
    """One flush of a file system, faster than one per file when many were written. Call `run` once."""

    __slots__ = ("_descriptor", "_disk", "_syncfs")

    def __init__(self, disk: Disk, path: str, syncfs: Callable[[int], None]) -> None:
        """Open the directory. The kernel reports errors of writes only to descriptors opened before."""
        self._disk = disk
        self._syncfs = syncfs
        self._descriptor = disk.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def run(self) -> None:
        """Flush the file system. Raises OSError; it is then unknown which bytes reached the disk."""
        try:
            self._syncfs(self._descriptor)
        finally:
            self._disk.close(self._descriptor)
