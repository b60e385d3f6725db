"""The record batches of partition logs that no gateway has open: read without a lock, and without a change.

What a gateway would cut off at its start, from the first batch on that is torn, is not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from log import Storage
from log.files.file_names import LOG_SUFFIX, parse_offset_name
from log.format.record_batch import HEADER_BYTES, BatchHeader, crc_matches, parse_header


def stored_batches(directory: Path) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The whole batches of a partition, in order. Raises LogError, OSError."""
    storage = Storage()
    for name in sorted(filter(_is_segment, storage.list_files(str(directory)))):
        data = memoryview(storage.read_file(str(directory / name)))
        position = 0
        while position + HEADER_BYTES <= len(data):
            header = parse_header(data, position)
            end = position + header.size_bytes
            if header.size_bytes < HEADER_BYTES or end > len(data) or not crc_matches(header, data, position):
                break
            yield header, data[position:end]
            position = end
        if position != len(data):
            return


def partition_directories(data_dir: Path, topic: str) -> list[Path]:
    """The directories of a topic's partitions, those that are being deleted left out. Raises OSError."""
    return sorted(
        path
        for path in data_dir.glob(f"{topic}-*")
        if path.is_dir() and path.name.removeprefix(f"{topic}-").isdecimal()
    )


def _is_segment(name: str) -> bool:
    parsed = parse_offset_name(name)
    return parsed is not None and parsed[1] == LOG_SUFFIX
