"""A data directory on a simulated disk, whose segments are in a bucket."""

from __future__ import annotations

import asyncio
import random
import uuid

from seqgate.log import PageRange, Storage
from seqgate.log.sparse import BLOCK_BYTES, SegmentKey, SparseDisk, SparseFile
from tests.faults.simulated_disk import SimulatedDisk

TOPIC_ID = uuid.UUID(int=7)


def key(base_offset: int) -> SegmentKey:
    return SegmentKey(TOPIC_ID, 0, base_offset)


class Bucket:
    """The bytes of the segments; reads wait while the gate is closed."""

    def __init__(self) -> None:
        self.segments: dict[SegmentKey, bytes] = {}
        self.reads: list[tuple[int, int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: OSError | None = None
        self.at_once = 0
        self.most_at_once = 0

    def fetch(self, key: SegmentKey, position: int, size_bytes: int) -> bytes:
        self.reads.append((key.base_offset, position // BLOCK_BYTES))
        if self.error is not None:
            raise self.error
        return self.segments[key][position : position + size_bytes]

    async def read(self, key: SegmentKey, position: int, size_bytes: int) -> bytes:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(0)
            await self.gate.wait()
            return self.fetch(key, position, size_bytes)
        finally:
            self.at_once -= 1


class CachedDirectory:
    """Segments of one partition, by base offset."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(tells_cached=True)
        self.disk.provide_directory("/data/t-0")
        self.storage = Storage(disk=self.disk.process()).with_holes()
        assert self.storage.sparse is not None
        self.sparse: SparseDisk = self.storage.sparse
        self.bucket = Bucket()
        self.sparse.source = self.bucket
        self.size_bytes = 0

    def path(self, base_offset: int, topic: str = "t") -> str:
        return f"/data/{topic}-0/{base_offset:020}.log"

    def file(self, base_offset: int) -> SparseFile:
        found = self.sparse.files.of(self.path(base_offset))
        assert found is not None
        return found

    def place(self, base_offset: int, blocks: int) -> None:
        """Put a segment into the bucket, and a file of holes onto the disk."""
        content = random.Random(base_offset).randbytes(100) * (blocks * BLOCK_BYTES // 100 + 1)
        content = content[: blocks * BLOCK_BYTES]
        self.bucket.segments[key(base_offset)] = content
        self.sparse.create_absent(self.path(base_offset), key(base_offset), len(content))
        self.size_bytes += len(content)

    def read(self, base_offset: int, block: int) -> bytes:
        return self.storage.read_by_name(self.path(base_offset), 100, block * BLOCK_BYTES)

    def block(self, base_offset: int, number: int) -> PageRange:
        return PageRange(self.path(base_offset), number * BLOCK_BYTES, BLOCK_BYTES)
