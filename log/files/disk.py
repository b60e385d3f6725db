# ruff: noqa: PTH116 - paths are plain strings here, as in the storage
"""The one module that opens data files: the calls of the operating system that the storage needs, and nothing besides.

`Disk` names the calls, `SystemDisk` is the operating system's own. Tests put a simulated disk in its place, which can fail
or lose what was not made durable. Descriptors are whole numbers that mean something to the disk that gave them only.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import itertools
import os
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from log.files import page_cache

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from log.format.record_batch import Buffer


class FileEntry(NamedTuple):
    """A name in a directory; the size is 0 for a directory."""

    name: str
    size_bytes: int
    modified_ms: int
    is_directory: bool


class Disk(Protocol):
    """Calls as in the module `os`, with their arguments by position. All raise OSError, from any thread."""

    @property
    def tells_cached(self) -> bool:
        """Whether `is_cached` and `read_cached` may be called."""

    # Descriptors.

    def open(self, path: str, flags: int, mode: int = ..., /) -> int:
        """A new descriptor."""

    def close(self, descriptor: int, /) -> None:
        """Give it back."""

    def pread(self, descriptor: int, size_bytes: int, position: int, /) -> bytes:
        """Up to so many bytes, fewer at the end of the file."""

    def pwritev(self, descriptor: int, buffers: Sequence[Buffer], position: int, /) -> int:
        """Write the buffers one after the other; how many bytes were written, which may be fewer."""

    def ftruncate(self, descriptor: int, size_bytes: int, /) -> None:
        """Cut the file, or have it grow by zeros."""

    def fdatasync(self, descriptor: int, /) -> None:
        """Make the file's bytes and size durable, not its name."""

    def fsync(self, descriptor: int, /) -> None:
        """Make durable what the descriptor is of: a file's bytes, a directory's names."""

    def find_syncfs(self) -> Callable[[int], None] | None:
        """What makes the whole file system of a descriptor durable, None where there is no such thing."""

    def open_size_bytes(self, descriptor: int, /) -> int:
        """How large the file is."""

    def sendfile(self, socket_descriptor: int, descriptor: int, position: int, size_bytes: int, /) -> int:
        """Send of the file to a socket; how many bytes it took. Raises BlockingIOError when it is full."""

    def lock(self, descriptor: int, /) -> None:
        """Lock the file for this process, until the descriptor is closed. Raises OSError when another has it."""

    # The page cache; see log.page_cache.

    def be_asked(self, descriptor: int, /) -> None:
        """Prepare an open file for the questions below."""

    def is_cached(self, descriptor: int, position: int, size_bytes: int, /) -> bool:
        """Whether the bytes can be read without waiting. Raises page_cache.Untold."""

    def read_cached(self, descriptor: int, buffer: memoryview, position: int, /) -> int:
        """Fill the buffer unless it would mean to wait, then -1. Raises page_cache.Untold."""

    def bring_in(self, descriptor: int, position: int, size_bytes: int, /) -> int:
        """Wait until the bytes are cached; how many there are."""

    def drop_cached(self, descriptor: int, position: int, size_bytes: int, /) -> None:
        """Forget what is cached and durable of the bytes; a size of 0 stands for all that follows."""

    # Names.

    def replace(self, source: str, target: str, /) -> None:
        """Rename, replacing `target` atomically."""

    def unlink(self, path: str, /) -> None:
        """Delete a file's name; the bytes stay for those who have it open."""

    def mkdir(self, path: str, /) -> None:
        """Make a directory in one that exists."""

    def rmdir(self, path: str, /) -> None:
        """Delete an empty directory."""

    def exists(self, path: str, /) -> bool:
        """Whether there is anything of this name."""

    def is_directory(self, path: str, /) -> bool:
        """Whether this is the name of a directory."""

    def size_bytes(self, path: str, /) -> int:
        """How large the file of this name is."""

    def modified_ms(self, path: str, /) -> int:
        """When the file was last modified, in ms."""

    def set_modified_ms(self, path: str, modified_ms: int, /) -> None:
        """Have the file look as if it was last modified then."""

    def free_bytes(self, path: str, /) -> int:
        """How much may still be written to the file system of this name."""

    def list_directory(self, path: str, /) -> list[str]:
        """The names in the directory, unordered."""

    def some_names(self, path: str, limit: int, /) -> list[str]:
        """At most `limit` of them, without a look at the others."""

    def entries(self, path: str, /) -> list[FileEntry]:
        """All of them, but for what vanishes meanwhile."""

    def list_files(self, path: str, /) -> dict[str, int]:
        """The plain files among them with their sizes in bytes."""


class SystemDisk:
    """The operating system's calls themselves, so that nothing lies between them and the storage."""

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
    unlink = staticmethod(os.unlink)
    mkdir = staticmethod(os.mkdir)
    rmdir = staticmethod(os.rmdir)
    exists = staticmethod(os.path.exists)
    is_directory = staticmethod(os.path.isdir)
    list_directory = staticmethod(os.listdir)

    @staticmethod
    def find_syncfs() -> Callable[[int], None] | None:
        """Linux's syncfs, which tells of errors since the descriptor was opened."""
        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:
            return None

        def run(descriptor: int) -> None:
            if syncfs(descriptor):
                raise OSError(ctypes.get_errno(), "the file system could not be flushed")

        return run

    @staticmethod
    def open_size_bytes(descriptor: int) -> int:
        """How large the file is."""
        return os.fstat(descriptor).st_size

    @staticmethod
    def lock(descriptor: int) -> None:
        """Lock the file for this process, until the descriptor is closed."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    @staticmethod
    def size_bytes(path: str) -> int:
        """How large the file of this name is."""
        return os.lstat(path).st_size

    @staticmethod
    def modified_ms(path: str) -> int:
        """When the file was last modified, in ms."""
        return os.stat(path).st_mtime_ns // 1_000_000

    @staticmethod
    def set_modified_ms(path: str, modified_ms: int) -> None:
        """Have the file look as if it was last modified then."""
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    @staticmethod
    def free_bytes(path: str) -> int:
        """How much may still be written to the file system of this name."""
        told = os.statvfs(path)
        return told.f_bavail * told.f_frsize

    @staticmethod
    def some_names(path: str, limit: int) -> list[str]:
        """At most `limit` of the names in the directory."""
        with os.scandir(path) as entries:
            return [entry.name for entry in itertools.islice(entries, limit)]

    @staticmethod
    def entries(path: str) -> list[FileEntry]:
        """Everything in the directory, but for what vanishes meanwhile."""
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

    @staticmethod
    def list_files(path: str) -> dict[str, int]:
        """The plain files of the directory with their sizes in bytes."""
        with os.scandir(path) as entries:
            return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}


class FileSystemFlush:
    """One flush for what many files got, which takes a fraction of the time of one each. `run` it, once."""

    __slots__ = ("_descriptor", "_disk", "_syncfs")

    def __init__(self, disk: Disk, path: str, syncfs: Callable[[int], None]) -> None:
        """Errors count from here on: the kernel tells those of later writes to whoever had the directory open."""
        self._disk = disk
        self._syncfs = syncfs
        self._descriptor = disk.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def run(self) -> None:
        """Flush. Raises OSError; nobody knows then what reached the disk."""
        try:
            self._syncfs(self._descriptor)
        finally:
            self._disk.close(self._descriptor)
