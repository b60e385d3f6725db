"""A disk whose segment files may have holes, and which lets nobody read a hole.

A bucket has the bytes of the holes. A read that may wait fetches them through `source`; a read that must not
wait gets the answer that the bytes are not cached, and `sendfile` fails. So every reader above the disk is
safe, and those on the event loop treat absent bytes as they treat cold ones.

Locks, the outer first: `SparseFile.changing` (filling and punching one file), `_names` (opening by path, and
renames), `_lock` (the fields of all files; held for no system call).

`check_directory_version` checks that this release can read the versions of the files in a data directory.
`meta.properties` has the version of the directory as a whole. A release that changes a format, or writes a
new kind of file or record, raises DIRECTORY_VERSION. So an earlier release refuses the directory before
changing anything in it. The versions in single files reveal a newer file that somebody copied in by hand.
"""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING, Final, Protocol

from seqgate.log.errors import IncompatibleFormat
from seqgate.log.files import page_cache
from seqgate.log.files.file_names import DELETED_SUFFIX, SWAP_SUFFIX
from seqgate.log.files.page_cache import (
    BLOCK_BYTES,
    BLOCKS_EVICTED,
    NotCached,
    PageRange,
    Refusing,
    SegmentKey,
    SparseFile,
    SparseFiles,
    is_live,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from seqgate.log.files.disk import Disk
    from seqgate.log.files.storage import Storage
    from seqgate.log.format.record_batch import Buffer


_WRITE: Final = os.O_RDWR | os.O_CLOEXEC


class Source(Protocol):
    """The port that fetches absent bytes."""

    def fetch(self, key: SegmentKey, position: int, size_bytes: int) -> bytes:
        """Return the bytes of a segment file, checked. Any thread may call, and waits. Raises OSError."""


class SparseDisk:
    """A `Disk` over another one. Any thread may call all methods.

    A file gets holes by `create_absent` and by `evict`, and loses them by `fill`. Other files have none.
    """

    tells_cached: Final = True

    def __init__(self, below: Disk) -> None:
        """Begin without holes. Until `source` is set, a read of absent bytes fails."""
        self.files = SparseFiles()
        self.source: Source | None = None
        self.failures: dict[tuple[SparseFile, int], OSError] = {}
        """Blocks that could not be fetched, with the error that the next reader gets at once."""
        self.blocks_waited_for = 0
        """Blocks that readers fetched themselves, because they had to wait for them."""
        self.refusing = Refusing()
        self._below = below
        self._opened: dict[int, SparseFile] = {}
        self._names = threading.Lock()
        self._lock = threading.Lock()
        self._reads = 0
        self.pwritev, self.drop_cached = below.pwritev, below.drop_cached
        self.fdatasync, self.fsync, self.find_syncfs = below.fdatasync, below.fsync, below.find_syncfs
        self.open_size_bytes, self.lock = below.open_size_bytes, below.lock
        self.lock_holder = below.lock_holder
        self.mkdir, self.exists, self.is_directory = below.mkdir, below.exists, below.is_directory
        self.real_path = below.real_path
        self.size_bytes, self.free_bytes = below.size_bytes, below.free_bytes
        self.modified_ms, self.set_modified_ms = below.modified_ms, below.set_modified_ms
        self.list_directory, self.some_names = below.list_directory, below.some_names
        self.entries, self.list_files = below.entries, below.list_files

    # --- descriptors

    def open(self, path: str, flags: int, mode: int = 0o777, /) -> int:
        """Open the file, and note the descriptor if it may have holes. Truncating takes the holes away."""
        with self._names:
            if flags & os.O_TRUNC:
                self.files.removed(path)
            descriptor = self._below.open(path, flags, mode)
            file = self.files.add(path)
            if file is not None:
                self._opened[descriptor] = file
            return descriptor

    def close(self, descriptor: int, /) -> None:
        # Forget it first: another thread may get the same number at once.
        self._opened.pop(descriptor, None)
        self._below.close(descriptor)

    def pread(self, descriptor: int, size_bytes: int, position: int, /) -> bytes:
        """Return the bytes; fetch the absent ones first."""
        file = self._opened.get(descriptor)
        self._make_resident(file, position, size_bytes)
        try:
            return self._below.pread(descriptor, size_bytes, position)
        finally:
            self._end_read(file)

    def sendfile(self, socket_descriptor: int, descriptor: int, position: int, size_bytes: int, /) -> int:
        """Send resident bytes. Raises OSError if a byte is absent: this call never waits for a bucket."""
        file = self._opened.get(descriptor)
        if file is not None and not self._begin_read(file, position, size_bytes):
            raise OSError(errno.EIO, "the bytes are not on the local disk any more", file.path)
        try:
            return self._below.sendfile(socket_descriptor, descriptor, position, size_bytes)
        finally:
            self._end_read(file)

    def ftruncate(self, descriptor: int, size_bytes: int, /) -> None:
        """Cut the file, or extend it with zeros. A file that changes is no segment of the bucket any more."""
        file = self._opened.get(descriptor)
        if file is not None:
            with self._lock:
                file.key = None
                file.absent &= (1 << -(-size_bytes // BLOCK_BYTES)) - 1
        self._below.ftruncate(descriptor, size_bytes)

    def punch(self, descriptor: int, position: int, size_bytes: int, /) -> None:  # noqa: ARG002
        """Do not punch: only `evict` and `create_absent` may, which note the hole."""
        raise OSError(errno.EPERM, "only an eviction may punch holes")

    # --- the page cache

    def be_asked(self, descriptor: int, /) -> None:
        """Switch off read-ahead, where the disk below tells what is cached."""
        if self._below.tells_cached:
            self._below.be_asked(descriptor)

    def is_cached(self, descriptor: int, position: int, size_bytes: int, /) -> bool:
        """Return whether the bytes are resident, and cached as far as the disk below can tell."""
        file = self._opened.get(descriptor)
        if file is not None:
            if not self._begin_read(file, position, size_bytes):
                return False
            self._end_read(file)
        if not self._below.tells_cached:
            return True
        try:
            return self._below.is_cached(descriptor, position, size_bytes)
        except page_cache.Untold:
            return True

    def read_cached(self, descriptor: int, buffer: memoryview, position: int, /) -> int:
        """Read resident bytes into the buffer; -1 if the read would wait for the disk or for the bucket."""
        file = self._opened.get(descriptor)
        if file is not None and not self._begin_read(file, position, len(buffer)):
            return -1
        try:
            return self._read_cached(descriptor, buffer, position)
        finally:
            self._end_read(file)

    def _read_cached(self, descriptor: int, buffer: memoryview, position: int) -> int:
        if self._below.tells_cached:
            try:
                return self._below.read_cached(descriptor, buffer, position)
            except page_cache.Untold:
                pass
        data = self._below.pread(descriptor, len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def bring_in(self, descriptor: int, position: int, size_bytes: int, /) -> int:
        """Fetch the absent bytes, and wait until all are in the page cache."""
        file = self._opened.get(descriptor)
        self._make_resident(file, position, size_bytes)
        try:
            if self._below.tells_cached:
                return self._below.bring_in(descriptor, position, size_bytes)
            return max(0, min(size_bytes, self._below.open_size_bytes(descriptor) - position))
        finally:
            self._end_read(file)

    # --- file names

    def replace(self, source: str, target: str, /) -> None:
        """Rename. A former `target` loses its absent blocks, which the bucket had under that name."""
        with self._names:
            self._below.replace(source, target)
            self.files.renamed(source, target)

    def link(self, source: str, target: str, /) -> None:
        """Do not link: the second name would not know of the holes."""
        raise OSError(errno.EPERM, "a file that may have holes gets no second name", source, None, target)

    def unlink(self, path: str, /) -> None:
        with self._names:
            self._below.unlink(path)
            self.files.removed(path)

    def rmdir(self, path: str, /) -> None:
        with self._names:
            self._below.rmdir(path)
            self.files.directory_removed(path)

    # --- holes

    def find(self, path: str) -> SparseFile | None:
        """Return the segment file at the path, also swapped in or waiting for deletion; None without."""
        files = self.files
        return files.of(path) or files.of(path + SWAP_SUFFIX) or files.of(path + DELETED_SUFFIX)

    def opened(self, descriptor: int) -> SparseFile | None:
        """Return the segment file of an open descriptor, whatever its name is; None for any other file."""
        return self._opened.get(descriptor)

    def lacks_from(self, path: str, position: int) -> bool:
        file = self.files.of(path)
        return file is not None and file.lacks_from(position)

    def create_absent(self, path: str, key: SegmentKey, size_bytes: int) -> None:
        """Create the file of a segment that the bucket has, with all blocks absent. Raises OSError."""
        descriptor = self.open(path, _WRITE | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            file = self._opened[descriptor]
            with file.changing:
                self._below.ftruncate(descriptor, size_bytes)
                self.stored(file, key, size_bytes)
                with self._lock:
                    file.absent = file.all_blocks
                if size_bytes:
                    self._below.punch(descriptor, 0, -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES)
        finally:
            self.close(descriptor)

    def stored(self, file: SparseFile, key: SegmentKey, size_bytes: int) -> None:
        """Note that the bucket has these bytes of a finished file: its blocks may be evicted."""
        with self._lock:
            file.key, file.size_bytes = key, size_bytes
            if not file.used:
                self._reads += 1
                file.used = [self._reads] * -(-size_bytes // BLOCK_BYTES)

    def restore(self, path: str, key: SegmentKey, size_bytes: int, absent: int) -> bool:
        """Note a file's holes from an earlier run. Return False if the name is not that of a segment."""
        file = self.files.add(path)
        if file is None:
            return False
        self.stored(file, key, size_bytes)
        with self._lock:
            file.absent = absent & file.all_blocks
        return True

    def pin(self, file: SparseFile) -> None:
        """Evict nothing of the file until `unpin`."""
        with self._lock:
            file.pins += 1

    def unpin(self, file: SparseFile) -> None:
        with self._lock:
            file.pins -= 1

    def fill(self, file: SparseFile, number: int, data: bytes) -> None:
        """Write a fetched block, unless it is resident or the file lost its name. Raises OSError."""
        with file.changing:
            if not file.absent >> number & 1:
                return
            if len(data) != file.block_bytes(number):
                raise OSError(
                    errno.EIO,
                    f"block {number} has {file.block_bytes(number)} bytes, and the bucket sent {len(data)}",
                    file.path,
                )
            descriptor = self._open_writable(file)
            if descriptor is None:
                return
            try:
                self._write_all(descriptor, data, number * BLOCK_BYTES)
            finally:
                self._below.close(descriptor)
            self.failures.pop((file, number), None)
            with self._lock:
                file.absent &= ~(1 << number)
                self._reads += 1
                file.touch(number * BLOCK_BYTES, 1, self._reads)

    def evict(self, file: SparseFile, pairs: Sequence[int]) -> int:
        """Punch pairs of blocks, by their first numbers, out of the file, and return the bytes freed. That is
        0 if the file is in use, the only copy, or about to be deleted: the bucket may have other bytes in the
        place of a compacted segment. Raises OSError: the blocks are absent then, too.
        """
        freed = 0
        with file.changing:
            may_go = file.key is not None and is_live(file.path)
            descriptor = self._open_writable(file) if may_go else None
            if descriptor is None:
                return 0
            try:
                for first in pairs:
                    size_bytes = self._begin_eviction(file, first)
                    if size_bytes:
                        # Beyond the end of the file, too: otherwise zeros are written into its last page.
                        self._below.punch(descriptor, first * BLOCK_BYTES, BLOCKS_EVICTED * BLOCK_BYTES)
                        freed += size_bytes
            finally:
                self._below.close(descriptor)
        return freed

    def coldest(
        self, size_bytes: int, spares: Callable[[str], bool] = lambda _: False
    ) -> Iterator[tuple[SparseFile, list[int]]]:
        """Yield the least recently read pairs of blocks, of about `size_bytes`, file by file. Leaves out
        files whose path `spares` returns True for.
        """
        found: list[tuple[int, int, SparseFile]] = []
        for file in self.files:
            path = file.path
            may_go = file.key is not None and not file.pins and is_live(path)
            if may_go and path is not None and not spares(path):
                with self._lock:
                    found += [(used, first, file) for used, first in file.resident_pairs()]
        found.sort(key=lambda pair: pair[:2])
        chosen: dict[SparseFile, list[int]] = {}
        for _, first, file in found:
            if size_bytes <= 0:
                break
            chosen.setdefault(file, []).append(first)
            size_bytes -= file.resident_bytes(first)
        yield from chosen.items()

    def absent_bytes(self) -> int:
        """Return the bytes of logs' segments not on the local disk. Files to be deleted do not count."""
        return sum(file.absent_bytes for file in self.files if file.absent and is_live(file.path))

    # --- internals

    def _begin_read(self, file: SparseFile, position: int, size_bytes: int) -> bool:
        """Count a reader of resident bytes; return False, and count none, if one of the bytes is absent."""
        with self._lock:
            if file.lacks(position, size_bytes):
                return False
            file.readers += 1
            if file.key is not None:
                self._reads += 1
                end = min(position + size_bytes, file.size_bytes)
                file.touch(position, max(1, end - position), self._reads)
            return True

    def _end_read(self, file: SparseFile | None) -> None:
        if file is not None:
            with self._lock:
                file.readers -= 1

    def _make_resident(self, file: SparseFile | None, position: int, size_bytes: int) -> None:
        """Fetch absent bytes, then count a reader; a file without holes has none. Raises OSError."""
        while file is not None and not self._begin_read(file, position, size_bytes):
            number = file.first_absent(position, size_bytes)
            if number is not None:
                self.fetch(file, number)

    def fetch(self, file: SparseFile, number: int) -> None:
        """Fetch an absent block; wait for the source. Raises OSError, NotCached (`without_fetching`)."""
        if self.source is None or file.key is None or file.path is None:
            raise OSError(
                errno.EIO, f"block {number} is not on the local disk, and no bucket has it", file.path
            )
        failure = self.failures.pop((file, number), None)
        if failure is not None:
            raise failure
        if self.refusing.is_on:
            raise NotCached((PageRange(file.path, number * BLOCK_BYTES, BLOCK_BYTES),))
        self.blocks_waited_for += 1
        data = self.source.fetch(file.key, number * BLOCK_BYTES, file.block_bytes(number))
        self.fill(file, number, data)

    def _begin_eviction(self, file: SparseFile, first: int) -> int:
        """Mark a pair of blocks as absent; return how many bytes were resident, 0 if the file is in use."""
        with self._lock:
            if file.readers or file.pins:
                return 0
            size_bytes = file.resident_bytes(first)
            file.absent |= ((1 << BLOCKS_EVICTED) - 1 << first) & file.all_blocks
            return size_bytes

    def _open_writable(self, file: SparseFile) -> int | None:
        """Open this file, even if another has its path now; return None if no path leads to it."""
        with self._names:
            path = file.path
            return None if path is None else self._below.open(path, _WRITE, 0o600)

    def _write_all(self, descriptor: int, data: bytes, position: int) -> None:
        view = memoryview(data)
        while view:
            buffers: tuple[Buffer] = (view,)
            count = self._below.pwritev(descriptor, buffers, position)
            view, position = view[count:], position + count


META: Final = "meta.properties"
OLDEST_DIRECTORY_VERSION: Final = 1
DIRECTORY_VERSION: Final = 4
"""The version that this release writes: 1, 2 have equal formats; 3 adds producer names, 4 damaged-batches."""
WORKERS_VERSION: Final = 5
"""The version while several workers have the directory: earlier releases do not find their checkpoints."""


def check_directory_version(storage: Storage, root: str) -> None:
    """Check that this release reads `meta.properties`, if any. Raises IncompatibleFormat, OSError."""
    path = f"{root}/{META}"
    if storage.exists(path):
        read_properties(storage, path)


def read_properties(storage: Storage, path: str) -> dict[str, str]:
    """Return the fields of `meta.properties`. Raises IncompatibleFormat also for damage, OSError."""
    try:
        text = storage.read_file(path).decode()
    except UnicodeDecodeError as error:
        raise IncompatibleFormat(f"{path} is damaged: {error}.") from error
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and line[:1] != "#")
    version = fields.get("version", "")
    is_number = version.isascii() and version.isdecimal()
    if not is_number or not OLDEST_DIRECTORY_VERSION <= int(version) <= WORKERS_VERSION:
        raise IncompatibleFormat(
            f"{path} has {f'version {version}' if version else 'no version'}; this program reads versions "
            f"{OLDEST_DIRECTORY_VERSION} to {WORKERS_VERSION}."
        )
    return fields
