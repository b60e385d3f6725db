"""Lists the damage that a running gateway knows in its data directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from log.files.file_names import parse_partition_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from log.directory.log_directory import LogDirectory
    from log.segments.damage import CutBytes, DamagedRange


def known_damage(directory: LogDirectory) -> Iterator[tuple[str, int, DamagedRange]]:
    """Yield (topic, partition, damaged range) of all known damage, without ranges that were deleted since."""
    for path, ranges in sorted(directory.environment.damage.all().items()):
        key = parse_partition_directory(path.rpartition("/")[2])
        log = None if key is None else directory.opened(*key)
        if key is None or (log is None and key not in directory.stored()):
            continue
        for found in ranges:
            if log is None or (
                found.segment_base_offset in log.segments.bases and found.end_offset > log.log_start_offset
            ):
                yield (*key, found)


def known_cut_bytes(directory: LogDirectory) -> Iterator[tuple[str, int, CutBytes]]:
    """Yield (topic, partition, cut bytes) of all files of cut bytes that nobody has deleted since."""
    storage = directory.environment.storage
    for path, files in sorted(directory.environment.damage.cut().items()):
        key = parse_partition_directory(path.rpartition("/")[2])
        for found in files:
            if key is not None and storage.exists(f"{path}/{found.file_name}"):
                yield (*key, found)
