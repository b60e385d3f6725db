"""The bytes of segments from their parts in the bucket, for readers on the event loop and for threads that wait."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Final

from gateway.cluster.cache.bucket_thread import BucketCalls
from gateway.cluster.cache.part_reader import PartReader, read_parts
from gateway.cluster.objects.counted import CountedObjects, Counts
from gateway.cluster.objects.objects import Missing, ObjectStore, Refused, StoreFailed
from gateway.cluster.parts.keys import PartitionKey, manifest_key
from gateway.cluster.parts.manifest import Manifest, SegmentRef, decode_manifest
from gateway.cluster.parts.part_object import CorruptPart
from gateway.cluster.wal.persistence import PersistentReads
from log import IncompatibleFormat
from log.sparse import SegmentKey

ATTEMPTS: Final = 5
"""Reads of a segment whose parts are replaced while they are read."""


class BucketSource:
    """Reads segments from one store, by manifests that it reads itself. Use it in one event loop."""

    def __init__(
        self,
        objects: ObjectStore,
        restored: Mapping[PartitionKey, Manifest] | None = None,
        *,
        one_by_one: bool = False,
    ) -> None:
        """Take the store. With `one_by_one` a read makes one call after the other, and starts no task.

        `restored` are the manifests from which the local files were made. A process whose session has ended may have replaced one since, by
        one with other bytes.
        """
        self._one_by_one = one_by_one
        self._restored = {} if restored is None else restored
        self._parts = PartReader(objects)
        self._reads = PersistentReads(objects, "readers of old data wait for the bucket")
        self._manifests: dict[PartitionKey, Manifest] = {}

    async def read(self, key: SegmentKey, position: int, size_bytes: int) -> bytes:
        """Return bytes of a segment file, checked; wait while the store does not answer. Raises OSError: the bytes can't be had."""
        partition = PartitionKey(key.topic_id, key.partition)
        before: SegmentRef | None = None
        try:
            for _ in range(ATTEMPTS):
                segment = await self._segment(partition, key, is_new_wanted=before is not None)
                if segment is None or segment.size_bytes < position + size_bytes:
                    raise OSError(errno.ENOENT, f"the bucket does not have the segment any more: {key}")
                if segment == before:
                    break
                before = segment
                try:
                    return await read_parts(
                        self._parts,
                        partition,
                        segment.parts,
                        position,
                        size_bytes,
                        one_by_one=self._one_by_one,
                    )
                except Missing:
                    continue  # The parts were replaced by others with the same bytes. A newer manifest names these.
        except (CorruptPart, IncompatibleFormat, Refused) as error:
            raise OSError(errno.EIO, f"the bucket can't be read: {error}") from error
        raise OSError(errno.EIO, f"the bucket lacks a part that its manifest names, of the segment {key}")

    async def _segment(
        self, partition: PartitionKey, key: SegmentKey, *, is_new_wanted: bool
    ) -> SegmentRef | None:
        """Return a segment from a manifest that is as new as the key says. Raises CorruptPart, IncompatibleFormat, Refused."""
        manifest = _newest(self._manifests.get(partition), self._restored.get(partition))
        if manifest is None or is_new_wanted or manifest.generation < key.generation:
            path = manifest_key(partition)
            try:
                manifest = decode_manifest(await self._reads.get(path), path)
            except Missing:
                self._manifests.pop(partition, None)
                return None
            self._manifests[partition] = manifest
        if manifest.generation < key.generation:
            return None
        return next((segment for segment in manifest.segments if segment.base == key.base_offset), None)


def _newest(read: Manifest | None, restored: Manifest | None) -> Manifest | None:
    """Return the newer manifest: the gateway may have adopted the partition since it read one."""
    if read is None or restored is None:
        return read or restored
    return restored if restored.generation > read.generation else read


class WaitingSource:
    """Reads segments for threads that wait. Any thread may use it."""

    def __init__(self, calls: BucketCalls, restored: Mapping[PartitionKey, Manifest] | None = None) -> None:
        """Take the calls to the store, and the manifests from which the local files were made."""
        self._restored = restored
        self.counts = Counts()
        """Counted in the thread of the calls."""
        self._calls = calls
        self._source: BucketSource | None = None

    def fetch(self, key: SegmentKey, position: int, size_bytes: int) -> bytes:
        """Return bytes of a segment file, checked. Raises OSError: they can't be had, or the store does not answer in time."""

        async def read(objects: ObjectStore) -> bytes:
            if self._source is None:
                self._source = BucketSource(
                    CountedObjects(objects, self.counts), self._restored, one_by_one=True
                )
            return await self._source.read(key, position, size_bytes)

        try:
            return self._calls.run(read)
        except (Refused, StoreFailed) as error:
            raise OSError(errno.EIO, f"the bucket can't be read: {error}") from error

    def close(self) -> None:
        """Release the connections."""
        self._calls.close()
