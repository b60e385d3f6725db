"""Searches all segments of a data directory that no gateway has open for damage. Changes no file.

A running gateway checks only segments that a crash may have torn, and those in which a reader meets damage.

Reads the batches of a partition that no gateway has open, without a lock and without a change.

Reading ends before the first torn batch, where a gateway would truncate the log at its start. A batch that
was durable and can't be read is damaged, and an error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from seqgate.log.directory.stored_logs import RECOVERY_POINTS, WORKERS, peek_stored_logs
from seqgate.log.durability.durability import LocalDurability
from seqgate.log.errors import CorruptRecord, IncompatibleFormat
from seqgate.log.files.checkpoints import CorruptCheckpoint, decode_offset, decode_offsets
from seqgate.log.files.file_names import (
    LOG_START_OFFSET,
    LOG_SUFFIX,
    offset_name,
    offsets_of,
    parse_partition_directory,
)
from seqgate.log.files.storage import DataFile, Storage
from seqgate.log.format.record_batch import HEADER_BYTES, BatchHeader, crc_matches, parse_header
from seqgate.log.segments.damage import DamagedRange, DamageRegister
from seqgate.log.segments.scan import EVERYWHERE, SegmentScan


class DamagedPartition(NamedTuple):
    """A partition and its damaged ranges, ascending. All batches below `durable_end_offset` were durable."""

    name: str
    durable_end_offset: int
    ranges: list[DamagedRange]


def scan_directory(storage: Storage, root: str) -> Iterator[DamagedPartition]:
    """Yield the partitions with damage below their recovery points. Raises OSError, IncompatibleFormat."""
    ends = durable_ends(storage, root)
    registers = []
    for files in _places(storage, root):
        register = DamageRegister()
        register.load(storage, LocalDurability(storage), root, files)
        registers.append(register)
    for name in sorted(storage.list_directory(root)):
        if parse_partition_directory(name) is None:
            continue
        directory = f"{root}/{name}"
        known = [found for register in registers for found in register.of(directory)]
        ranges = _ranges_of(storage, directory, ends.get(name, 0), known)
        if ranges:
            yield DamagedPartition(name, ends.get(name, 0), ranges)


def durable_ends(storage: Storage, root: str) -> dict[str, int]:
    """Return the durable end offsets by directory. Where two workers have a point for a name, nobody knows
    whose is right: the lower one is sure. Raises OSError, IncompatibleFormat.
    """
    ends: dict[str, int] = {}
    for files in _places(storage, root):
        for name, offset in _ends_in(storage, files).items():
            ends[name] = min(offset, ends.get(name, offset))
    return ends


def _places(storage: Storage, root: str) -> list[str]:
    """Return the directories with recovery points: of one process, or of several workers that were killed."""
    shared = f"{root}/{WORKERS}"
    return (
        [f"{shared}/{name}" for name in storage.list_directory(shared)] if storage.exists(shared) else [root]
    )


def _ends_in(storage: Storage, files: str) -> dict[str, int]:
    ends = {name: stored.recovery_point for name, stored in peek_stored_logs(storage, files).items()}
    path = f"{files}/{RECOVERY_POINTS}"
    if storage.exists(path):
        with contextlib.suppress(CorruptCheckpoint):
            for (topic, partition), offset in decode_offsets(storage.read_file(path), path).items():
                name = f"{topic}-{partition}"
                ends[name] = max(offset, ends.get(name, 0))
    return ends


def _ranges_of(
    storage: Storage, directory: str, durable_end_offset: int, known: Sequence[DamagedRange]
) -> list[DamagedRange]:
    files = storage.list_files(directory)
    bases = offsets_of(files, LOG_SUFFIX)
    start_offset = _log_start(storage, directory, files)
    found: list[DamagedRange] = []
    for number, base_offset in enumerate(bases):
        if base_offset >= durable_end_offset:
            break
        is_last = number + 1 == len(bases)
        next_base = EVERYWHERE if is_last else bases[number + 1]
        file = DataFile(f"{directory}/{offset_name(base_offset, LOG_SUFFIX)}")
        scan = SegmentScan(
            _reader(storage, file),
            file.path,
            files[offset_name(base_offset, LOG_SUFFIX)],
            base_offset,
            next_offset=base_offset,
            kept_below=durable_end_offset,
            limit=next_base if next_base <= durable_end_offset else EVERYWHERE,
        )
        try:
            found += [part for part in scan if isinstance(part, DamagedRange)]
        finally:
            storage.descriptors.release(file)
        missing = scan.missing() if is_last else None
        if missing is not None:
            found.append(missing)
    found += [damaged for damaged in known if not damaged.size_bytes and damaged.segment_base_offset in bases]
    by_place = {(damaged.segment_base_offset, damaged.position): damaged for damaged in (*found, *known)}
    places = sorted({(damaged.segment_base_offset, damaged.position) for damaged in found})
    return [by_place[place] for place in places if by_place[place].end_offset > start_offset]


def _reader(storage: Storage, file: DataFile) -> Callable[[int, int], bytes]:
    return lambda position, size_bytes: storage.read(file, size_bytes, position)


def _log_start(storage: Storage, directory: str, files: dict[str, int]) -> int:
    if LOG_START_OFFSET not in files:
        return 0
    path = f"{directory}/{LOG_START_OFFSET}"
    try:
        return decode_offset(storage.read_file(path), path)
    except (CorruptCheckpoint, IncompatibleFormat):
        return 0


def stored_batches(storage: Storage, directory: Path) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the batches of a partition, in order, up to the first torn one. Raises CorruptRecord for a
    damaged batch, LogError, IncompatibleFormat, OSError.
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
