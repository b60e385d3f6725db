"""Which objects of a session's write-ahead log a start or an adoption still needs.

A row is covered once a manifest that counts has what the row says: its records, its side file, or its log start offset. A manifest of the
session itself counts when an object that was put after the manifest's replacement is confirmed, because the session was in force then.
A manifest of a later leader counts at once: that leader had all rows before it replaced the manifest. An object may be deleted when all
its rows are covered, and all objects before it may be deleted, too.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.cluster.parts.manifest import Manifest, PartitionKey, Place
from gateway.cluster.wal.row_data import RowData, in_one_piece
from gateway.cluster.wal.wal_object import DataRow, Row
from log.uploading import LOG_START_OFFSET, log_start_in

_NO_PLACE: Final = (-1, -1, -1)
MOST_ROWS: Final = 1024
"""The most entries of a partition. If there are more, neighbouring entries are joined, and count as covered only together."""


@dataclass(slots=True)
class _Rows:
    """The rows of one partition in one object, or in several that follow each other."""

    seq: int
    """The first object."""
    put_s: float
    """When the first object was put."""
    size_bytes: int = 0
    end_offset: int = 0
    files_place: Place = _NO_PLACE
    """The place of the last object with a side file."""
    log_start_offset: int = 0

    def add(self, row: Row, data: RowData, session: int) -> None:
        self.size_bytes += row.length
        if isinstance(row, DataRow):
            self.end_offset = row.end_offset
        elif row.name == LOG_START_OFFSET:
            self.log_start_offset = max(
                self.log_start_offset,
                log_start_in(bytes(in_one_piece(data))),
            )
        else:
            self.files_place = row.leader_epoch, session, self.seq

    def join(self, later: _Rows) -> None:
        self.size_bytes += later.size_bytes
        self.end_offset = max(self.end_offset, later.end_offset)
        self.files_place = max(self.files_place, later.files_place)
        self.log_start_offset = max(self.log_start_offset, later.log_start_offset)

    def are_in(self, manifest: Manifest) -> bool:
        """Return whether the manifest covers the rows."""
        return (
            self.end_offset <= manifest.end_offset
            and self.files_place < manifest.place
            and self.log_start_offset <= manifest.log_start_offset
        )


class Coverage:
    """The rows of one session that no manifest covers, by partition and in the order of their objects."""

    def __init__(self, seconds: Callable[[], float] = time.monotonic, session: int = 0) -> None:
        """`seconds` is a clock that is never set."""
        self._seconds = seconds
        self.session = session
        """The number of the session whose log it is."""
        self._rows: dict[PartitionKey, deque[_Rows]] = {}
        self._from_before: set[PartitionKey] = set()
        self.size_bytes = 0
        """The bytes of all rows that are not covered."""

    def begin(self, partitions: Iterable[PartitionKey]) -> None:
        """Take partitions that need a manifest of this session: the bucket has records of them in logs that have ended, for example."""
        self._from_before.update(partitions)

    def put(self, seq: int, rows: Sequence[Row], data: Sequence[RowData]) -> None:
        """Note an object that was put. Of the data only that of log start offsets is looked at."""
        for row, content in zip(rows, data, strict=True):
            entries = self._rows.setdefault(PartitionKey(row.topic_id, row.partition), deque())
            if not entries or entries[-1].seq != seq:
                if len(entries) >= MOST_ROWS:
                    _join_pairs(entries)
                entries.append(_Rows(seq, self._seconds()))
            entries[-1].add(row, content, self.session)
            self.size_bytes += row.length

    def wanting(self) -> set[PartitionKey]:
        """Return the partitions that need a manifest."""
        return self._from_before | self._rows.keys()

    def log_start_of(self, partition: PartitionKey) -> int:
        """Return the newest log start offset of the partition in an object, 0 without one.

        The log itself may have an earlier one: it was loaded again, or the local disk was full, when the object was confirmed.
        """
        return max((rows.log_start_offset for rows in self._rows.get(partition, ())), default=0)

    def has_rows(self, partition: PartitionKey) -> bool:
        """Return whether the log has rows of the partition that no manifest covers."""
        return partition in self._rows

    def partitions(self) -> Collection[PartitionKey]:
        """Return the partitions with rows that no manifest covers."""
        return list(self._rows)

    def counts(self, manifest: Manifest) -> None:
        """Take a manifest that counts now."""
        partition = manifest.key
        self._from_before.discard(partition)
        entries = self._rows.get(partition, deque())
        while entries and entries[0].are_in(manifest):
            self.size_bytes -= entries.popleft().size_bytes
        if not entries:
            self._rows.pop(partition, None)

    def has_nothing(self, partition: PartitionKey) -> None:
        """Note that nobody has written anything of a partition that exists."""
        self._from_before.discard(partition)

    def forget(self, partitions: Iterable[PartitionKey]) -> None:
        """Need nothing of these partitions any more: the deletion of their topics is durable, for example."""
        for partition in partitions:
            self._from_before.discard(partition)
            self.size_bytes -= sum(rows.size_bytes for rows in self._rows.pop(partition, ()))

    @property
    def oldest_s(self) -> float | None:
        """When the oldest object with rows that are not covered was put; None without such rows."""
        return min((entries[0].put_s for entries in self._rows.values()), default=None)

    def first_needed(self, confirmed_end: int) -> int:
        """Return the seq of the first object that is needed; `confirmed_end` is the first seq that is not confirmed."""
        return min(confirmed_end, *(entries[0].seq for entries in self._rows.values()), confirmed_end)


def _join_pairs(entries: deque[_Rows]) -> None:
    """Halve the number of entries."""
    whole = list(entries)
    entries.clear()
    for number in range(0, len(whole), 2):
        entries.append(whole[number])
        if number + 1 < len(whole):
            entries[-1].join(whole[number + 1])
