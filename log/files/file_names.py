"""Names of partition directories and of the files in them: Kafka's, with base offsets of 20 digits."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

LOG_SUFFIX: Final = ".log"
OFFSET_INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
NAMES_SUFFIX: Final = ".names"
"""The suffix of snapshots of producer names."""
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
DELETED_SUFFIX: Final = ".deleted"
TEMPORARY_SUFFIX: Final = ".tmp"
CLEANED_SUFFIX: Final = ".cleaned"
"""The suffix of files that a cleaning is writing. A start deletes such files."""
SWAP_SUFFIX: Final = ".swap"
"""The suffix of a whole cleaned segment, maybe the only copy of its records. A start swaps it in."""
PARTITION_METADATA: Final = "partition.metadata"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
LOG_START_OFFSET: Final = "log-start-offset-checkpoint"
DELAYED_RECORDS: Final = "delayed-records"
DEDUPLICATION_START: Final = "deduplication-start-checkpoint"
"""The file with the offset from which producer names are tracked."""
SIDE_FILES: Final = frozenset(
    {PARTITION_METADATA, LEADER_EPOCHS, LOG_START_OFFSET, DELAYED_RECORDS, DEDUPLICATION_START}
)
"""The files of a partition whose names have no offset."""

_PARTITION_DIRECTORY = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)\Z")
_OFFSET_NAME = re.compile(r"(\d{20})(\.[a-z]+)\Z")


def offset_name(offset: int, suffix: str) -> str:
    """Return the name of a file that belongs to `offset`."""
    return f"{offset:020d}{suffix}"


def cleaned_name(offset: int, suffix: str, token: str) -> str:
    """Return the name of a file that a cleaning writes. Each cleaning has its own `token`."""
    return f"{offset_name(offset, suffix)}.{token}{CLEANED_SUFFIX}"


def parse_offset_name(name: str) -> tuple[int, str] | None:
    """Return (offset, suffix) of a file name made by `offset_name`; None for any other name."""
    match = _OFFSET_NAME.match(name)
    return (int(match[1]), match[2]) if match else None


def parse_partition_directory(name: str) -> tuple[str, int] | None:
    """Return (topic, partition) of a partition's directory; None for any other name."""
    match = _PARTITION_DIRECTORY.match(name)
    if match is None or str(int(match["partition"])) != match["partition"]:
        return None
    return match["topic"], int(match["partition"])


def offsets_of(names: Iterable[str], suffix: str) -> list[int]:
    """Return the offsets of all file names made by `offset_name` with this suffix, ascending."""
    parsed = (parse_offset_name(name) for name in names)
    return sorted(found[0] for found in parsed if found and found[1] == suffix)
