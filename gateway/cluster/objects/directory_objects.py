"""Objects as files below one directory: for tests, for a disk that machines share, and for a mounted bucket.

A creation writes a temporary file, flushes it, links it to its name (link(2) fails when the name exists) and
flushes the directory. A replacement compares and renames under an exclusive lock of one file, which deletions
take too. Calls run in threads, and several processes may use the directory at once. Who sees an object finds
it durable, whoever created it: readers flush the directory, too.

Nothing is flushed under the lock. A process that is stopped while it holds the lock holds up the replacements
and deletions of all others until it continues or ends, so the lock is held for a few system calls only.

Kill -9 leaves temporary files behind; the first write of a later process removes those older than an hour.
Deletions leave folders behind; a listing by a process that has written removes those empty for an hour. One
that was emptied just now stays: another process may have prepared the folder, and be about to write into it.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import os
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from seqgate.gateway.cluster.objects.objects import (
    AlreadyThere,
    Buffer,
    Changed,
    Entry,
    Missing,
    Refused,
    StoreFailed,
    check_key,
    check_prefix,
)

T = TypeVar("T")


TIMEOUT_S: Final = 60.0
"""The time after which a call has failed: a network disk may hang. The call goes on in its thread."""
THREADS: Final = 8
TEMPORARY: Final = ".temporary"
LOCK: Final = ".lock"
ABANDONED_AFTER_S: Final = 3600.0
_BUFFERS_PER_WRITE: Final = 512
_NEVER: Final = {
    errno.EACCES: "let the user of the gateway read and write the directory",
    errno.EPERM: "use a file system with hard links, in which the user of the gateway may write",
    errno.EROFS: "mount the file system for writing",
    errno.EOPNOTSUPP: "use a file system with hard links and locks",
    errno.EEXIST: "remove the file that stands where a directory must be",
    errno.ENOTDIR: "remove the file that stands where a directory must be",
    errno.EISDIR: "remove the directory that stands where an object must be",
    errno.EXDEV: "mount no other file system inside the directory",
    errno.ENAMETOOLONG: "choose a shorter path",
}
"""Errors that no later call will be spared, and what to do."""


class DirectoryObjects:
    """An `ObjectStore` in a directory, which must exist."""

    def __init__(self, root: Path, timeout_s: float = TIMEOUT_S) -> None:
        """Take the directory. Nothing is read or written before the first call."""
        self._files = _Files(root)
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="objects")

    async def create(self, key: str, content: bytes | Sequence[Buffer]) -> None:
        check_key(key)
        buffers = [content] if isinstance(content, bytes) else content
        await self._in_thread(key, lambda: self._files.create(key, buffers))

    async def get(self, key: str, first: int = 0, size_bytes: int | None = None) -> bytes:
        check_key(key)
        return await self._in_thread(key, lambda: self._files.read(key, first, size_bytes))

    async def get_end(self, key: str, size_bytes: int) -> bytes:
        check_key(key)
        return await self._in_thread(key, lambda: self._files.read(key, -size_bytes, size_bytes))

    async def read(self, key: str) -> tuple[bytes, str]:
        content = await self.get(key)
        return content, _version(content)

    async def replace(self, key: str, content: bytes, version: str | None) -> str:
        check_key(key)
        await self._in_thread(key, lambda: self._files.replace(key, content, version))
        return _version(content)

    async def list(self, prefix: str, after: str = "") -> AsyncIterator[Entry]:
        check_prefix(prefix)
        for entry in await self._in_thread(prefix, lambda: self._files.entries(prefix, after)):
            yield entry

    async def delete(self, key: str) -> None:
        check_key(key)
        await self._in_thread(key, lambda: self._files.delete(key))

    async def close(self) -> None:
        self._threads.shutdown(wait=False)

    async def _in_thread(self, key: str, work: Callable[[], T]) -> T:
        running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            # wait_for of Python 3.11 would ignore a cancellation that comes together with the answer
            async with asyncio.timeout(self._timeout_s):
                return await running
        except TimeoutError:
            what = f"the file system did not answer in {self._timeout_s} s"
            if self._files.waiting:
                what += f": another process holds the lock {LOCK}; end that process if it stands still"
            raise StoreFailed(f"{self._files.root / key}: {what}") from None
        except OSError as error:
            remedy = _NEVER.get(error.errno or 0)
            if remedy is not None:
                raise Refused(f"{self._files.root / key}: {error.strerror}; {remedy}") from None
            raise StoreFailed(f"{self._files.root / key}: {error.strerror or error}") from None


class _Files:
    """The files of the objects. All methods wait for the disk, and may run in several threads at once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.waiting: set[int] = set()
        """The threads that wait for another holder of the lock."""
        self._temporary = root / TEMPORARY
        self._prepared: set[Path] = set()
        self._preparing = threading.Lock()
        self._has_swept = False
        self._written_s = 0.0
        """The file system's time at the last write; 0 before the first."""

    def create(self, key: str, buffers: Sequence[Buffer]) -> None:
        path = self.root / key
        with self._written(buffers) as temporary:
            self._prepare(path.parent)
            try:
                os.link(temporary, path)
            except FileExistsError:
                if path.is_dir():
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)) from None
                # A network file system may have carried out a link, lost the answer, and tried again.
                if temporary.stat().st_nlink < 2:
                    _flush_directory(path.parent)
                    raise AlreadyThere(key) from None
            except FileNotFoundError:
                self._prepared.clear()  # A folder was removed. The next call creates it again.
                raise
            _flush_directory(path.parent)

    def read(self, key: str, first: int, size_bytes: int | None) -> bytes:
        """Return a range; a negative `first` counts from the end."""
        path = self.root / key
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            self._check_root()
            raise Missing(key) from None
        try:
            _flush_directory(path.parent)
            size = os.fstat(descriptor).st_size
            begin = max(size + first, 0) if first < 0 else first
            left = max(size - begin, 0) if size_bytes is None else min(size_bytes, max(size - begin, 0))
            return _read_fully(descriptor, begin, left)
        finally:
            os.close(descriptor)

    def replace(self, key: str, content: bytes, version: str | None) -> None:
        if version is None:
            try:
                self.create(key, [content])
            except AlreadyThere:
                raise Changed(key) from None
            return
        path = self.root / key
        with self._written([content]) as temporary:
            with self._locked():
                try:
                    before = path.read_bytes()
                except FileNotFoundError:
                    self._check_root()
                    raise Changed(key) from None
                if _version(before) != version:
                    raise Changed(key)
                temporary.rename(path)
            _flush_directory(path.parent)

    def delete(self, key: str) -> None:
        path = self.root / key
        self._check_root()
        with self._locked(), suppress(FileNotFoundError):
            path.unlink()
        # An object that is missing may have been removed by another process that has not flushed yet.
        with suppress(FileNotFoundError):
            _flush_directory(path.parent)

    def entries(self, prefix: str, after: str) -> list[Entry]:
        self._check_root()
        folder = self.root / prefix if prefix else self.root
        empty: list[Path] = []
        found = sorted(entry for entry in _walk(folder, prefix, empty) if entry.key > after)
        for each in empty:
            if each != folder:
                self._remove_folder(each)
        for parent in {(self.root / entry.key).parent for entry in found}:
            _flush_directory(parent)
        return found

    def _remove_folder(self, folder: Path) -> None:
        """Remove a folder, if it has been empty for a while."""
        with self._preparing, suppress(OSError):
            if folder.stat().st_mtime < self._written_s - ABANDONED_AFTER_S:
                folder.rmdir()
                self._prepared.discard(folder)

    @contextmanager
    def _written(self, buffers: Sequence[Buffer]) -> Iterator[Path]:
        """Yield a durable temporary file with this content, and remove its temporary name at the end."""
        self._prepare(self._temporary)
        path = self._temporary / uuid.uuid4().hex
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            try:
                _write_fully(descriptor, buffers)
                os.fsync(descriptor)
                now_s = os.fstat(descriptor).st_mtime
            finally:
                os.close(descriptor)
            self._written_s = now_s
            self._sweep(now_s)
            yield path
        finally:
            with suppress(FileNotFoundError):
                path.unlink()

    def _sweep(self, now_s: float) -> None:
        """Remove, once, the temporary files of killed processes. `now_s` is the file system's time."""
        if self._has_swept:
            return
        self._has_swept = True
        for path in self._temporary.iterdir():
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < now_s - ABANDONED_AFTER_S:
                    path.unlink()

    def _prepare(self, folder: Path) -> None:
        """Make a folder and its parents durably, also those that another process has made and not flushed."""
        with self._preparing:
            if folder in self._prepared:
                return
            self._check_root()
            parents = [folder, *folder.parents]
            try:
                for path in reversed(parents[: parents.index(self.root)]):
                    if path not in self._prepared:
                        path.mkdir(exist_ok=True)
                        _flush_directory(path.parent)
                        self._prepared.add(path)
            except FileNotFoundError:
                self._prepared.clear()  # A parent was removed. The next call creates it again.
                raise

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the directory, which threads and processes share."""
        descriptor = os.open(self.root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        thread = threading.get_ident()
        try:
            self.waiting.add(thread)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            finally:
                self.waiting.remove(thread)
            yield
        finally:
            os.close(descriptor)

    def _check_root(self) -> None:
        """Check that the directory exists. A mount that is gone would otherwise look like an empty store."""
        if not self.root.is_dir():
            raise Refused(f"{self.root} is no directory; create it, or mount the file system that holds it")


def _walk(folder: Path, prefix: str, empty: list[Path]) -> Iterator[Entry]:
    """Yield the objects below a folder whose keys begin with `prefix`, in any order. Add the folders without
    anything to `empty`.
    """
    try:
        items = list(os.scandir(folder))
    except FileNotFoundError:
        return
    if not items:
        empty.append(folder)
    for item in items:
        if item.name.startswith("."):
            continue
        if item.is_dir():
            yield from _walk(folder / item.name, f"{prefix}{item.name}/", empty)
            continue
        with suppress(FileNotFoundError):
            status = item.stat()
            yield Entry(prefix + item.name, status.st_size, status.st_mtime_ns // 1_000_000)


def _version(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _flush_directory(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_fully(descriptor: int, buffers: Sequence[Buffer]) -> None:
    left = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
    while left:
        written = os.writev(descriptor, left[:_BUFFERS_PER_WRITE])
        while left and written >= len(left[0]):
            written -= len(left.pop(0))
        if left and written:
            left[0] = left[0][written:]


def _read_fully(descriptor: int, begin: int, size_bytes: int) -> bytes:
    parts = []
    while size_bytes:
        part = os.pread(descriptor, size_bytes, begin)
        if not part:
            break
        parts.append(part)
        begin, size_bytes = begin + len(part), size_bytes - len(part)
    return b"".join(parts)
