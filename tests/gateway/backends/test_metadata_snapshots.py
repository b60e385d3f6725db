"""Snapshots of the metadata in a bucket: who writes them, what a start does with them, and what is deleted
for them.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from seqgate.gateway.admin.cluster.status import ClusterState
from seqgate.gateway.admin.cluster.verify import Verification
from seqgate.gateway.backends import metadata_snapshots
from seqgate.gateway.backends.backend import StartFailed
from seqgate.gateway.backends.bucket_backend import BucketBackend
from seqgate.gateway.backends.metadata_snapshots import MetadataSnapshots
from seqgate.gateway.cluster.metadata.shared_log import read_snapshot
from seqgate.gateway.cluster.wal.persistence import PersistentReads
from seqgate.gateway.cluster.wal.sessions import Snapshot, decode_boundary
from seqgate.gateway.cluster.wal.wal_object import SHORTENED_KEY, registration_key, snapshot_key
from seqgate.gateway.metadata.image import MetadataImage
from tests.gateway.admin.cluster.test_status_and_verify import answer
from tests.gateway.backends.test_uploads import Running
from tests.gateway.backends.test_uploads import running as running_at_a_new_address
from tests.gateway.metadata.test_image_records import everything
from tests.support.wire import Wire

OFTEN = "seqgate.cluster.metadata.snapshot.changes=4"
SOON = "seqgate.cluster.metadata.snapshot.age.ms=1000"


@pytest.fixture(autouse=True)
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tests say when a gateway works on snapshots."""
    monkeypatch.setattr(metadata_snapshots, "CHECKED_EVERY_S", 3_600.0)


def running(tmp_path: Path, *settings: str) -> AbstractAsyncContextManager[Running]:
    """Run a gateway that stays the same node, although each start listens at another port."""
    return running_at_a_new_address(tmp_path, "node.id=1", *settings)


def snapshots_of(gateway: Running) -> MetadataSnapshots:
    assert isinstance(gateway.gateway.backend, BucketBackend)
    assert gateway.gateway.backend._snapshots is not None
    return gateway.gateway.backend._snapshots


def image_of(gateway: Running) -> MetadataImage:
    return gateway.gateway.services.topics.metadata_log.image


async def create_topics(gateway: Running, first: int, count: int) -> None:
    """Create topics, one after the other: each is one change, and one more for its configuration."""
    (endpoint,) = gateway.gateway.services.node.bound.values()

    def ask() -> None:
        with Wire(f"127.0.0.1:{endpoint.port}") as wire:
            for number in range(first, first + count):
                configs = [{"name": "retention.ms", "value": str(number)}]
                topic = {
                    "name": f"t{number}",
                    "num_partitions": 2,
                    "replication_factor": 1,
                    "configs": configs,
                }
                wire.call("create_topics", 7, topics=[topic], timeout=10_000)

    await asyncio.to_thread(ask)


def present(tmp_path: Path, folder: str = "meta") -> list[int]:
    """Return the numbers of the objects in a folder."""
    return sorted(int(path.name) for path in (tmp_path / "bucket" / folder).iterdir() if path.name.isdigit())


async def shortened(gateway: Running) -> None:
    """Write two snapshots, wait for their age, and shorten the log."""
    work = snapshots_of(gateway).work
    await create_topics(gateway, 0, 6)
    await work()
    await create_topics(gateway, 6, 6)
    await work()
    shared = snapshots_of(gateway)._shared
    begun_s = shared.seconds()
    shared.seconds = lambda: begun_s + 10.0
    await work()


async def test_a_start_on_an_empty_disk_reads_the_snapshot_and_the_changes_behind_it(tmp_path: Path) -> None:
    async with running(tmp_path, OFTEN) as gateway:
        await gateway.create()
        await gateway.append(2)
        await create_topics(gateway, 0, 6)
        await gateway.call("delete_topics", 5, topic_names=["t0"], timeout=10_000)
        await snapshots_of(gateway).work()
        (seq,) = present(tmp_path, "meta/snapshot")
        await create_topics(gateway, 6, 2)
        before = image_of(gateway)
    shutil.rmtree(tmp_path / "cache")
    # What the snapshot stands for is not read: these bytes are no object of `meta/`.
    for number in present(tmp_path):
        if 0 < number < seq:
            (tmp_path / "bucket" / registration_key(number)).write_bytes(b"nothing")
    async with running(tmp_path, OFTEN) as again:
        image = image_of(again)
        assert image.topics_by_name == before.topics_by_name
        assert image._configs == before._configs
        assert again.partition.log.log_end_offset == 2
        assert again.gateway.services.topics.metadata_log.log.log_start_offset > 0
        await create_topics(again, 8, 1)
    async with running(tmp_path, OFTEN) as third:  # on its disk, whose metadata log begins with the snapshot
        assert "t8" in image_of(third).topics_by_name
        assert third.partition.log.log_end_offset == 2


async def test_a_snapshot_is_written_every_so_many_changes(tmp_path: Path) -> None:
    async with running(tmp_path, OFTEN) as gateway:
        work = snapshots_of(gateway).work
        await create_topics(gateway, 0, 6)
        await work()
        (first,) = present(tmp_path, "meta/snapshot")
        await create_topics(gateway, 6, 2)
        await work()
        assert present(tmp_path, "meta/snapshot") == [first]
        await create_topics(gateway, 8, 2)
        await work()
        assert present(tmp_path, "meta/snapshot") == [first, first + 4]


async def test_another_gateway_writes_none(tmp_path: Path) -> None:
    async with running(tmp_path, OFTEN) as gateway:
        snapshots = snapshots_of(gateway)
        snapshots._is_our_turn = lambda: False
        await create_topics(gateway, 0, 6)
        await snapshots.work()
        assert not (tmp_path / "bucket" / "meta/snapshot").exists()


async def test_none_is_written_while_an_earlier_release_is_live(tmp_path: Path) -> None:
    async with running(tmp_path, OFTEN) as gateway:
        image_of(gateway).brokers.cluster_version = 3
        await create_topics(gateway, 0, 6)
        await snapshots_of(gateway).work()
        assert not (tmp_path / "bucket" / "meta/snapshot").exists()


async def test_what_two_snapshots_stand_for_is_deleted(tmp_path: Path) -> None:
    async with running(tmp_path, OFTEN, SOON) as gateway:
        await gateway.create()
        await gateway.append(3)
        await shortened(gateway)
        older, newest = present(tmp_path, "meta/snapshot")
        left = present(tmp_path)
        assert left == [0, *range(older, left[-1] + 1)]
        boundary = (tmp_path / "bucket" / SHORTENED_KEY).read_bytes()
        assert decode_boundary(boundary, SHORTENED_KEY) == older
        state = await asyncio.to_thread(answer, "status", tmp_path / "bucket", ClusterState)
        assert (state.snapshots, state.changes_behind) == ([older, newest], left[-1] + 1 - newest)
        assert state.metadata.objects == len(left) + 3
        await create_topics(gateway, 12, 1)  # the log goes on
        before = image_of(gateway)
    shutil.rmtree(tmp_path / "cache")
    found = await asyncio.to_thread(answer, "verify", tmp_path / "bucket", Verification)
    assert found.damaged == []
    async with running(tmp_path, OFTEN) as again:
        assert everything(image_of(again))[:1] == everything(before)[:1]
        assert image_of(again).brokers.cluster_version == before.brokers.cluster_version
        assert again.partition.log.log_end_offset == 3


@pytest.mark.parametrize("damaged", ["newest", "older"])
async def test_one_damaged_snapshot_harms_nobody(
    tmp_path: Path, damaged: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, OFTEN, SOON) as gateway:
        await gateway.create()
        await gateway.append(3)
        await shortened(gateway)
        await create_topics(gateway, 12, 1)
        before = image_of(gateway)
    shutil.rmtree(tmp_path / "cache")
    seqs = dict(zip(("older", "newest"), present(tmp_path, "meta/snapshot"), strict=True))
    key = snapshot_key(seqs[damaged])
    path = tmp_path / "bucket" / key
    path.write_bytes(path.read_bytes()[:-1])
    found = await asyncio.to_thread(answer, "verify", tmp_path / "bucket", Verification, 1)
    assert key in {row.key for row in found.damaged}
    caplog.set_level(logging.WARNING)
    async with running(tmp_path, OFTEN) as again:
        assert image_of(again).topics_by_name == before.topics_by_name
    assert any(key in message for message in caplog.messages) == (damaged == "newest")


@pytest.mark.parametrize("damaged", ["newest", "older"])
async def test_nothing_is_deleted_for_a_damaged_snapshot(tmp_path: Path, damaged: str) -> None:
    async with running(tmp_path, OFTEN, SOON) as gateway:
        work = snapshots_of(gateway).work
        shared = snapshots_of(gateway)._shared
        begun_s = shared.seconds()
        shared.seconds = lambda: begun_s  # no snapshot is old enough yet, however slow this machine is
        await create_topics(gateway, 0, 6)
        await work()
        await create_topics(gateway, 6, 6)
        await work()
        seqs = dict(zip(("older", "newest"), present(tmp_path, "meta/snapshot"), strict=True))
        path = tmp_path / "bucket" / snapshot_key(seqs[damaged])
        path.write_bytes(path.read_bytes()[:-1])
        shared.seconds = lambda: begun_s + 10.0
        before = present(tmp_path)
        await work()
        assert present(tmp_path) == before
        assert not (tmp_path / "bucket" / SHORTENED_KEY).exists()


async def test_what_a_crash_left_amid_the_deletion_is_deleted_later(tmp_path: Path) -> None:
    async with running(tmp_path, OFTEN, SOON) as gateway:
        await shortened(gateway)
        (tmp_path / "bucket" / registration_key(2)).write_bytes(b"left over")
        snapshots = snapshots_of(gateway)
        await create_topics(gateway, 12, 4)
        await snapshots.work()
        shared = snapshots._shared
        begun_s = shared.seconds()
        shared.seconds = lambda: begun_s + 10.0
        await snapshots.work()
        older, _ = present(tmp_path, "meta/snapshot")
        left = present(tmp_path)
        assert left == [0, *range(older, left[-1] + 1)]


async def test_snapshots_for_which_nothing_may_be_deleted_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier release may still read the log from its beginning."""
    read: list[int] = []

    async def read_without_end(reads: PersistentReads, seq: int) -> Snapshot | None:
        read.append(seq)
        found = await read_snapshot(reads, seq)
        return None if found is None else found._replace(kept_end=None)

    monkeypatch.setattr(metadata_snapshots, "read_snapshot", read_without_end)
    async with running(tmp_path, OFTEN, SOON) as gateway:
        await shortened(gateway)
        await snapshots_of(gateway).work()
        first, second = present(tmp_path, "meta/snapshot")
        assert read == [first, second]
        await create_topics(gateway, 12, 6)
        await snapshots_of(gateway).work()
        third = present(tmp_path, "meta/snapshot")[-1]
        assert read == [first, second, second, third]
        assert set(range(third)) <= {*present(tmp_path)}


async def test_a_gateway_that_missed_the_deletion_stops_with_a_sentence(tmp_path: Path) -> None:
    async with running(tmp_path, OFTEN, SOON) as gateway:
        await shortened(gateway)
        backend = gateway.gateway.backend
        assert isinstance(backend, BucketBackend)
        assert backend._journal is not None
        shared = backend._started.shared
        later_s = shared.seconds() + 10.0
        shared.seconds = lambda: later_s  # no look of the gateway itself is as young as this one
        shared.next_seq = 2  # as if it had stood still since then
        assert await backend._journal.has_more()
        with pytest.raises(Exception, match="the metadata log in the bucket begins at object"):
            await gateway.gateway.services.topics.metadata_log.catch_up()
        assert backend._end.done()


async def test_sessions_that_have_ended_are_dropped(tmp_path: Path) -> None:
    sessions = []
    for number in range(4):
        async with running(tmp_path, OFTEN) as gateway:
            if not number:
                await gateway.create()
            await gateway.append(1)
            sessions.append(gateway.session)
            await gateway.uploads.round()
            if number < 3:
                continue
            await snapshots_of(gateway).work()
            assert [each.session for each in snapshots_of(gateway)._shared.sessions] == sessions[3:]
    shutil.rmtree(tmp_path / "cache")
    async with running(tmp_path, OFTEN) as last:
        known = [each.session for each in snapshots_of(last)._shared.sessions]
        assert known == [sessions[3], last.session]
        assert last.partition.log.log_end_offset == 4


async def test_a_disk_whose_session_was_dropped_is_made_anew(tmp_path: Path) -> None:
    async with running(tmp_path, OFTEN) as gateway:
        await gateway.create()
        await gateway.append(1)
    shutil.copytree(tmp_path / "cache", tmp_path / "old")
    for _ in range(2):
        async with running(tmp_path, OFTEN) as gateway:
            await gateway.append(1)
            await gateway.uploads.round()
            await snapshots_of(gateway).work()
    shutil.rmtree(tmp_path / "cache")
    shutil.move(tmp_path / "old", tmp_path / "cache")
    async with running(tmp_path, OFTEN) as again:
        assert again.partition.log.log_end_offset == 3


async def test_an_emptied_bucket_is_still_noticed(tmp_path: Path) -> None:
    async with running(tmp_path, OFTEN) as gateway:
        await gateway.create()
    shutil.rmtree(tmp_path / "bucket")
    with pytest.raises(StartFailed, match="somebody emptied or replaced the bucket"):
        async with running(tmp_path, OFTEN):
            pass


async def test_a_later_version_of_the_cluster_keeps_this_release_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path):
        pass
    monkeypatch.setattr("seqgate.gateway.backends.bucket_start.CLUSTER_VERSION", 3)
    with pytest.raises(StartFailed, match="uses version 4 of its formats, and this release knows 3"):
        async with running(tmp_path):
            pass
