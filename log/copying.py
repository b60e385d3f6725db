"""Copies files with their checksums, makes the copies durable, and deletes them. The copies leave the page cache again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from log.durability.durability import LocalDurability
from log.files.data_file import DataFile, Place
from log.files.disk import FileEntry
from log.files.trees import empty, remove_tree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from log.files.disk import FileSystemFlush
    from log.files.storage import Storage

__all__ = ["CHUNK_BYTES", "Content", "FileEntry", "Flush", "copy_file", "digest", "empty", "remove_tree"]

CHUNK_BYTES: Final = 1 << 20
"""Bytes that are read, added to the checksum and written at once."""

SEPARATE_FILES: Final = 500
"""Files that are flushed one by one. A flush of the whole file system waits for the bytes of other programs, too."""

Spend = Callable[[int], None]
#: Called after each chunk with its bytes; may wait, to bound the rate.


class Content(NamedTuple):
    """The bytes that were read: their number, and their SHA-256 in hexadecimal."""

    size_bytes: int
    sha256: str


def copy_file(storage: Storage, source: str, target: str, size_bytes: int, spend: Spend) -> Content:
    """Copy the first `size_bytes` of a file, or all of a shorter one; return what was copied. The copy is not durable yet.

    The copy gets the modification time of the source, from which a start tells the age of a segment. Raises OSError.
    """
    file = DataFile(target)
    storage.create(file)
    try:
        content = _read(
            storage, source, size_bytes, spend, lambda chunk, at: _write(storage, file, chunk, at)
        )
    finally:
        storage.descriptors.release(file)
    storage.set_modified_ms(target, storage.modified_ms(source))
    return content


def digest(storage: Storage, path: str, size_bytes: int, spend: Spend) -> Content:
    """Read the first `size_bytes` of a file, or all of a shorter one. Raises OSError."""
    return _read(storage, path, size_bytes, spend, lambda _chunk, _at: None)


def _read(
    storage: Storage, path: str, size_bytes: int, spend: Spend, take: Callable[[bytes, int], None]
) -> Content:
    checksum = hashlib.sha256()
    position = 0
    while position < size_bytes:
        chunk = storage.read_by_name(path, min(CHUNK_BYTES, size_bytes - position), position)
        if not chunk:
            break
        checksum.update(chunk)
        take(chunk, position)
        position += len(chunk)
        spend(len(chunk))
    return Content(position, checksum.hexdigest())


def _write(storage: Storage, file: DataFile, chunk: bytes, position: int) -> None:
    rest = memoryview(chunk)
    while rest:
        written = storage.write(file, (rest,), position)
        rest = rest[written:]
        position += written


class Flush:
    """Makes new files below one directory durable: many with one flush of the file system, where the system has that."""

    def __init__(self, storage: Storage, directory: str, files: int) -> None:
        """Begin before the first of at most `files` files is written, so that errors of every write are reported. Raises OSError."""
        self._storage = storage
        self._common: FileSystemFlush | None = None
        if files > SEPARATE_FILES:
            self._common = LocalDurability(storage).begin_common_flush(directory)

    def run(self, files: Sequence[str], directories: Sequence[str]) -> None:
        """Persist the files, and the names in the directories, and drop the files from the page cache. Raises OSError."""
        if self._common is None:
            LocalDurability(self._storage).sync(paths=files, directories=directories)
        else:
            self._common.run()
        for path in files:
            self._storage.drop_cached(Place(path, 0, 0))
