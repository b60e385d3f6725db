"""What the operations of a partition log answer."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final, NamedTuple

from log.files.data_file import Place
from log.format.record_batch import LOG_OVERHEAD_BYTES

if TYPE_CHECKING:
    from log.files.data_file import DataFile
    from log.files.storage import Storage

_BATCH_LENGTH: Final = slice(8, 12)


class Appended(NamedTuple):
    """Where the records of an accepted batch lie. A duplicate is not written; its answer tells where the original lies."""

    base_offset: int
    """The first offset, or -1 where a topic drops the whole batch by producer names, whose offsets nobody keeps."""
    last_offset: int
    """The last offset, or -1 likewise."""
    log_append_time_ms: int
    """The time that the broker gave the records; -1 where the producer's time counts."""
    log_start_offset: int
    is_duplicate: bool
    """Whether nothing was written, because the log has all the records already."""
    answer_after: int
    """The offset that must be durable before the answer may leave."""

    @property
    def has_offsets(self) -> bool:
        """Whether the answer tells offsets."""
        return self.base_offset >= 0


class ReadResult(NamedTuple):
    """Record batches as they are stored; the last one may be cut."""

    records: bytes


class FileRegion:
    """A run of bytes of a segment file that was found and not yet read. Its length is the number of bytes."""

    __slots__ = ("_file", "_position", "_size_bytes", "_storage", "segment_base_offset")

    def __init__(
        self, storage: Storage, file: DataFile, position: int, size_bytes: int, segment_base_offset: int
    ) -> None:
        """Point at `size_bytes` bytes from `position` on, all of which are in the file."""
        self.segment_base_offset = segment_base_offset
        self._storage = storage
        self._file = file
        self._position = position
        self._size_bytes = size_bytes

    def __len__(self) -> int:
        return self._size_bytes

    @property
    def end_position(self) -> int:
        """The byte of the file after the last one."""
        return self._position + self._size_bytes

    def read(self, start: int = 0, size_bytes: int | None = None) -> bytes:
        """The bytes from `start` on, all or `size_bytes` of them. Raises OSError."""
        wanted = self._size_bytes - start if size_bytes is None else size_bytes
        return self._storage.read(self._file, wanted, self._position + start)

    def first_batch_bytes(self) -> int:
        """The size of the batch it begins with, which may reach beyond its end. Raises OSError."""
        head = self.read(0, LOG_OVERHEAD_BYTES)
        return LOG_OVERHEAD_BYTES + int.from_bytes(head[_BATCH_LENGTH], "big")

    def place(self, start: int, size_bytes: int) -> Place:
        """Where `size_bytes` bytes from `start` on lie."""
        return Place(self._file.path, self._position + start, size_bytes)

    def is_cached(self, start: int, size_bytes: int) -> bool:
        """Whether `size_bytes` bytes from `start` on can be read without waiting for the disk. Raises OSError."""
        return self._storage.is_cached(self._file, self._position + start, size_bytes)

    def send(self, socket_descriptor: int, start: int, size_bytes: int | None = None) -> int:
        """Hand the bytes from `start` on, all or `size_bytes` of them, to a socket inside the kernel; returns how many it took.

        Raises BlockingIOError when the socket takes none now, OSError.
        """
        wanted = self._size_bytes - start if size_bytes is None else size_bytes
        return self._storage.send(self._file, socket_descriptor, self._position + start, wanted)

    def kept(self) -> KeptRegion:
        """The same bytes, to be read later: they stay readable until `release`, even if the segment is removed."""
        return KeptRegion(
            self._storage, self._file, self._position, self._size_bytes, self.segment_base_offset
        )


class KeptRegion(FileRegion):
    """A region for one who reads it by and by. After `release` it can't be read any more.

    Where the file could not be kept, because the log was recovered in place or too many readers hold removed files,
    reading raises OSError: never are other bytes returned.
    """

    __slots__ = ("_released",)

    def __init__(
        self, storage: Storage, file: DataFile, position: int, size_bytes: int, segment_base_offset: int
    ) -> None:
        """As a FileRegion's, and have the file kept."""
        super().__init__(storage, file, position, size_bytes, segment_base_offset)
        self._released = False
        storage.begin_reading(file)

    def read(self, start: int = 0, size_bytes: int | None = None) -> bytes:
        """As a FileRegion's. Raises OSError when the bytes are gone."""
        self._check()
        return super().read(start, size_bytes)

    def send(self, socket_descriptor: int, start: int, size_bytes: int | None = None) -> int:
        """As a FileRegion's. Raises OSError when the bytes are gone."""
        self._check()
        return super().send(socket_descriptor, start, size_bytes)

    def release(self) -> None:
        """Need the bytes no more; once more is fine."""
        if not self._released:
            self._released = True
            self._storage.end_reading(self._file)

    def _check(self) -> None:
        file = self._file
        # a flush may still hold the descriptor of a file whose bytes are rewritten
        if self._released or (file.retired and not file.outlives_name):
            raise FileNotFoundError(errno.ENOENT, "the records are no longer in the log", file.path)

    def __del__(self) -> None:
        # an answer that was never sent is dropped by its connection without a word
        self.release()


class TimestampAndOffset(NamedTuple):
    """A record found by time; timestamp in ms."""

    timestamp: int
    offset: int
    leader_epoch: int
