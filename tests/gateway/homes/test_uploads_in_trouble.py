"""Rounds of uploads amid damage and outages: trouble with one partition or one round holds up nothing else, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

from gateway.cluster.wal.boundary import decode_boundary
from gateway.cluster.wal.keys import SESSIONS_BOUNDARY_KEY
from tests.gateway.homes.test_uploads import _is_seal, running, stored


async def test_a_deleted_partition_with_a_damaged_manifest_holds_up_no_round(tmp_path: Path) -> None:
    async with running(tmp_path) as first:
        await first.create()
        await first.append(3)
        await first.uploads.round()
        topic_id = first.partition.log.topic_id.hex
    manifest = tmp_path / "bucket" / "parts" / topic_id / "0" / "manifest"
    manifest.write_bytes(manifest.read_bytes()[:-20])
    async with running(tmp_path) as again:
        await again.append()
        topics = [{"name": "flights", "topic_id": None}]
        await again.call("delete_topics", 6, topics=topics, timeout=10_000)
        await again.uploads.round()
        assert not manifest.exists()
        assert not {key for key in again.wal_objects if not _is_seal(tmp_path / "bucket" / key)}


async def test_the_first_round_collects_the_logs_of_all_sessions_that_uploaded_nothing(
    tmp_path: Path,
) -> None:
    """A clean stop uploads nothing, and its log stays."""
    for count in range(4):
        async with running(tmp_path) as each:
            if not count:
                await each.create()
            await each.append(2)
    async with running(tmp_path) as last:
        before = {key for key in last.wal_objects if not _is_seal(tmp_path / "bucket" / key)}
        assert len({key.split("/")[2] for key in before}) >= 4
        await last.uploads.round()
        assert not {key for key in last.wal_objects if not _is_seal(tmp_path / "bucket" / key)}
        ended = decode_boundary((tmp_path / "bucket" / SESSIONS_BOUNDARY_KEY).read_bytes(), "meta")
        assert ended == last.session
    assert await stored(tmp_path) == (0, 8, 8)
