"""The results that the operations of a partition log return."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final, NamedTuple

from log.files.data_file import Place
from log.format.record_batch import LOG_OVERHEAD_BYTES

if TYPE_CHECKING:
    from log.files.data_file import DataFile
    from log.files.storage import Storage
    from log.format.record_batch import BatchHeader

_BATCH_LENGTH: Final = slice(8, 12)


class Appended(NamedTuple):
    """The offsets of an accepted batch. A duplicate is not written; its result has the original's offsets."""

    base_offset: int
    """The first offset; -1 if all records are duplicates by producer name, as the originals' offsets are not kept."""
    last_offset: int
    """The last offset; -1 in the same case."""
    log_append_time_ms: int
    """The timestamp that the broker gave the records; -1 where the producer's timestamps count."""
    log_start_offset: int
    is_duplicate: bool
    """Whether the log wrote nothing, because it holds all the records already."""
    answer_after: int
    """The offset that must be durable before the answer may leave."""
    batch: BatchHeader | None = None
    """The header of the batch; None if all its records are duplicates by producer name."""

    @property
    def has_offsets(self) -> bool:
        """Whether the first and last offset of the region are known."""
        return self.base_offset >= 0


class ReadResult(NamedTuple):
    """Record batches as stored; the last batch may be cut."""

    records: bytes


class FileRegion:
    """A range of bytes in a segment file, found but not yet read. `len` is the number of bytes."""

    __slots__ = ("_file", "_position", "_size_bytes", "_storage", "segment_base_offset")

    def __init__(
        self, storage: Storage, file: DataFile, position: int, size_bytes: int, segment_base_offset: int
    ) -> None:
        """Point at `size_bytes` bytes from `position` on. The file must hold all of the bytes."""
        self.segment_base_offset = segment_base_offset
        self._storage = storage
        self._file = file
        self._position = position
        self._size_bytes = size_bytes

    def __len__(self) -> int:
        return self._size_bytes

    @property
    def end_position(self) -> int:
        """The position in the file after the last byte."""
        return self._position + self._size_bytes

    def read(self, start: int = 0, size_bytes: int | None = None) -> bytes:
        """Return the bytes from `start` on, all or `size_bytes` of them. Raises OSError."""
        wanted = self._size_bytes - start if size_bytes is None else size_bytes
        return self._storage.read(self._file, wanted, self._position + start)

    def first_batch_bytes(self) -> int:
        """Return the size of the first batch, which may reach beyond the region's end. Raises OSError."""
        head = self.read(0, LOG_OVERHEAD_BYTES)
        return LOG_OVERHEAD_BYTES + int.from_bytes(head[_BATCH_LENGTH], "big")

    def place(self, start: int, size_bytes: int) -> Place:
        """Return the place of `size_bytes` bytes from `start` on."""
        return Place(self._file.path, self._position + start, size_bytes)

    def is_cached(self, start: int, size_bytes: int) -> bool:
        """Return whether `size_bytes` bytes from `start` on can be read without waiting for the disk. Raises OSError."""
        return self._storage.is_cached(self._file, self._position + start, size_bytes)

    def send(self, socket_descriptor: int, start: int, size_bytes: int | None = None) -> int:
        """Send the bytes from `start` on, all or `size_bytes` of them, to a socket by sendfile. Return how many it took.

        Raises BlockingIOError when the socket is full, OSError.
        """
        wanted = self._size_bytes - start if size_bytes is None else size_bytes
        return self._storage.send(self._file, socket_descriptor, self._position + start, wanted)

    def kept(self) -> KeptRegion:
        """Return a region of the same bytes that stays readable until `release`, even if the segment is removed."""
        return KeptRegion(
            self._storage, self._file, self._position, self._size_bytes, self.segment_base_offset
        )


class KeptRegion(FileRegion):
    """A region that a reader reads bit by bit, until `release`.

    The file is lost to the reader when the log is recovered in place, or when too many readers hold removed files. Reading then
    raises OSError, and never returns other bytes.
    """

    __slots__ = ("_released",)

    def __init__(
        self, storage: Storage, file: DataFile, position: int, size_bytes: int, segment_base_offset: int
    ) -> None:
        """Point at the bytes, and count a reader so that the file stays open."""
        super().__init__(storage, file, position, size_bytes, segment_base_offset)
        self._released = False
        storage.descriptors.begin_reading(file)

    def read(self, start: int = 0, size_bytes: int | None = None) -> bytes:
        """Return the bytes from `start` on, all or `size_bytes` of them. Raises OSError, also when the file is no
        longer available.
        """
        self._check()
        return super().read(start, size_bytes)

    def send(self, socket_descriptor: int, start: int, size_bytes: int | None = None) -> int:
        """Send the bytes from `start` on to a socket, and return how many it took. Raises OSError, also when the file
        is no longer available.
        """
        self._check()
        return super().send(socket_descriptor, start, size_bytes)

    def release(self) -> None:
        """Release the file, so that it can be closed. A second call does nothing."""
        if not self._released:
            self._released = True
            self._storage.descriptors.end_reading(self._file)

    def _check(self) -> None:
        file = self._file
        # A flush may still hold the descriptor of a file whose bytes are being rewritten.
        if self._released or (file.retired and not file.outlives_name):
            raise FileNotFoundError(errno.ENOENT, "the records are no longer in the log", file.path)

    def __del__(self) -> None:
        # A connection drops an unsent answer without calling `release`.
        self.release()


class TimestampAndOffset(NamedTuple):
    """A record found by time. The timestamp is in ms."""

    timestamp: int
    offset: int
    leader_epoch: int
