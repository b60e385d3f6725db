"""Which bytes of each segment the manifests and logs of a bucket hold together, without the bytes but for the metadata."""

from __future__ import annotations

from uuid import UUID

from gateway.cluster.objects.objects import Buffer
from gateway.cluster.parts.keys import PartitionKey
from gateway.cluster.parts.manifest import Manifest
from gateway.cluster.rebuild.segment_ends import SegmentEnds
from gateway.cluster.wal.row_data import in_one_piece
from gateway.cluster.wal.wal_object import DataRow, WalObject
from gateway.metadata.image import MetadataImage
from gateway.metadata.records import decode_record
from gateway.runtime.topics.metadata_log import METADATA_TOPIC_ID
from log.format.record_batch import whole_batches
from log.format.records import iterate_records

_METADATA = PartitionKey(METADATA_TOPIC_ID, 0)


class HeldBytes:
    """The ends of all partitions, as a start would rebuild them."""

    def __init__(self) -> None:
        self._ends: dict[PartitionKey, int] = {}
        """The end offsets of the manifests."""
        self._places = SegmentEnds()
        self._held: set[PartitionKey] = set()
        """The partitions that have a manifest, or rows that are newer than theirs."""
        self._metadata: dict[int, bytearray] = {}
        """The segments of the metadata log."""
        self.gaps: dict[PartitionKey, str] = {}
        """The first missing bytes of each partition that lacks some. A partition of a deleted topic may lack any."""

    def begin(self, manifest: Manifest) -> None:
        """Take what the manifest of a partition names."""
        if manifest.key == _METADATA:
            self._metadata.clear()
        self._ends[manifest.key] = manifest.end_offset
        self._places.begin(manifest)
        if manifest.segments:
            self._held.add(manifest.key)

    def keep(self, partition: PartitionKey, base: int, position: int, data: Buffer) -> None:
        """Keep bytes of the metadata log."""
        if partition == _METADATA:
            segment = self._metadata.setdefault(base, bytearray())
            segment.extend(bytes(max(0, position - len(segment))))
            segment[position : position + len(data)] = data

    def take(self, wal_object: WalObject) -> None:
        """Take the rows that are newer than the manifests."""
        for row, data in zip(wal_object.rows, wal_object.data, strict=True):
            partition = PartitionKey(row.topic_id, row.partition)
            if not isinstance(row, DataRow) or row.end_offset <= self._ends.get(partition, 0):
                continue
            self._held.add(partition)
            place = self._places.place(row)
            if place is not None:
                self.keep(partition, *place, in_one_piece(data))
            else:
                self.gaps.setdefault(
                    partition,
                    f"the records before offset {row.first_offset} are missing: manifest and earlier objects do not reach the position "
                    f"{row.position} of the segment {row.segment_base}.",
                )

    def has_rows(self, partition: PartitionKey) -> bool:
        """Return whether a log has rows of the partition that are newer than its manifest."""
        return partition in self._held

    def topics(self) -> set[UUID]:
        """Return the ids of all topics that the metadata has, and that of the metadata itself. Raises LogError, UnknownRecordError."""
        image = MetadataImage()
        for _, segment in sorted(self._metadata.items()):
            view = memoryview(segment)
            for position, batch in whole_batches(segment):
                for record in iterate_records(view[position : position + batch.size_bytes]):
                    image.replay(decode_record(record.value or b""))
        return {METADATA_TOPIC_ID, *image.topics_by_id}
