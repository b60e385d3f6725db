"""A manifest that an ended session replaced late, after the taker has made its directory from what was there
before.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from seqgate.gateway.backends import bucket_start
from seqgate.gateway.cluster import silence
from seqgate.gateway.cluster.parts.manifest import SegmentRef, encode_manifest
from tests.gateway.backends.test_uploads import Running, running, stored


@pytest.mark.parametrize("is_retained", [False, True], ids=["rolled", "rolled and retained"])
async def test_records_of_the_taker_outlive_a_late_manifest(
    tmp_path: Path, is_retained: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The late manifest has a new empty segment, and perhaps not the one before it, which the taker still
    writes to.
    """
    bucket, before, late = tmp_path / "bucket", tmp_path / "before", tmp_path / "late"
    async with running(tmp_path) as first:
        await first.create()
        await first.append(3)
        shutil.copytree(bucket, before)
        log = first.partition.log
        log.roll(first.gateway.clock.now_ms())
        await first.uploads.round()
        manifest = first.manifest()
        parts = Path("parts", log.topic_id.hex)
        shutil.copytree(bucket / parts, late)
    if is_retained:
        manifest = msgspec.structs.replace(manifest, segments=(SegmentRef(3),), log_start_offset=3)
        (late / "0" / "manifest").write_bytes(encode_manifest(manifest))
    for path in (bucket, tmp_path / "cache"):
        shutil.rmtree(path)
    shutil.copytree(before, bucket)
    # Nobody serves in the session before, so the taker need not wait until its lease is over.
    monkeypatch.setattr(silence, "conviction_s", lambda _: 0.0)
    async with running(tmp_path, "node.id=1") as taker:
        await taker.append(2)
        shutil.copytree(late, bucket / parts)
    _, end, _ = await stored(tmp_path)
    assert end == 5


def read_all(gateway: Running) -> int:
    """Return the number of batches of the partition, which are read from the log's start on."""
    log = gateway.partition.log
    return len(list(log.batches(log.log_start_offset, log.log_end_offset, 1 << 20)))


async def test_a_clean_restart_reads_what_the_taker_has_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ended session compacts the first segment to nothing, late. The taker's disk lacks the segment."""
    bucket = tmp_path / "bucket"
    async with running(tmp_path) as first:
        await first.create()
        await first.append(3)
        log = first.partition.log
        log.roll(first.gateway.clock.now_ms())
        await first.append(1)
        await first.uploads.round()
        manifest = first.manifest()
    shutil.rmtree(tmp_path / "cache")
    compacted = msgspec.structs.replace(
        manifest,
        segments=(SegmentRef(0), *manifest.segments[1:]),
        files=(),
        generation=manifest.generation + 1,
    )
    async with running(tmp_path, "node.id=1"):
        (bucket / "parts" / log.topic_id.hex / "0" / "manifest").write_bytes(encode_manifest(compacted))

    async def rebuild(*_: object) -> None:
        raise AssertionError("the directory is made anew")

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(bucket_start, "rebuild_directory", rebuild)
            async with running(tmp_path, "node.id=1") as again:
                await again.append(1)
                await again.uploads.round()
    async with running(tmp_path, "node.id=1") as last:
        assert read_all(last) == 6
    _, end, batches = await stored(tmp_path)
    assert (end, batches) == (6, 6)
