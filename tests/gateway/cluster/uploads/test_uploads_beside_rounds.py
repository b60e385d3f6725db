"""Uploads before a partition is led elsewhere run beside a round, and beside a search for orphans."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from seqgate.gateway.cluster.objects.objects import Refused
from seqgate.gateway.cluster.parts.manifest import Manifest, PartitionKey, part_key, part_name
from seqgate.log import LogConfig
from tests.gateway.cluster.uploads import walk as walks
from tests.gateway.cluster.uploads.walk import COMPACTED, METADATA, PLAIN, Walk, manifests_in, missing_of

KEY = PartitionKey(PLAIN, 0)


@pytest.fixture
def walk(tmp_path: Path) -> Walk:
    walk = Walk(tmp_path)
    walk.prepare()
    walk.finish()
    return walk


def _append(walk: Walk) -> None:
    walk.append(KEY, 3)
    walk.run(walk.flusher.idle())


def test_a_hand_over_that_fails_beside_a_round_goes_on_from_the_own_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round passes the partition by. The manifest of the start names parts that were merged since."""
    config = LogConfig(segment_bytes=4000, index_interval_bytes=100, file_delete_delay_ms=0)
    monkeypatch.setattr(walks, "CONFIG", config)
    walk = Walk(tmp_path)

    def upload() -> None:
        _append(walk)
        walk.run(walk.uploads.round())

    upload()
    walk.restored[KEY] = start = manifests_in(walk.bucket)[KEY]
    while len(walk.plain.log.segments) < 2:
        upload()
    upload()
    assert not start.objects <= manifests_in(walk.bucket)[KEY].objects
    walk.withheld.add(KEY)
    walk.run(walk.uploads.round())
    walk.withheld.clear()
    upload()
    assert not missing_of(manifests_in(walk.bucket), walk.bucket)


def test_a_partition_that_comes_back_during_a_round_is_uploaded_by_the_next(walk: Walk) -> None:
    barrier = walk.wal.barrier

    async def come_back() -> None:
        await barrier()
        walk.withheld.clear()
        walk.uploads.adopted([KEY])

    walk.withheld.add(KEY)  # as if led elsewhere
    walk.wal.barrier = come_back  # type: ignore[method-assign]
    walk.run(walk.uploads.round())
    assert KEY in walk.coverage.wanting()
    walk.end()


def test_a_partition_that_comes_back_while_the_round_forgets_others_is_uploaded_by_the_next(
    walk: Walk,
) -> None:
    others = [PartitionKey(topic_id, 0) for topic_id in (COMPACTED, METADATA.topic_id)]
    first, second = sorted([KEY, *others])[:2]
    release = walk.uploads.released

    def come_back(partition: PartitionKey) -> None:
        release(partition)
        if partition == first:
            walk.uploads.adopted([second])

    walk.withheld.update((first, second))  # as if led elsewhere
    walk.uploads._partitions = replace(walk.uploads._partitions, is_withheld=lambda _: False)
    walk.uploads.released = come_back  # type: ignore[method-assign]
    walk.run(walk.uploads.round())
    assert second in walk.coverage.wanting()


def test_a_round_that_ends_amid_another_upload_makes_no_orphans_of_its_parts(walk: Walk) -> None:
    """The manifest of the round would count, and the parts of the other upload are in no manifest yet."""
    uploads, log = walk.uploads, walk.plain.log
    may_pass, is_at_barrier, has_created = asyncio.Event(), asyncio.Event(), asyncio.Event()
    barrier, replace = walk.wal.barrier, uploads._manifests.replace

    async def held_barrier() -> None:
        is_at_barrier.set()
        await may_pass.wait()
        await barrier()

    async def scenario() -> None:
        walk.append(KEY, 3)
        await walk.flusher.idle()
        walk.wal.barrier = held_barrier  # type: ignore[method-assign]
        round_ = asyncio.create_task(uploads.round())
        await is_at_barrier.wait()
        walk.append(KEY, 3)
        await walk.flusher.idle()
        may_replace = asyncio.Event()

        async def held_replace(manifest: Manifest) -> Manifest:
            has_created.set()
            await may_replace.wait()
            return await replace(manifest)

        uploads._manifests.replace = held_replace  # type: ignore[method-assign]
        other = asyncio.create_task(uploads.hand_over(log))
        await has_created.wait()
        may_pass.set()
        await round_
        await uploads.sweep()
        may_replace.set()
        await other

    walk.run(scenario())
    assert not missing_of(manifests_in(walk.bucket), walk.bucket)
    walk.end()


def test_after_a_failed_upload_an_earlier_manifest_makes_no_orphans(walk: Walk) -> None:
    """The upload may have replaced the manifest before it failed, or a call that was late may still do so."""
    uploads = walk.uploads
    replace = uploads._manifests.replace
    refused = [Refused("the test says so")]

    async def refused_barrier() -> None:
        raise refused[0]

    async def replaced_and_refused(manifest: Manifest) -> Manifest:
        known = dict(uploads._manifests._known)
        await replace(manifest)
        uploads._manifests._known = known
        raise refused[0]

    barrier = walk.wal.barrier
    _append(walk)
    walk.wal.barrier = refused_barrier  # type: ignore[method-assign]
    with pytest.raises(Refused):
        walk.run(uploads.round())
    walk.wal.barrier = barrier  # type: ignore[method-assign]
    _append(walk)
    uploads._manifests.replace = replaced_and_refused  # type: ignore[method-assign]
    with pytest.raises(Refused):
        walk.run(uploads.hand_over(walk.plain.log))
    uploads._count_stored()
    walk.run(uploads.sweep())
    assert not missing_of(manifests_in(walk.bucket), walk.bucket)
    walk.end()


def test_a_search_for_orphans_gathers_the_names_of_a_manifest_once(
    walk: Walk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition may have thousands of parts, and requests wait meanwhile."""
    gathered: list[PartitionKey] = []
    names_of = Manifest.objects.fget  # type: ignore[attr-defined]

    def names(manifest: Manifest) -> frozenset[str]:
        gathered.append(manifest.key)
        return names_of(manifest)  # type: ignore[no-any-return]

    monkeypatch.setattr(Manifest, "objects", property(names))
    orphans = {part_key(KEY, part_name(0, f"{number:032x}")) for number in range(20)}
    for key in orphans:
        walk.bucket.create(key, b"", walk.loop.time())
    assert {entry.key for entry in walk.run(walk.uploads.find_orphans(0))} == orphans
    assert gathered.count(KEY) == 1
    walk.end()
