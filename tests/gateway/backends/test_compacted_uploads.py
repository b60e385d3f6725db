"""A compaction reaches the bucket with the next round of uploads, also that of a partition without a new
record since the start.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from seqgate.gateway.cluster.parts.manifest import PartitionKey
from tests.gateway.backends.test_uploads import Running, running, stored
from tests.support.batches import Batch, Record

PATIENCE_S = 60.0
COUNT = 30


async def append_keyed(gateway: Running) -> None:
    """Append records with two keys, each of which replaces the one before."""
    for number in range(COUNT):
        batch = Batch([Record(key=b"k%d" % (number % 2), value=b"v" * 200)])
        appended = gateway.partition.append(batch.encode(), gateway.gateway.clock.now_ms())
    assert await gateway.partition.persisted(appended.last_offset)


async def test_a_compaction_after_a_restart_frees_space_in_the_bucket(tmp_path: Path) -> None:
    compacted = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0}
    async with running(tmp_path, "log.cleaner.enable=false") as first:
        await first.create(**compacted)
        await append_keyed(first)
        first.partition.log.roll(first.gateway.clock.now_ms())
        key = PartitionKey(first.partition.log.topic_id, 0)
        await first.uploads.round()
        before = first.partition.log.size_bytes
        assert sum(segment.size_bytes for segment in first.manifest().segments) == before
    async with running(tmp_path, "log.cleaner.backoff.ms=100") as second:
        # nobody opens the partition before the compaction does
        async with asyncio.timeout(PATIENCE_S):
            while key not in second.uploads._coverage.wanting():
                await asyncio.sleep(0.01)
        await second.uploads.round()
        after = second.partition.log.size_bytes
        assert after < before / 2
        assert sum(segment.size_bytes for segment in second.manifest().segments) == after
    start_offset, end_offset, _ = await stored(tmp_path)
    assert (start_offset, end_offset) == (0, COUNT)
