"""What a gateway uploads into its bucket, what it deletes there, and what a start without the cache has."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from seqgate.gateway.admin.sweep import SweepRequest, SweepResultRequest, Sweeps
from seqgate.gateway.backends.bucket_backend import BucketBackend
from seqgate.gateway.cluster.objects.objects import Refused
from seqgate.gateway.cluster.parts.manifest import Manifest, decode_manifest
from seqgate.gateway.cluster.uploads.uploads import Uploads
from seqgate.gateway.cluster.wal.sessions import decode_boundary
from seqgate.gateway.cluster.wal.wal_object import SESSIONS_BOUNDARY_KEY, identify
from seqgate.gateway.config import load_config
from seqgate.gateway.gateway import Gateway
from seqgate.gateway.runtime.partitions.partition import Partition
from tests.support.batches import Batch, records
from tests.support.wire import Wire

TOPIC = "flights"
OLD_S = 2 * 86_400


class Running:
    """A gateway in this process, with its uploads in the hands of the test."""

    def __init__(self, gateway: Gateway, bucket: Path) -> None:
        self.gateway = gateway
        self._bucket = bucket

    @property
    def uploads(self) -> Uploads:
        assert isinstance(self.gateway.backend, BucketBackend)
        assert self.gateway.backend.uploads is not None
        return self.gateway.backend.uploads

    @property
    def partition(self) -> Partition:
        found = self.gateway.services.partitions.registry.get(TOPIC, 0)
        assert found is not None
        return found

    async def call(self, api: str, version: int, **fields: object) -> None:
        (endpoint,) = self.gateway.services.node.bound.values()

        def ask() -> None:
            with Wire(f"127.0.0.1:{endpoint.port}") as wire:
                wire.call(api, version, **fields)

        await asyncio.to_thread(ask)

    async def create(self, **configs: object) -> None:
        given = [{"name": name.replace("_", "."), "value": str(value)} for name, value in configs.items()]
        topic = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1, "configs": given}
        await self.call("create_topics", 7, topics=[topic], timeout=10_000)

    @property
    def live_bytes(self) -> int:
        return sum(partition.log.size_bytes for partition in self.gateway.services.partitions.registry)

    async def append(self, count: int = 1, *, size: int = 10) -> None:
        for _ in range(count):
            appended = self.partition.append(Batch(records(1, size)).encode(), self.gateway.clock.now_ms())
        assert await self.partition.persisted(appended.last_offset)

    async def swept(self) -> set[str]:
        """Return the names of the objects that `seqgate sweep` reports."""
        sweeps = Sweeps(self.gateway.services)
        task = sweeps.begin(SweepRequest(min_age_ms=0))
        running = self.gateway.services.node.tasks.get(task.number)
        while running is not None and running.ended_ms is None:
            await asyncio.sleep(0)
        page = sweeps.result(SweepResultRequest(task.number))
        assert page.task.failure is None
        return {leak.place.rpartition("/")[2] for leak in page.leaks if leak.kind == "object of the bucket"}

    def objects(self, prefix: str) -> set[str]:
        return {
            str(path.relative_to(self._bucket))
            for path in (self._bucket / prefix).rglob("*")
            if path.is_file()
        }

    @property
    def session(self) -> int:
        assert isinstance(self.gateway.backend, BucketBackend)
        return self.gateway.backend.wal.session.session

    @property
    def wal_objects(self) -> set[str]:
        return {key for key in self.objects("wal") if not key.endswith("boundary")}

    def manifest(self) -> Manifest:
        place = f"parts/{self.partition.log.topic_id.hex}/0/manifest"
        return decode_manifest((self._bucket / place).read_bytes(), place)


@asynccontextmanager
async def running(tmp_path: Path, *settings: str) -> AsyncIterator[Running]:
    (tmp_path / "bucket").mkdir(exist_ok=True)
    overrides = [
        f"log.dirs={tmp_path / 'cache'}",
        "listeners=PLAINTEXT://127.0.0.1:0",
        f"seqgate.cluster=file://{tmp_path / 'bucket'}",
        "seqgate.cluster.puts.per.second=1000",
        "seqgate.cluster.lease.ms=14400000",
        "seqgate.cluster.heartbeat.ms=3600000",
        *settings,
    ]
    gateway = Gateway(load_config(overrides=overrides))
    await gateway.start()
    try:
        yield Running(gateway, tmp_path / "bucket")
    finally:
        await gateway.stop()


async def stored(tmp_path: Path) -> tuple[int, int, int]:
    """Return (log start offset, log end offset, number of batches) after a start from the bucket alone."""
    shutil.rmtree(tmp_path / "cache")
    async with running(tmp_path) as again:
        log = again.partition.log
        batches = log.batches(log.log_start_offset, log.log_end_offset, 1 << 20)
        return log.log_start_offset, log.log_end_offset, len(list(batches))


async def test_a_round_leaves_nothing_in_the_write_ahead_log(tmp_path: Path) -> None:
    async with running(tmp_path) as first:
        await first.create()
        await first.append(5)
        assert first.wal_objects
        await first.uploads.round()
        assert not first.wal_objects
        assert first.manifest().end_offset == 5
    assert await stored(tmp_path) == (0, 5, 5)


async def test_the_next_round_uploads_only_what_came_since(tmp_path: Path) -> None:
    async with running(tmp_path) as first:
        await first.create()
        await first.append(3)
        await first.uploads.round()
        (before,) = first.manifest().segments[0].parts
        await first.append(2)
        await first.uploads.round()
        kept, added = first.manifest().segments[0].parts
        assert kept == before
        assert added.position == before.length
        generation = first.manifest().generation
        await first.uploads.round()
        assert first.manifest().generation == generation
    assert await stored(tmp_path) == (0, 5, 5)


async def test_a_restart_keeps_the_parts_whether_the_disk_was_lost_or_not(tmp_path: Path) -> None:
    async with running(tmp_path) as first:
        await first.create()
        await first.append(3)
        await first.uploads.round()
        parts = first.manifest().segments[0].parts
    for is_lost in (False, True):
        if is_lost:
            shutil.rmtree(tmp_path / "cache")
        async with running(tmp_path) as again:
            await again.append()
            await again.uploads.round()
            assert again.manifest().segments[0].parts[: len(parts)] == parts
            assert not {key for key in again.wal_objects if not _is_seal(tmp_path / "bucket" / key)}
            ended = decode_boundary((tmp_path / "bucket" / SESSIONS_BOUNDARY_KEY).read_bytes(), "meta")
            assert ended == again.session
    assert await stored(tmp_path) == (0, 5, 5)


def _is_seal(path: Path) -> bool:
    return identify(path.read_bytes(), str(path)).is_seal


async def test_deleted_records_leave_the_bucket(tmp_path: Path) -> None:
    async with running(tmp_path) as first:
        await first.create(internal_segment_bytes=1000)
        for _ in range(6):
            await first.append(10)
        await first.uploads.round()
        before = first.objects("parts")
        wanted = {"partition_index": 0, "offset": 40}
        await first.call(
            "delete_records", 2, topics=[{"name": TOPIC, "partitions": [wanted]}], timeout=10_000
        )
        await first.uploads.round()
        assert first.manifest().log_start_offset == 40
        assert len(first.objects("parts")) < len(before)
    start, end, batches = await stored(tmp_path)
    assert (start, end) == (40, 60)
    assert batches <= 21


async def test_at_rest_the_bucket_holds_little_more_than_the_live_data(tmp_path: Path) -> None:
    async with running(tmp_path) as first:
        await first.create(segment_bytes=1 << 20)
        for _ in range(8):
            await first.append(10, size=40_000)
            await first.uploads.round()
        assert _bytes_in(tmp_path / "bucket") <= 1.2 * first.live_bytes
        wanted = {"partition_index": 0, "offset": 60}
        await first.call(
            "delete_records", 2, topics=[{"name": TOPIC, "partitions": [wanted]}], timeout=10_000
        )
        await first.uploads.round()
        assert first.live_bytes < 2 << 20
        assert _bytes_in(tmp_path / "bucket") <= 1.2 * first.live_bytes


def _bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


async def test_a_deleted_topic_leaves_the_bucket(tmp_path: Path) -> None:
    async with running(tmp_path) as first:
        await first.create()
        await first.append(3)
        await first.uploads.round()
        topic_id = first.partition.log.topic_id.hex
        assert first.objects(f"parts/{topic_id}")
        topics = [{"name": TOPIC, "topic_id": None}]
        await first.call("delete_topics", 6, topics=topics, timeout=10_000)
        await first.uploads.round()
        assert not first.objects(f"parts/{topic_id}")
        assert not first.wal_objects


async def test_orphans_are_swept_when_they_are_old(tmp_path: Path) -> None:
    async with running(tmp_path) as first:
        await first.create()
        await first.append(3)
        await first.uploads.round()
        folder = tmp_path / "bucket" / "parts" / first.partition.log.topic_id.hex / "0"
        gone = tmp_path / "bucket" / "parts" / ("a" * 32) / "0"
        gone.mkdir(parents=True)
        orphans = [folder / f"{0:020}-{'b' * 32}", folder / f"files-{'c' * 32}", gone / "manifest"]
        for orphan in orphans:
            orphan.write_bytes(b"")
        before = first.objects("parts")
        assert await first.uploads.sweep() == 0
        assert await first.swept() == {path.name for path in orphans}
        for path in (tmp_path / "bucket" / "parts").rglob("*"):
            modified_s = path.stat().st_mtime - OLD_S
            os.utime(path, (modified_s, modified_s))
        assert await first.uploads.sweep() == len(orphans)
        assert not any(orphan.exists() for orphan in orphans)
        assert len(first.objects("parts")) == len(before) - len(orphans)
    assert await stored(tmp_path) == (0, 3, 3)


async def test_a_round_that_ends_early_is_finished_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What only the newest manifest names is no orphan, and what only the one before names is deleted by the
    next round.
    """
    async with running(tmp_path) as first:
        await first.create(internal_segment_bytes=1000)
        for _ in range(6):
            await first.append(10)
        await first.uploads.round()
        wanted = {"partition_index": 0, "offset": 40}
        await first.call(
            "delete_records", 2, topics=[{"name": TOPIC, "partitions": [wanted]}], timeout=10_000
        )
        await first.append()

        async def refused() -> None:
            raise Refused("the credentials have expired")

        with monkeypatch.context() as patch:
            patch.setattr(first.uploads._wal, "barrier", refused)
            with pytest.raises(Refused):
                await first.uploads.round()
        assert first.manifest().end_offset == 61
        folder = tmp_path / "bucket" / "parts" / first.partition.log.topic_id.hex / "0"
        for path in folder.iterdir():
            os.utime(path, (path.stat().st_mtime - OLD_S,) * 2)
        await first.uploads.sweep()
        assert first.manifest().objects <= {path.name for path in folder.iterdir()}
        await first.uploads.round()
        assert {path.name for path in folder.iterdir()} == {"manifest", *first.manifest().objects}
    start, end, _ = await stored(tmp_path)
    assert (start, end) == (40, 61)


async def test_orphans_of_a_partition_at_rest_are_swept_after_its_next_manifest(tmp_path: Path) -> None:
    """A gateway that was started again has nothing to upload, so it replaces the manifest for the sweep."""
    async with running(tmp_path) as first:
        await first.create()
        await first.append(3)
        await first.uploads.round()
        folder = tmp_path / "bucket" / "parts" / first.partition.log.topic_id.hex / "0"
    orphan = folder / f"{0:020}-{'b' * 32}"
    orphan.write_bytes(b"")
    for path in folder.iterdir():
        os.utime(path, (path.stat().st_mtime - OLD_S,) * 2)
    async with running(tmp_path) as second:
        await second.uploads.round()
        await second.uploads.sweep()
        await second.uploads.round()
        await second.uploads.sweep()
        assert not orphan.exists()
    assert await stored(tmp_path) == (0, 3, 3)


async def test_objects_below_the_boundary_are_swept_when_they_are_old(tmp_path: Path) -> None:
    """A crash amid a deletion leaves them, and a late call creates one again; the objects from the boundary
    on stay.
    """
    async with running(tmp_path) as first:
        await first.create()
        await first.append(3)
        await first.uploads.round()
        left = [f"wal/1/0/{seq:020}" for seq in range(2)]
        assert not first.wal_objects & {*left}
        for key in left:
            (tmp_path / "bucket" / key).write_bytes(b"")
        await first.append(2)
        needed = first.wal_objects - {*left}
        assert await first.uploads.sweep() == 0
        for path in (tmp_path / "bucket" / "wal").rglob("*"):
            modified_s = path.stat().st_mtime - OLD_S
            os.utime(path, (modified_s, modified_s))
        assert await first.uploads.sweep() == len(left)
        assert needed <= first.wal_objects
        assert not first.wal_objects & {*left}
    assert await stored(tmp_path) == (0, 5, 5)


async def test_the_only_object_of_the_running_log_is_swept_below_its_boundary(tmp_path: Path) -> None:
    """A call that was late has created it again. The log of a session that runs has no seal, which would
    stay.
    """
    async with running(tmp_path) as first:
        await first.create()
        await first.append(3)
        await first.uploads.round()
        assert not first.wal_objects
        late = tmp_path / "bucket" / f"wal/1/0/{0:020}"
        late.write_bytes(b"")
        os.utime(late, (late.stat().st_mtime - OLD_S,) * 2)
        assert await first.uploads.sweep() == 1
        assert not late.exists()
    assert await stored(tmp_path) == (0, 3, 3)


@pytest.mark.parametrize("name", ["00000000000000000003.names", "leader-epoch-checkpoint"])
async def test_side_files_come_back(tmp_path: Path, name: str) -> None:
    async with running(tmp_path) as first:
        await first.create()
        await first.append(1)
        content = b"x" * 10_000 if name.endswith("names") else None
        path = Path(first.partition.log.directory, name)
        if content is not None:
            path.write_bytes(content)
        content = path.read_bytes()
        await first.uploads.round()
        files = {file.name: file for file in first.manifest().files}
        assert (files[name].stored is None) == (len(content) < 4096)
        copy = first.manifest()
        await first.append(1)
        await first.uploads.round()
        assert {file.stored for file in first.manifest().files} == {file.stored for file in copy.files}
