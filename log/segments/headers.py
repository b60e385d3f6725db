"""Reads the headers of consecutive batches from a segment file, a part of the file at a time.

Both functions yield (position, header) of each batch that starts in [position, end), and raise CorruptRecord at a header that
can't be right, OSError, NotCached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from log.errors import CorruptRecord
from log.format.record_batch import HEADER_BYTES, MAGIC, parse_header

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from log.files.data_file import DataFile
    from log.files.storage import Storage
    from log.format.record_batch import BatchHeader
    from log.segments.damage import DamagedRange


def headers(
    storage: Storage, file: DataFile, base_offset: int, position: int, end: int, chunk_bytes: int
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the headers of a stretch without known damage. The segment begins at `base_offset`."""
    next_offset = base_offset
    while position + HEADER_BYTES <= end:
        data = storage.read(file, min(chunk_bytes, end - position), position)
        at, last_at = 0, len(data) - HEADER_BYTES
        while at <= last_at:
            batch = parse_header(data, at)
            base_offset, size_bytes, delta = batch.base_offset, batch.size_bytes, batch.last_offset_delta
            # As `is_plausible`, without a call for each batch.
            if base_offset < next_offset or batch.magic != MAGIC or size_bytes < HEADER_BYTES or delta < 0:
                raise CorruptRecord(f"{file.path} is damaged at position {position + at}")
            yield position + at, batch
            next_offset = base_offset + delta + 1
            at += size_bytes
        if not at:
            return
        position += at


def headers_around(
    damage: Sequence[DamagedRange],
    storage: Storage,
    file: DataFile,
    base_offset: int,
    position: int,
    end: int,
    chunk_bytes: int,
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the headers before, between and after damaged ranges, which ascend."""
    for found in damage:
        if found.position >= end:
            break
        behind = found.position + found.size_bytes
        if position < behind:
            yield from headers(storage, file, base_offset, position, found.position, chunk_bytes)
            position = behind
    yield from headers(storage, file, base_offset, position, end, chunk_bytes)
