"""A log whose leader uploads it, and another gateway that reads it from the bucket."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Iterator
from pathlib import Path

from seqgate.gateway.cluster.bucket_reads import NEVER, BucketReads, FoundRecords, Loading, NotConfirmed
from seqgate.gateway.cluster.objects.directory_objects import DirectoryObjects
from seqgate.gateway.cluster.objects.objects import ObjectStore
from seqgate.gateway.cluster.parts.manifest import Manifest, Manifests, PartitionKey, part_key
from seqgate.gateway.cluster.uploads.partition_uploads import PartitionUploads, UploadPorts
from seqgate.log import LogConfig, LogDirectory, PartitionLog, Storage
from tests.log.support import NOW_MS, SMALL, append_end_marker, batch, flush
from tests.support.batches import BatchView, read_batches

TOPIC_ID = uuid.UUID(int=5)
PARTITION = PartitionKey(TOPIC_ID, 0)
WHOLE = 1 << 30


class Scene:
    """The leader's log, the bucket, and the reads elsewhere."""

    def __init__(self, root: Path, objects: ObjectStore | None = None, config: LogConfig = SMALL) -> None:
        if objects is None:
            (root / "bucket").mkdir()
            objects = DirectoryObjects(root / "bucket")
        self.objects: ObjectStore = objects
        self.storage = Storage().with_holes()
        directory = LogDirectory.open(
            root / "cache", self.storage, node_id=1, now_ms=lambda: NOW_MS, config=config
        )
        self.log = directory.create("flights", TOPIC_ID, 0, config)
        ports = UploadPorts(self.objects, self.storage, Manifests(self.objects), 0, lambda: 0, self._flushed)
        self.uploads = PartitionUploads(ports)
        self.asked = 0
        self.leader_is_away = False
        self.told_start: int | None = None
        """The log start offset that the leader tells; None for that of its log."""
        self.reads = self.open_reads()
        self._sequences: dict[int, int] = {}

    def open_reads(self, cache_bytes: int = 16 << 20) -> BucketReads:
        return BucketReads(self.objects, self._ask, cache_bytes=cache_bytes)

    async def _flushed(self, log: PartitionLog) -> None:
        assert log.recovery_point == log.log_end_offset

    async def _ask(self, key: PartitionKey) -> int:
        assert key == PARTITION
        self.asked += 1
        if self.leader_is_away:
            raise NotConfirmed("the leader is away")
        return self.log.log_start_offset if self.told_start is None else self.told_start

    # --- the leader

    def append(self, count: int = 1, size: int = 20) -> None:
        self.log.append(batch(count, size=size), now_ms=NOW_MS)

    def write_in_transaction(self, producer_id: int, count: int = 1) -> None:
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + count
        data = batch(count, producer_id=producer_id, base_sequence=sequence, is_transactional=True)
        self.log.append(data, now_ms=NOW_MS)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        append_end_marker(self.log, producer_id, 0, commit=commit, coordinator_epoch=0, now_ms=NOW_MS)

    async def upload(self) -> Manifest:
        """Upload the log as a round does, and delete what no manifest names any more."""
        flush(self.log)
        uploaded = await self.uploads.upload(self.log)
        for name in uploaded.garbage:
            await self.objects.delete(part_key(PARTITION, name))
        return uploaded.manifest

    # --- the reader

    async def read(
        self, offset: int, max_bytes: int = WHOLE, *, committed_only: bool = False, min_one_batch: bool = True
    ) -> FoundRecords | None:
        """Return what a reader gets once all is fetched that it waits for."""
        while True:
            found = self.reads.read(
                PARTITION, offset, max_bytes, min_one_batch=min_one_batch, committed_only=committed_only
            )
            if not isinstance(found, Loading):
                return found
            loaded = asyncio.Event()
            self.reads.want([PARTITION], loaded.set)
            async with asyncio.timeout(60):
                await loaded.wait()

    def look_again(self) -> None:
        """Let the next reader at the end look for a newer manifest, although the last look was just now."""
        self.reads._known[PARTITION]._read_s = NEVER

    async def offsets(
        self, offset: int = 0, max_bytes: int = 300, *, committed_only: bool = False
    ) -> list[int]:
        """Return the offsets of the records that a consumer gets from an offset on, until the leader must
        answer.
        """
        offsets: list[int] = []
        while (found := await self.read(offset, max_bytes, committed_only=committed_only)) is not None:
            views, rest = read_batches(found.records)
            assert not rest
            assert views
            aborted = found.aborted if committed_only else []
            offsets += [each for each in visible(views, aborted) if each >= offset]
            offset = views[-1].base_offset + views[-1].record_count
        return offsets

    def led_offsets(self, *, committed_only: bool = False) -> list[int]:
        """Return the offsets of the records that a consumer gets from the leader."""
        log, offset, offsets = self.log, self.log.log_start_offset, list[int]()
        bound = log.last_stable_offset if committed_only else log.high_watermark
        while (region := log.find(offset, 300, upper_bound=bound, min_one_batch=True)) is not None:
            aborted = log.aborted_in(offset, region) if committed_only else []
            views, _ = read_batches(log.read_region(region))
            offsets += [each for each in visible(views, aborted) if each >= offset]
            offset = views[-1].base_offset + views[-1].record_count
        return offsets


def visible(views: list[BatchView], aborted: list[tuple[int, int]]) -> Iterator[int]:
    """Yield the offsets of the records that a consumer shows, without markers and aborted records."""
    coming = sorted(aborted, key=lambda each: each[1])
    ending: set[int] = set()
    for view in views:
        last = view.base_offset + view.record_count - 1
        while coming and coming[0][1] <= last:
            ending.add(coming.pop(0)[0])
        if view.attributes & 0x20:
            ending.discard(view.producer_id)
        elif view.producer_id not in ending:
            yield from range(view.base_offset, last + 1)


async def live(scene: Scene, chance: random.Random, steps: int) -> None:
    """Write, end transactions and upload in a random order; the last step is an upload."""
    open_ones: set[int] = set()
    for _ in range(steps):
        step = chance.choice(("append", "write", "write", "end", "end", "upload"))
        if step == "append":
            scene.append(chance.randint(1, 3))
        elif step == "write":
            producer_id = chance.randint(1, 3)
            open_ones.add(producer_id)
            scene.write_in_transaction(producer_id, chance.randint(1, 3))
        elif step == "end" and open_ones:
            producer_id = chance.choice(sorted(open_ones))
            open_ones.discard(producer_id)
            scene.end_transaction(producer_id, commit=chance.random() < 0.5)
        elif step == "upload":
            await scene.upload()
    await scene.upload()
