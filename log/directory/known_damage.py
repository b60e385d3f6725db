"""Lists the damage that a running gateway knows in its data directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from seqgate.log.files.file_names import parse_partition_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from seqgate.log.config import LogConfig
    from seqgate.log.directory.log_directory import LogDirectory
    from seqgate.log.segments.damage import CutBytes, DamagedRange


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


# The share of a data directory that one process has: all of it, or the partitions of one of several workers.


class DirectoryShare(NamedTuple):
    """The partitions that a process opens, and the directory of its own files: its lock, checkpoints, clean
    stop and damage.

    No other process opens, creates or removes the directory of a partition with a name that this one uses:
    who serves partitions of a new topic under an old name sees to that. Only a process that `takes_leftovers`
    deletes what an earlier process left to be deleted. `others_delete`: processes run that have renamed some
    of that themselves, and delete it after a delay.
    """

    files: Path
    owns: Callable[[str, int], bool]
    takes_leftovers: bool
    others_delete: bool = False
    is_whole: bool = False
    tells_of: str | None = None
    """The directory with the files of a process that answers no commands: this one lists what was cut off
    there.
    """

    def due_ms(self, now_ms: int, config: LogConfig) -> int:
        """Return when leftovers may be deleted."""
        return now_ms + config.file_delete_delay_ms if self.others_delete else 0


def whole(path: Path) -> DirectoryShare:
    """Return the share of the one process that has the whole data directory."""
    return DirectoryShare(path, lambda _topic, _partition: True, takes_leftovers=True, is_whole=True)
