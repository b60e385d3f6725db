"""The files in which a partition keeps what it remembers of producer names.

`<20 digits>.names`: the bytes are seq_validator's; the name tells the log_end_offset they belong to. One is written only after all
below that offset is durable, whole and under another name first, so no crash makes it say what the log has lost.
`deduplication-start-checkpoint`: the offset from which on names are remembered, as Kafka's checkpoints of offsets have it.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from log.files.checkpoints import CorruptCheckpoint, decode_offsets, encode_offsets
from log.files.file_names import DEDUPLICATION_START, NAMES_SUFFIX, offset_name, offsets_of
from seq_validator.names import CorruptNames, WrittenName, decode_names, encode_names

if TYPE_CHECKING:
    from log.files.storage import Storage

KEPT_SNAPSHOTS: Final = 2
_logger = logging.getLogger(__name__)


class NameSnapshots:
    """Where one table of names is written down, for as long as the log keeps it."""

    __slots__ = ("_closed", "_directory", "_lock", "_newest", "_storage")

    def __init__(self, storage: Storage, directory: str) -> None:
        """Begin with what is there, which is older than all that comes."""
        self._storage = storage
        self._directory = directory
        self._lock = threading.Lock()
        self._newest = 0
        self._closed = False

    def write(self, capture: NamesCapture) -> None:
        """Make the snapshot, durable, unless a later one is, and drop old ones. Does nothing when closed. Raises OSError.

        May be called in any thread. Two of one offset have one name, so the earlier must not come last.
        """
        storage, directory = self._storage, self._directory
        with self._lock:
            if self._closed or capture.times <= self._newest:
                return
            path = f"{directory}/{offset_name(capture.log_end_offset, NAMES_SUFFIX)}"
            storage.replace_file(path, encode_names(capture.names, capture.log_end_offset))
            offsets = offsets_of(storage.list_directory(directory), NAMES_SUFFIX)
            for offset in offsets[:-KEPT_SNAPSHOTS]:
                storage.delete(f"{directory}/{offset_name(offset, NAMES_SUFFIX)}")
            self._newest = capture.times

    def close(self) -> None:
        """Write no more, not even for flushes under way: the directory's name may soon be another log's."""
        with self._lock:
            self._closed = True


class NamesCapture:
    """What was remembered when the log ended at `log_end_offset`. `write` may be called in any thread."""

    __slots__ = ("log_end_offset", "names", "snapshots", "times")

    def __init__(
        self, snapshots: NameSnapshots, written: tuple[list[WrittenName], int], log_end_offset: int
    ) -> None:
        """Begin unwritten."""
        self.snapshots = snapshots
        self.names, self.times = written
        self.log_end_offset = log_end_offset

    def write(self) -> None:
        """Make the snapshot, durable, once all below the offset is durable. Raises OSError."""
        self.snapshots.write(self)


class ReadNames(NamedTuple):
    """What a snapshot says was remembered when the log ended at `log_end_offset`."""

    names: list[WrittenName]
    log_end_offset: int


def newest_names(storage: Storage, directory: str, log_end_offset: int) -> ReadNames | None:
    """The newest sound snapshot of a log that ends there; None without one.

    One that is damaged is passed over: the log after an older one says the same. Raises OSError.
    """
    offsets = offsets_of(storage.list_directory(directory), NAMES_SUFFIX)
    for offset in reversed(offsets):
        path = f"{directory}/{offset_name(offset, NAMES_SUFFIX)}"
        if offset > log_end_offset:
            continue
        try:
            names, belongs_to = decode_names(storage.read_file(path))
        except CorruptNames as error:
            _logger.warning("%s is not used: %s", path, error)
            continue
        if belongs_to == offset:
            return ReadNames(names, offset)
        _logger.warning("%s is not used: it says it belongs to offset %d", path, belongs_to)
    return None


def read_start(storage: Storage, directory: str) -> int | None:
    """From which offset on names are remembered; None where they never were. Raises OSError.

    Of a damaged file it is 0: rather too much is read again than too little.
    """
    path = f"{directory}/{DEDUPLICATION_START}"
    if not storage.exists(path):
        return None
    try:
        return max(decode_offsets(storage.read_file(path), path).values(), default=0)
    except CorruptCheckpoint as error:
        _logger.warning("%s Names are read from the start of the log.", error)
        return 0


def write_start(storage: Storage, directory: str, topic: str, partition: int, offset: int) -> None:
    """Have it durable from which offset on names are remembered. Raises OSError."""
    storage.replace_file(f"{directory}/{DEDUPLICATION_START}", encode_offsets({(topic, partition): offset}))
