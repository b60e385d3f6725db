"""Reads and writes the files with the producer names of a partition.

`<20 digits>.names`: a snapshot in seq_validator's format. The digits are the log_end_offset of the snapshot. A snapshot is written
only after all records below that offset are durable, first under a temporary file name. So no crash leaves a snapshot that knows
more than the log.
`deduplication-start-checkpoint`: the offset from which names are tracked, in the format of Kafka's offset checkpoints. A log that
began in a topic that deduplicates has this offset, 0, in `partition.metadata` too. A crash keeps no record of a new log without that
file, so the first named record need not wait for the checkpoint.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from log.files.checkpoints import CorruptCheckpoint, decode_offsets, encode_offsets, tracks_names_from_start
from log.files.file_names import (
    DEDUPLICATION_START,
    NAMES_SUFFIX,
    PARTITION_METADATA,
    offset_name,
    offsets_of,
)
from seq_validator.names import CorruptNames, WrittenName, decode_names, encode_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from log.durability.unflushed import SideFile
    from log.files.durable_files import DurableFiles
    from log.files.storage import Storage
    from log.place import LogPlace

KEPT_SNAPSHOTS: Final = 2
"""Snapshots kept per partition; older ones are deleted when a new one is written."""
_logger = logging.getLogger(__name__)


class NamesCapture:
    """The producer names at the time the log ended at `log_end_offset`. `write` may be called in any thread."""

    __slots__ = ("_file", "directory", "log_end_offset", "names", "number", "owner", "storage", "times")

    def __init__(
        self,
        owner: NamesOwner,
        storage: Storage,
        directory: str,
        file: SideFile,
        written: tuple[list[WrittenName], int],
        log_end_offset: int,
    ) -> None:
        """Take the names to write. `saved` reports to `owner` that the snapshot is durable."""
        self.owner = owner
        self.storage = storage
        self.directory = directory
        self._file = file
        self.names, self.times = written
        self.log_end_offset = log_end_offset
        self.number = file.next_number()

    def write(self, files: DurableFiles) -> None:
        """Persist the snapshot by `files`, and delete old ones. Call this once all records below the offset are durable. Raises OSError.

        Two captures at one offset share a file name, so an older one must not overwrite a newer one.
        """
        self._file.write(self.number, lambda: self._replace(files))

    def _replace(self, files: DurableFiles) -> None:
        storage, directory = self.storage, self.directory
        path = f"{directory}/{offset_name(self.log_end_offset, NAMES_SUFFIX)}"
        files.replace(path, encode_names(self.names, self.log_end_offset))
        if storage.keeps_deleted:
            return
        offsets = offsets_of(storage.list_directory(directory), NAMES_SUFFIX)
        for offset in offsets[:-KEPT_SNAPSHOTS]:
            storage.delete(f"{directory}/{offset_name(offset, NAMES_SUFFIX)}")

    def saved(self) -> None:
        """Report to the owner that the snapshot is durable."""
        self.owner.saved(self)


class NamesOwner(Protocol):
    """The names from which a capture was taken."""

    def saved(self, capture: NamesCapture) -> None:
        """Record that the capture is durable."""


class ReadNames(NamedTuple):
    """The content of a snapshot, taken when the log ended at `log_end_offset`."""

    names: list[WrittenName]
    log_end_offset: int


def newest_names(storage: Storage, directory: str, log_end_offset: int) -> ReadNames | None:
    """Return the newest sound snapshot of a log that ends at `log_end_offset`; None without one.

    A damaged snapshot is ignored: an older snapshot and a longer replay give the same names. Raises OSError.
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
        _logger.warning("%s is not used: its content belongs to offset %d", path, belongs_to)
    return None


def read_start(storage: Storage, directory: str) -> int | None:
    """Return the offset from which names are tracked; None if the log never tracked names. Raises OSError.

    Returns 0 for a damaged file: a replay of too many records does less harm than one of too few.
    """
    path = f"{directory}/{DEDUPLICATION_START}"
    if not storage.exists(path):
        return None
    try:
        return max(decode_offsets(storage.read_file(path), path).values(), default=0)
    except CorruptCheckpoint as error:
        _logger.warning("%s Names are read from the start of the log.", error)
        return 0


def began_with_names(storage: Storage, directory: str) -> bool:
    """Return whether the log has tracked names from offset 0 on, as its `partition.metadata` says. Raises OSError."""
    path = f"{directory}/{PARTITION_METADATA}"
    return storage.exists(path) and tracks_names_from_start(storage.read_file(path))


class StartCapture:
    """A capture of the offset from which names are tracked. `write` may be called in any thread."""

    __slots__ = ("_file", "_offset", "_place", "_saved")

    def __init__(self, file: SideFile, place: LogPlace, offset: int, saved: Callable[[], None]) -> None:
        """Take the offset to write. `saved` is called when the offset is durable."""
        self._file = file
        self._place = place
        self._offset = offset
        self._saved = saved

    def write(self, files: DurableFiles) -> None:
        """Persist the side file by `files`. Raises OSError."""
        self._file.write_unnumbered(lambda: self._replace(files))

    def _replace(self, files: DurableFiles) -> None:
        place = self._place
        content = encode_offsets({(place.topic, place.partition): self._offset})
        files.replace(f"{place.directory}/{DEDUPLICATION_START}", content)

    def saved(self) -> None:
        """Report that the offset is durable."""
        self._saved()
