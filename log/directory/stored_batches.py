"""Reads the batches of a partition that no gateway has open, without a lock and without a change.

Reading ends before the first torn batch, where a gateway would truncate the log at its start. A batch that was durable and can't be
read is damaged, and an error.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from log.directory.damage_scan import durable_ends
from log.errors import CorruptRecord
from log.files.file_names import LOG_SUFFIX, offset_name, offsets_of
from log.format.record_batch import HEADER_BYTES, crc_matches, parse_header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from log.files.storage import Storage
    from log.format.record_batch import BatchHeader


def stored_batches(storage: Storage, directory: Path) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the batches of a partition, in order, up to the first torn one.

    Raises CorruptRecord for a damaged batch, LogError, IncompatibleFormat, OSError.
    """
    durable_end = durable_ends(storage, str(directory.parent)).get(directory.name, 0)
    next_offset = 0
    for base_offset in offsets_of(storage.list_files(str(directory)), LOG_SUFFIX):
        next_offset = max(next_offset, base_offset)
        data = memoryview(storage.read_file(f"{directory}/{offset_name(base_offset, LOG_SUFFIX)}"))
        position = 0
        while position + HEADER_BYTES <= len(data):
            header = parse_header(data, position)
            end = position + header.size_bytes
            if header.size_bytes < HEADER_BYTES or end > len(data) or not crc_matches(header, data, position):
                break
            yield header, data[position:end]
            position, next_offset = end, header.last_offset + 1
        if position != len(data):
            break
    if next_offset < durable_end:
        raise CorruptRecord(f"{directory.name} is damaged at offset {next_offset}")
