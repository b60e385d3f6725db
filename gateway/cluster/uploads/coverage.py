"""Which objects of the session's write-ahead log a start still needs.

A row is covered once a manifest that counts has what the row says: its records, its side file, or its log start offset. A manifest counts
when an object that was put after the manifest's replacement is confirmed, because the session was in force then. An object may be
deleted when all its rows are covered, and all objects before it may be deleted, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gateway.cluster.parts.keys import PartitionKey
from gateway.cluster.parts.manifest import Manifest
from gateway.cluster.wal.wal_object import Buffer, DataRow, Row
from log.uploading import LOG_START_OFFSET, log_start_in


@dataclass(slots=True)
class _Rows:
    """The newest rows of one partition in one object, or in all objects."""

    end_offset: int = 0
    files_seq: int = -1
    """The seq of the newest object with a side file; -1 without one."""
    log_start_offset: int = 0

    def add(self, row: Row, data: Buffer, seq: int) -> None:
        if isinstance(row, DataRow):
            self.end_offset = max(self.end_offset, row.end_offset)
        elif row.name == LOG_START_OFFSET:
            self.log_start_offset = max(self.log_start_offset, log_start_in(bytes(data)))
        else:
            self.files_seq = seq

    def are_in(self, manifest: Manifest) -> bool:
        """Return whether the manifest, of the same session, covers the rows."""
        return (
            self.end_offset <= manifest.end_offset
            and self.files_seq < manifest.seq
            and self.log_start_offset <= manifest.log_start_offset
        )


@dataclass(slots=True)
class _Object:
    """An object of the session's log that was put."""

    seq: int
    size_bytes: int
    rows: dict[PartitionKey, _Rows] = field(default_factory=dict)


class Coverage:
    """The objects of one session that have rows, and the manifests that count."""

    def __init__(self) -> None:
        self._objects: deque[_Object] = deque()
        self._newest: dict[PartitionKey, _Rows] = {}
        """The newest rows of each partition whose rows no manifest covers."""
        self._counted: dict[PartitionKey, Manifest] = {}
        self._from_before: set[PartitionKey] = set()
        self.size_bytes = 0
        """The bytes of all objects that are still needed."""

    def begin(self, partitions: Iterable[PartitionKey]) -> None:
        """Take the partitions that earlier sessions have written: each needs a manifest of this session."""
        self._from_before.update(partitions)

    def put(self, seq: int, rows: Sequence[Row], data: Sequence[Buffer]) -> None:
        """Note an object with rows that was put."""
        noted = _Object(seq, sum(map(len, data)))
        for row, content in zip(rows, data, strict=True):
            partition = PartitionKey(row.topic_id, row.partition)
            noted.rows.setdefault(partition, _Rows()).add(row, content, seq)
            self._newest.setdefault(partition, _Rows()).add(row, content, seq)
        self._objects.append(noted)
        self.size_bytes += noted.size_bytes

    def wanting(self) -> set[PartitionKey]:
        """Return the partitions that need a manifest."""
        return self._from_before | self._newest.keys()

    @property
    def covers_earlier_sessions(self) -> bool:
        """Whether no log of an earlier session is needed any more."""
        return not self._from_before

    def counts(self, manifest: Manifest) -> None:
        """Take a manifest that this session has written and that counts now."""
        partition = manifest.key
        self._counted[partition] = manifest
        self._from_before.discard(partition)
        newest = self._newest.get(partition)
        if newest is not None and newest.are_in(manifest):
            del self._newest[partition]

    def has_nothing(self, partition: PartitionKey) -> None:
        """Note that earlier sessions wrote nothing of a partition that exists."""
        self._from_before.discard(partition)

    def forget(self, partitions: Iterable[PartitionKey]) -> None:
        """Need nothing of these partitions any more: the deletion of their topics is durable."""
        gone = set(partitions)
        self._from_before -= gone
        for partition in gone:
            self._newest.pop(partition, None)
            self._counted.pop(partition, None)
        for noted in self._objects:
            for partition in gone & noted.rows.keys():
                del noted.rows[partition]

    def first_needed(self, confirmed_end: int) -> int:
        """Return the seq of the first object that is needed; `confirmed_end` is the first seq that is not confirmed."""
        objects = self._objects
        while objects and objects[0].seq < confirmed_end and self._is_covered(objects[0]):
            self.size_bytes -= objects.popleft().size_bytes
        return min(objects[0].seq, confirmed_end) if objects else confirmed_end

    def _is_covered(self, noted: _Object) -> bool:
        for partition, rows in noted.rows.items():
            manifest = self._counted.get(partition)
            if manifest is None or not rows.are_in(manifest):
                return False
        return True
