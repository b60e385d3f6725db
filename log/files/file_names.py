"""Names of partition directories and of the files in them: Kafka's, with base offsets of 20 digits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

LOG_SUFFIX: Final = ".log"
OFFSET_INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
NAMES_SUFFIX: Final = ".names"
"""What is remembered of producer names."""
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
DELETED_SUFFIX: Final = ".deleted"
TEMPORARY_SUFFIX: Final = ".tmp"
CLEANED_SUFFIX: Final = ".cleaned"
"""What compaction makes is written under this name and renamed when it is whole."""
SWAP_SUFFIX: Final = ".swap"
"""Whole, and perhaps all that is left of the records in it: a start puts it in place."""
PARTITION_METADATA: Final = "partition.metadata"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
LOG_START_OFFSET: Final = "log-start-offset-checkpoint"
DELAYED_RECORDS: Final = "delayed-records"
DEDUPLICATION_START: Final = "deduplication-start-checkpoint"
"""From which offset on producer names are remembered."""

_PARTITION_DIRECTORY = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)\Z")
_OFFSET_NAME = re.compile(r"(\d{20})(\.[a-z]+)\Z")


def offset_name(offset: int, suffix: str) -> str:
    """The name of a file that belongs to `offset`."""
    return f"{offset:020d}{suffix}"


def cleaned_name(offset: int, suffix: str, token: str) -> str:
    """The name of a file that a cleaning has written; `token` keeps two cleanings apart."""
    return f"{offset_name(offset, suffix)}.{token}{CLEANED_SUFFIX}"


def parse_offset_name(name: str) -> tuple[int, str] | None:
    """(offset, suffix) of such a name; None for any other."""
    match = _OFFSET_NAME.match(name)
    return (int(match[1]), match[2]) if match else None


def parse_partition_directory(name: str) -> tuple[str, int] | None:
    """(topic, partition) of a partition's directory; None for any other name."""
    match = _PARTITION_DIRECTORY.match(name)
    if match is None or str(int(match["partition"])) != match["partition"]:
        return None
    return match["topic"], int(match["partition"])


def offsets_of(names: Iterable[str], suffix: str) -> list[int]:
    """The offsets of those among these file names that belong to one and end so, ascending."""
    parsed = (parse_offset_name(name) for name in names)
    return sorted(found[0] for found in parsed if found and found[1] == suffix)
