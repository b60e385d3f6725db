"""The files in which a partition keeps what it remembers of producer names.

`<20 digits>.names`: the bytes are seq_validator's; the name tells the log_end_offset they belong to. One is written only after all
below that offset is durable, whole and under another name first, so no crash makes it say what the log has lost.
`deduplication-start-checkpoint`: the offset from which on names are remembered, as Kafka's checkpoints of offsets have it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from log.checkpoints import CorruptCheckpoint, decode_offsets, encode_offsets
from log.names import DEDUPLICATION_START, NAMES_SUFFIX, TEMPORARY_SUFFIX, offset_name, offsets_of
from seq_validator.names import CorruptNames, WrittenName, decode_names, encode_names

if TYPE_CHECKING:
    from log.storage import Storage

KEPT_SNAPSHOTS: Final = 2
_logger = logging.getLogger(__name__)


class NamesCapture(NamedTuple):
    """What was remembered when the log ended at `log_end_offset`. `write` may be called in any thread."""

    storage: Storage
    directory: str
    names: list[WrittenName]
    log_end_offset: int

    def write(self) -> None:
        """Make the snapshot, durable, and drop old ones, once all below the offset is durable. Raises OSError."""
        storage, directory = self.storage, self.directory
        path = f"{directory}/{offset_name(self.log_end_offset, NAMES_SUFFIX)}"
        storage.replace_file(path, encode_names(self.names, self.log_end_offset))
        offsets = offsets_of(storage.list_directory(directory), NAMES_SUFFIX)
        for offset in offsets[:-KEPT_SNAPSHOTS]:
            storage.delete(f"{directory}/{offset_name(offset, NAMES_SUFFIX)}")


def newest_names(storage: Storage, directory: str, log_end_offset: int) -> NamesCapture | None:
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
            return NamesCapture(storage, directory, names, offset)
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


def write_start(storage: Storage, directory: str, topic: str, partition: int, offset: int) -> str:
    """Note from which offset on names are remembered; the file's path, not yet durable. Raises OSError."""
    path = f"{directory}/{DEDUPLICATION_START}"
    storage.write_file(path + TEMPORARY_SUFFIX, encode_offsets({(topic, partition): offset}))
    storage.rename(path + TEMPORARY_SUFFIX, path)
    return path
