"""Rounds of uploads amid damage and outages: trouble with one partition or one round holds up nothing else,
and nothing is lost.
"""

from __future__ import annotations

import uuid
from pathlib import Path

from seqgate.gateway.backends.bucket_backend import BucketBackend
from seqgate.gateway.cluster.metadata.shared_log import SharedLog
from seqgate.gateway.cluster.parts.manifest import PartitionKey, part_key, part_name
from seqgate.gateway.cluster.wal.sessions import decode_boundary
from seqgate.gateway.cluster.wal.wal_object import SESSIONS_BOUNDARY_KEY
from seqgate.gateway.metadata.records import MetadataRecord, PartitionRecord, TopicRecord
from seqgate.gateway.runtime.topics.metadata_log import change_batch
from tests.gateway.backends.test_uploads import _is_seal, running, stored


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


async def test_parts_of_a_topic_that_another_gateway_has_just_created_are_no_orphans(tmp_path: Path) -> None:
    """A gateway that has not read the change of the metadata yet does not know the topic."""
    slow = "seqgate.cluster.metadata.poll.ms=60000"
    async with running(tmp_path, slow) as first:
        await first.create()
        backend = first.gateway.backend
        assert isinstance(backend, BucketBackend)
        assert backend._journal is not None
        fresh = uuid.UUID(int=99)
        known = backend._journal._shared
        other = SharedLog(
            known._objects, known._session, next_seq=known.next_seq, next_offset=known.next_offset
        )
        records: list[MetadataRecord] = [
            TopicRecord("fresh", fresh),
            PartitionRecord(0, fresh, (2,), (2,), 2, 0),
        ]
        assert await other.create(change_batch(records, 0)) is not None
        part = tmp_path / "bucket" / part_key(PartitionKey(fresh, 0), part_name(0, "b" * 32))
        part.parent.mkdir(parents=True)
        part.write_bytes(b"")
        assert part.name not in await first.swept()
