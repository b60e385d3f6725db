"""Restores the history of partitions from their manifests, which are read at the first row of a partition in a write-ahead log.

Call this after all earlier sessions are sealed: a manifest on which a session relied was replaced before its seal, so it is read here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Final

from crc32c import crc32c

from gateway.cluster.objects.objects import Missing, ObjectStore
from gateway.cluster.parts.keys import PartitionKey, manifest_key, part_key
from gateway.cluster.parts.manifest import FileRef, Manifest, PartRef, SegmentRef, decode_manifest
from gateway.cluster.parts.part_object import CorruptPart, PartHead, decode_part
from gateway.cluster.rebuild.segment_ends import SegmentEnds
from gateway.cluster.wal.persistence import PersistentReads
from gateway.cluster.wal.wal_object import Buffer, DataRow, WalObject
from log import CorruptRecord
from log.rebuilding import RebuiltDirectory
from log.uploading import LOG_START_OFFSET, index_names, log_start_content, log_start_in

MANIFESTS_AT_ONCE: Final = 64
PARTS_AT_ONCE: Final = 8
"""Parts that are read at the same time. As many are in memory at most."""


class History:
    """The partitions that are restored, and what their manifests say."""

    def __init__(self, objects: ObjectStore, directory: RebuiltDirectory) -> None:
        self._reads = PersistentReads(objects, "the gateway waits to read the history of the cluster")
        self._directory = directory
        self._manifests: dict[PartitionKey, Manifest | None] = {}
        self._ends = SegmentEnds()
        self._log_starts: dict[PartitionKey, int] = {}
        self._incomplete: dict[PartitionKey, CorruptPart | CorruptRecord] = {}
        """The partitions of which something is missing. That is damage unless their topics were deleted."""
        self._left_out: set[PartitionKey] = set()
        self.size_bytes = 0
        """The bytes that were read."""

    def leave_out(self, partition: PartitionKey) -> None:
        """Restore and apply nothing of a partition whose records come from elsewhere."""
        self._left_out.add(partition)

    @property
    def restored(self) -> Mapping[PartitionKey, Manifest]:
        """The manifests that were restored."""
        return {key: manifest for key, manifest in self._manifests.items() if manifest is not None}

    def check(self, partition: PartitionKey) -> None:
        """Check that all of a partition could be written. Raises CorruptPart, CorruptRecord."""
        if partition in self._incomplete:
            raise self._incomplete[partition]

    async def restore_all(self, partitions: Iterable[PartitionKey]) -> None:
        """Restore partitions, the manifests of many at once. Raises as `restore`."""
        turns = asyncio.Semaphore(MANIFESTS_AT_ONCE)
        writing = asyncio.Lock()

        async def one(partition: PartitionKey) -> None:
            async with turns:
                content = await self._manifest_content(partition)
            if content is None:
                self._manifests[partition] = None
                return
            async with writing:
                await self.restore(partition, content)

        restoring = [
            asyncio.create_task(one(partition))
            for partition in partitions
            if partition not in self._manifests
        ]
        try:
            await asyncio.gather(*restoring)
        finally:
            for task in restoring:
                task.cancel()

    async def restore(self, partition: PartitionKey, content: bytes | None = None) -> None:
        """Write the segments and side files that the manifest names, if this was not done before. Waits until the store answers.

        `content` is the manifest if the caller has read it. Raises IncompatibleFormat, Refused, OSError; `check` tells of damage.
        """
        if partition in self._manifests:
            return
        self._manifests[partition] = None
        try:
            content = content or await self._manifest_content(partition)
            if content is not None:
                await self._restore(partition, content)
        except CorruptPart as error:
            self._incomplete[partition] = error

    async def _manifest_content(self, partition: PartitionKey) -> bytes | None:
        try:
            return await self._reads.get(manifest_key(partition))
        except Missing:
            return None

    async def _restore(self, partition: PartitionKey, content: bytes) -> None:
        key = manifest_key(partition)
        manifest = decode_manifest(content, key)
        if manifest.key != partition:
            raise CorruptPart(f"{key} is the manifest of another partition: {manifest.key}.")
        self._manifests[partition] = manifest
        self._ends.begin(manifest)
        absent = _absent(manifest) if self._directory.may_have_holes else frozenset()
        for segment in manifest.segments:
            if segment.base in absent:
                self._directory.write_absent(
                    *partition, segment.base, segment.size_bytes, manifest.generation
                )
            else:
                self._directory.write(*partition, segment.base, 0, b"")
        self._directory.vouch_for(*partition, manifest.end_offset)
        async for segment, part, data in self._parts(manifest, absent):
            self._directory.write(*partition, segment.base, part.position, data)
            self.size_bytes += part.length
        for file in manifest.files:
            self._directory.write_file(*partition, file.name, await self._content(partition, file))
        self._move_log_start(
            partition,
            manifest.log_start_offset,
            log_start_content(manifest.topic, manifest.partition, manifest.log_start_offset),
        )

    async def apply(self, wal_object: WalObject) -> None:
        """Write the rows of an object that are newer than the manifests of their partitions. Raises as `restore`."""
        place = wal_object.session, wal_object.seq
        for row, data in zip(wal_object.rows, wal_object.data, strict=True):
            partition = PartitionKey(row.topic_id, row.partition)
            if partition in self._left_out:
                continue
            await self.restore(partition)
            manifest = self._manifests[partition]
            if isinstance(row, DataRow):
                if manifest is None or row.end_offset > manifest.end_offset:
                    self._write(partition, row, data)
            elif row.name == LOG_START_OFFSET:
                self._move_log_start(partition, log_start_in(bytes(data)), bytes(data))
            elif manifest is None or place >= manifest.place:
                self._directory.write_file(*partition, row.name, bytes(data))
            self.size_bytes += row.length

    def _write(self, partition: PartitionKey, row: DataRow, data: Buffer) -> None:
        place = self._ends.place(row)
        if place is not None:
            self._directory.write(*partition, *place, data)
        elif partition not in self._incomplete:
            self._incomplete[partition] = CorruptRecord(
                f"partition {row.partition} of the topic {row.topic_id}: the records before offset {row.first_offset} are missing"
            )

    def _move_log_start(self, partition: PartitionKey, offset: int, content: bytes) -> None:
        """Write the file of the log start offset, unless a later offset is known."""
        if offset > self._log_starts.get(partition, 0):
            self._log_starts[partition] = offset
            self._directory.write_file(*partition, LOG_START_OFFSET, content)

    async def _parts(
        self, manifest: Manifest, absent: frozenset[int]
    ) -> AsyncIterator[tuple[SegmentRef, PartRef, memoryview]]:
        """Yield all parts in order, with their bytes, but for absent segments; several are read at once."""
        ahead: deque[tuple[SegmentRef, PartRef, asyncio.Task[memoryview]]] = deque()
        try:
            for segment, part in _parts_of(manifest, absent):
                reading = asyncio.create_task(self._read(manifest, segment, part))
                ahead.append((segment, part, reading))
                if len(ahead) >= PARTS_AT_ONCE:
                    first = ahead.popleft()
                    yield first[0], first[1], await first[2]
            while ahead:
                first = ahead.popleft()
                yield first[0], first[1], await first[2]
        finally:
            for _, _, reading in ahead:
                reading.cancel()
            await asyncio.gather(*(reading for _, _, reading in ahead), return_exceptions=True)

    async def _read(self, manifest: Manifest, segment: SegmentRef, part: PartRef) -> memoryview:
        key = part_key(manifest.key, part.name)
        head, data = decode_part(await self._get(key), key)
        expected = PartHead(
            *manifest.key, segment.base, part.position, part.length, head.first_offset, part.end_offset
        )
        if head != expected or crc32c(data) != part.crc:
            raise CorruptPart(f"{key} does not match its manifest: its header or checksum differs ({head}).")
        return data

    async def _content(self, partition: PartitionKey, file: FileRef) -> bytes:
        key = manifest_key(partition) if file.stored is None else part_key(partition, file.stored)
        content = file.content if file.stored is None else await self._get(key)
        if content is None or (len(content), crc32c(content)) != (file.length, file.crc):
            raise CorruptPart(f"{key} is damaged: the CRC-32C of the side file {file.name} does not fit.")
        return content

    async def _get(self, key: str) -> bytes:
        try:
            return await self._reads.get(key)
        except Missing as error:
            raise CorruptPart(
                f"{key} is missing, and a manifest names it. Records are lost unless a backup of the bucket has the object."
            ) from error


def _parts_of(manifest: Manifest, absent: frozenset[int]) -> Iterable[tuple[SegmentRef, PartRef]]:
    return (
        (segment, part)
        for segment in manifest.segments
        if segment.base not in absent
        for part in segment.parts
    )


def _absent(manifest: Manifest) -> frozenset[int]:
    """Return the base offsets of the segments that stay in the bucket until somebody reads them.

    The last segment with records is needed at once, and so is a segment without its index files. A start reads the records of internal
    topics, whose names begin with two underscores.
    """
    if manifest.topic.startswith("__"):
        return frozenset()
    names = {file.name for file in manifest.files}
    filled = [segment.base for segment in manifest.segments if segment.parts]
    return frozenset(base for base in filled[:-1] if names.issuperset(index_names(base)))
