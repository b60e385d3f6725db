"""Which bytes can be read without waiting: those in the page cache, and those of segment files on the local
disk.

The functions here ask what is in the operating system's page cache, read bytes into it, and drop them from
it. A read waits for the disk when a page is missing, and the event loop must know that before. `preadv2` with
`RWF_NOWAIT` answers without waiting (Linux 4.14 and later). Such a question makes the kernel read the missing
page. `be_asked` limits the kernel to that page; otherwise the kernel would read megabytes ahead that nobody
accounts for. Source: Linux's mm/filemap.c and mm/fadvise.c, preadv2(2), posix_fadvise(2).

`SparseFile` says which bytes of a segment file are on the local disk, in blocks of 1 MiB, when a bucket has
the same bytes. A block is **resident**, or **absent**: a hole of a sparse file, which would read as zeros.
`seqgate.log.files.sparse_disk` lets nobody read an absent block.

The thread of the event loop must wait neither for the disk nor for a bucket: it gets NotCached instead.
"""

from __future__ import annotations

import errno
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from seqgate.log.files.file_names import LOG_SUFFIX, parse_partition_directory

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterator, Sequence

    from seqgate.log.files.storage import Storage


TELLS: Final = all(hasattr(os, name) for name in ("RWF_NOWAIT", "preadv", "posix_fadvise", "sendfile"))
"""Whether this system reports what is cached; a file system may still refuse."""
GRAIN_BYTES: Final = 256 << 10
"""Bytes per sampled page: the kernel fills and empties the cache in runs, so one page stands for the run."""
_REFUSALS: Final = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}
_one_byte: Final = (bytearray(1),)


class PageRange(NamedTuple):
    """A range of bytes in a file. A size of 0 stands for the whole file."""

    path: str
    position: int
    size_bytes: int


class NotCached(Exception):
    """Reading these places would wait for the disk. This is no OSError: nothing is wrong with the file."""

    def __init__(self, places: Sequence[PageRange]) -> None:
        """Take the places that must be read into the page cache first."""
        super().__init__(places)
        self.places = places


class Refusing(threading.local):
    """Whether the reads of a thread must not wait for the bucket."""

    is_on = False


@contextmanager
def without_fetching(storage: Storage) -> Iterator[None]:
    """Let this thread's reads of absent bytes raise NotCached in the block, which must not await. Reads of
    the local disk wait as ever.
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


class Untold(Exception):
    """The file system does not report what is cached."""


def be_asked(descriptor: int) -> None:
    """Switch off read-ahead for an open file, as `is_cached` and `read` require. Raises OSError."""
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)


def is_cached(descriptor: int, position: int, size_bytes: int) -> bool:
    """Return whether `size_bytes` bytes from `position` on can be read without waiting for the disk.

    At least one of the bytes must be in the file. Checks one page per GRAIN_BYTES, and the last page. Raises
    Untold if the file system does not report what is cached, and OSError.
    """
    last = position + size_bytes - 1
    try:
        while position < last:
            os.preadv(descriptor, _one_byte, position, os.RWF_NOWAIT)
            position += GRAIN_BYTES
        os.preadv(descriptor, _one_byte, last, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _REFUSALS:
            raise Untold from error
        raise
    return True


def read(descriptor: int, buffer: memoryview, position: int) -> int:
    """Read into the buffer at `position`; return the bytes, -1 if it would wait. Raises Untold, OSError."""
    try:
        count = os.preadv(descriptor, (buffer,), position, os.RWF_NOWAIT)
    except BlockingIOError:
        return -1
    except OSError as error:
        if error.errno in _REFUSALS:
            raise Untold from error
        raise
    if count < len(buffer) and position + count < os.fstat(descriptor).st_size:
        return -1
    return count


def bring_in(descriptor: int, position: int, size_bytes: int) -> int:
    """Wait until the bytes are in the page cache, and return how many of the bytes exist. Raises OSError.

    One call requests all bytes, so that the disk gets few large requests. Then sendfile moves the bytes to
    /dev/null, without copying them into this process.
    """
    os.posix_fadvise(descriptor, position, size_bytes, os.POSIX_FADV_WILLNEED)
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        done = 0
        while done < size_bytes:
            count = os.sendfile(nowhere, descriptor, position + done, size_bytes - done)
            if not count:
                break
            done += count
    finally:
        os.close(nowhere)
    return done


def drop(descriptor: int, position: int, size_bytes: int) -> None:
    """Drop the bytes' whole, flushed pages from the page cache, on systems that can. Raises OSError."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, position, size_bytes, os.POSIX_FADV_DONTNEED)


BLOCK_BYTES: Final = 1 << 20
BLOCKS_EVICTED: Final = 2
"""Blocks that are evicted together, those with the numbers 2n and 2n + 1. Bytes that sendfile gave to a
socket are the pages of the page cache until the peer has read them, and a hole that covers a part of a page,
or of a large folio (at most 2 MiB, aligned), writes zeros into it. So a hole covers whole folios.
"""
_DIGITS: Final = 20


class SegmentKey(NamedTuple):
    """The name of a segment in the bucket, whatever its local file is called."""

    topic_id: uuid.UUID
    partition: int
    base_offset: int
    generation: int = 0
    """The partition's oldest manifest with these bytes: an older one may have them uncompacted."""


def blocks_of(position: int, size_bytes: int) -> range:
    """Return the numbers of the blocks that hold these bytes."""
    return range(position // BLOCK_BYTES, (position + size_bytes - 1) // BLOCK_BYTES + 1)


class SparseFile:
    """A segment file and its absent blocks. `SparseDisk` guards the fields by its locks."""

    __slots__ = ("absent", "changing", "key", "path", "pins", "readers", "size_bytes", "used")

    def __init__(self, path: str) -> None:
        """Begin with all blocks resident, and without a segment in the bucket."""
        self.path: str | None = path
        """The path; None after the deletion. Then readers of the open file can't fetch absent blocks."""
        self.key: SegmentKey | None = None
        """The closed segment of the bucket with the same bytes. A file without one stays resident."""
        self.size_bytes = 0
        """The size of the whole file, known with its key."""
        self.absent = 0
        """Bit n is set while block n is absent."""
        self.used: list[int] = []
        """When each block was last read, by a count of reads; unread blocks at the end are left out."""
        self.readers = 0
        """Reads under way. Nothing is evicted meanwhile."""
        self.pins = 0
        """Users that need the whole file on the disk, such as a compaction in another process."""
        self.changing = threading.Lock()
        """Held while bytes of the file are filled in or punched out."""

    def lacks(self, position: int, size_bytes: int) -> bool:
        """Return whether one of these bytes is absent."""
        absent = self.absent
        if not absent or size_bytes <= 0:
            return False
        first = position // BLOCK_BYTES
        count = (position + size_bytes - 1) // BLOCK_BYTES - first + 1
        return bool(absent >> first & (1 << count) - 1)

    def lacks_from(self, position: int) -> bool:
        """Return whether a byte at or after `position` is absent."""
        return bool(self.absent >> position // BLOCK_BYTES)

    def first_absent(self, position: int, size_bytes: int) -> int | None:
        """Return the number of the first absent block that holds one of these bytes; None without one."""
        for number in blocks_of(position, size_bytes):
            if self.absent >> number & 1:
                return number
        return None

    def block_bytes(self, number: int) -> int:
        """Return the size of a block: the last one of the file is smaller."""
        return max(0, min(BLOCK_BYTES, self.size_bytes - number * BLOCK_BYTES))

    @property
    def all_blocks(self) -> int:
        """A set bit for each block of the file."""
        return (1 << -(-self.size_bytes // BLOCK_BYTES)) - 1

    @property
    def absent_bytes(self) -> int:
        absent = self.absent
        if not absent:
            return 0
        last = (self.size_bytes - 1) // BLOCK_BYTES
        missing = BLOCK_BYTES - self.block_bytes(last) if absent >> last & 1 else 0
        return absent.bit_count() * BLOCK_BYTES - missing

    def touch(self, position: int, size_bytes: int, now: int) -> None:
        used = self.used
        numbers = blocks_of(position, size_bytes)
        if len(used) < numbers.stop:
            used.extend([0] * (numbers.stop - len(used)))
        for number in numbers:
            used[number] = now

    def resident_pairs(self) -> Iterator[tuple[int, int]]:
        """Yield (when last read, number of the first block) of each pair of blocks with a resident one."""
        used = self.used
        resident = self.all_blocks & ~self.absent
        while resident:
            first = ((resident & -resident).bit_length() - 1) // BLOCKS_EVICTED * BLOCKS_EVICTED
            resident = resident >> first + BLOCKS_EVICTED << first + BLOCKS_EVICTED
            yield max(used[first : first + BLOCKS_EVICTED], default=0), first

    def resident_bytes(self, first: int) -> int:
        pair = range(first, first + BLOCKS_EVICTED)
        return sum(self.block_bytes(number) for number in pair if not self.absent >> number & 1)


class SparseFiles:
    """A data directory's segment files by path. Follows renames and deletions of files and directories."""

    def __init__(self) -> None:
        self._by_directory: dict[str, dict[str, SparseFile]] = {}

    def of(self, path: str) -> SparseFile | None:
        directory, _, name = path.rpartition("/")
        files = self._by_directory.get(directory)
        return None if files is None else files.get(name)

    def add(self, path: str) -> SparseFile | None:
        """Return the file at the path, new if it is unknown; None if the name is not a segment file's."""
        directory, _, name = path.rpartition("/")
        if not is_segment_name(name):
            return None
        files = self._by_directory.setdefault(directory, {})
        file = files.get(name)
        if file is None:
            file = files[name] = SparseFile(path)
        return file

    def removed(self, path: str) -> None:
        """Forget a file whose name was deleted or given to another file."""
        directory, _, name = path.rpartition("/")
        files = self._by_directory.get(directory)
        file = None if files is None else files.pop(name, None)
        if file is not None:
            file.path = None

    def directory_removed(self, path: str) -> None:
        for file in self._by_directory.pop(path, {}).values():
            file.path = None

    def renamed(self, source: str, target: str) -> None:
        """Follow the rename of a file or of a directory without directories in it."""
        files = self._by_directory.pop(source, None)
        if files is not None:
            self.directory_removed(target)
            self._by_directory[target] = files
            for name, moved in files.items():
                moved.path = f"{target}/{name}"
            return
        file = self.of(source)
        self.removed(target)
        if file is None:
            return
        self.removed(source)
        directory, _, name = target.rpartition("/")
        if is_segment_name(name):
            file.path = target
            self._by_directory.setdefault(directory, {})[name] = file

    def __iter__(self) -> Iterator[SparseFile]:
        for files in list(self._by_directory.values()):
            yield from list(files.values())


def is_segment_name(name: str) -> bool:
    """Return whether this names a segment's log file, also one swapped in or waiting for deletion."""
    return name.startswith(LOG_SUFFIX, _DIGITS) and name[_DIGITS + len(LOG_SUFFIX) :][:1] in {"", "."}


def is_live(path: str | None) -> bool:
    """Return whether this is the path of a segment of a log, not of a removed segment or partition."""
    if path is None or not path.endswith(LOG_SUFFIX):
        return False
    return parse_partition_directory(path.rsplit("/", 2)[-2]) is not None
