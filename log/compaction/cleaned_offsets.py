"""The file `cleaner-offset-checkpoint` of a data directory: up to which offset each partition was compacted, in Kafka's format.

Losing this file only costs time: a partition without an entry is cleaned again. Source: Kafka's `LogCleanerManager`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from log.files.checkpoints import CorruptCheckpoint, decode_offsets, encode_offsets
from log.files.replacement import replace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from log.files.storage import Storage

_logger = logging.getLogger(__name__)
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"


def read_cleaned_offsets(storage: Storage, root: str) -> dict[tuple[str, int], int]:
    """Return the offsets by topic and partition; none if the file is missing or unreadable. Raises IncompatibleFormat."""
    path = f"{root}/{CLEANER_OFFSETS}"
    if not storage.exists(path):
        return {}
    try:
        return decode_offsets(storage.read_file(path), path)
    except (CorruptCheckpoint, OSError) as error:
        _logger.warning("%s: every compacted topic counts as dirty", error)
        return {}


def write_cleaned_offsets(storage: Storage, root: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Write the file without a flush; log an error."""
    path = f"{root}/{CLEANER_OFFSETS}"
    try:
        replace(storage, path, encode_offsets(offsets))
    except OSError as error:
        _logger.warning("%s can't be written: %s", path, error)
