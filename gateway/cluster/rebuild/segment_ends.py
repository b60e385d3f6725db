"""The ends of partitions while manifests and write-ahead logs are put together: where the next records
belong.

A row of a log names the segment file and the position of its bytes on the disk of the session that wrote it.
Nearly always they continue what the manifest and the rows before it made. But an ended session can replace a
manifest late, when a taker has already begun with the one before. If its segments had changed by then without
a new record (a roll by time, a compaction, retention), the taker's rows name other places. Offsets tell where
they belong: each row continues the records before it, in whatever segments these are.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from seqgate.gateway.cluster.parts.manifest import Manifest, PartitionKey
from seqgate.gateway.cluster.wal.wal_object import DataRow


class Place(NamedTuple):
    """A place in a segment file."""

    segment_base: int
    position: int


class _End(NamedTuple):
    """The end of a partition: the next free place, and the offset of the next record."""

    place: Place
    end_offset: int
    leader_epoch: int
    """The leader epoch of the last row; −1 without a row."""


_NOTHING: Final = _End(Place(-1, 0), -1, -1)


class SegmentEnds:
    """The ends of all partitions."""

    def __init__(self) -> None:
        self._ends: dict[PartitionKey, _End] = {}

    def begin(self, manifest: Manifest) -> None:
        """Begin a partition with what its manifest names."""
        if manifest.segments:
            last = max(manifest.segments, key=lambda segment: segment.base)
            self._ends[manifest.key] = _End(Place(last.base, last.size_bytes), manifest.end_offset, -1)

    def forget(self, partition: PartitionKey) -> None:
        """Begin a partition anew, with nothing."""
        self._ends.pop(partition, None)

    def disagrees(self, row: DataRow) -> bool:
        """Return whether a row and the rows before it are of several leaders, and not one behind the other."""
        end = self._ends.get(PartitionKey(row.topic_id, row.partition), _NOTHING)
        if end.leader_epoch < 0:
            return False
        return row.leader_epoch < end.leader_epoch or (
            row.leader_epoch > end.leader_epoch and row.first_offset < end.end_offset
        )

    def is_next(self, row: DataRow) -> bool:
        """Return whether no records are missing before those of a row."""
        return row.first_offset <= max(
            0, self._ends.get(PartitionKey(row.topic_id, row.partition), _NOTHING).end_offset
        )

    def place(self, row: DataRow) -> Place | None:
        """Return where the bytes of a row belong, and move the end behind them; None if records before the
        row are missing.

        Give rows in the order of their log, without those whose records the manifest has.
        """
        partition = PartitionKey(row.topic_id, row.partition)
        end = self._ends.get(partition, _NOTHING)
        place = Place(row.segment_base, row.position)
        if not _continues(place, end.place):
            if row.first_offset != end.end_offset:
                return None
            place = end.place
        behind = Place(place.segment_base, place.position + row.length)
        self._ends[partition] = _End(
            max(behind, end.place), max(row.end_offset, end.end_offset), row.leader_epoch
        )
        return place


def _continues(place: Place, end: Place) -> bool:
    """Return whether a place is in the last segment with no bytes missing before it, or at the beginning of a
    later segment.
    """
    if place.segment_base == end.segment_base:
        return place.position <= end.position
    return place.segment_base > end.segment_base and place.position == 0
