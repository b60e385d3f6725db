"""`seqgate cluster status` and `seqgate cluster verify`: what a bucket holds, and each kind of damage in it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from click.testing import Result
from typer.testing import CliRunner

from seqgate.gateway.admin.cluster.bucket import ObjectsInTime
from seqgate.gateway.admin.cluster.status import ClusterState
from seqgate.gateway.admin.cluster.verify import Verification
from seqgate.gateway.admin.cluster.verify import verify as verified
from seqgate.gateway.admin.request import NoAnswer
from seqgate.gateway.cli import app
from seqgate.gateway.cluster.objects.directory_objects import DirectoryObjects
from seqgate.gateway.cluster.objects.objects import ObjectStore
from seqgate.gateway.cluster.wal.persistence import MOST_S, PersistentReads
from seqgate.gateway.cluster.wal.sessions import encode_boundary
from seqgate.gateway.cluster.wal.wal_object import SESSIONS_BOUNDARY_KEY, boundary_key
from tests.gateway.backends.test_uploads import running
from tests.gateway.cluster.wal.virtual import in_virtual_time
from tests.support.simulated_objects import ROUGH, SimulatedBucket, SimulatedObjects

A = TypeVar("A")
LONG_AGO_S = -1000.0
"""Before the listings that a store may still give."""


def run(command: str, bucket: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["cluster", command, "--cluster", f"file://{bucket}", *options])


def answer(command: str, bucket: Path, kind: type[A], code: int = 0) -> A:
    result = run(command, bucket, "--json")
    assert result.exit_code == code, result.output
    return msgspec.json.decode(result.stdout, type=kind)


async def _write(tmp_path: Path) -> None:
    """Let a gateway upload six batches and write four more."""
    async with running(tmp_path) as gateway:
        await gateway.create(internal_segment_bytes=1000)
        for _ in range(3):
            await gateway.append(2)
        await gateway.uploads.round()
        await gateway.append(2)
        await gateway.append(2)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("written")
    asyncio.run(_write(place))
    return place / "bucket"


@pytest.fixture
def bucket(written: Path, tmp_path: Path) -> Path:
    """The bucket of a gateway that has stopped, to be damaged."""
    return shutil.copytree(written, tmp_path / "bucket")


def keys(bucket: Path, prefix: str) -> list[str]:
    return sorted(str(path.relative_to(bucket)) for path in (bucket / prefix).rglob("*") if path.is_file())


def test_the_status_of_a_bucket(bucket: Path) -> None:
    state = answer("status", bucket, ClusterState)
    assert (state.sessions, state.last.session, state.last.ended) == (1, 0, "the gateway stopped")
    (ended,) = state.ended
    assert (ended.session, ended.node_id, ended.by, ended.reason) == (0, 1, 1, "the gateway stopped")
    assert state.partitions == 1
    assert state.parts.objects == len(keys(bucket, "parts"))
    assert state.wal.objects == len(keys(bucket, "wal"))
    stored = state.parts.size_bytes + state.wal.size_bytes
    assert stored == sum(
        (bucket / key).stat().st_size for name in ("parts", "wal") for key in keys(bucket, name)
    )
    stored += sum((bucket / key).stat().st_size for key in keys(bucket, "meta"))
    assert state.us_dollars_per_month == pytest.approx(stored / 2**30 * 0.023)
    shown = run("status", bucket).stdout
    assert "ended: the gateway stopped" in shown
    assert "0 of node 1 on" in shown
    assert "1 partition" in shown
    manifests = [key for key in keys(bucket, "parts") if key.endswith("/manifest")]
    assert state.last_upload_ms == max(modified_ms(bucket / key) for key in manifests)
    objects = [key for key in keys(bucket, "wal") if not key.endswith("/boundary")][:-1]
    assert state.oldest_wal_ms == min(modified_ms(bucket / key) for key in objects)


def modified_ms(path: Path) -> int:
    return path.stat().st_mtime_ns // 1_000_000


async def test_the_status_while_a_gateway_runs(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        await gateway.create()
        state = await asyncio.to_thread(answer, "status", tmp_path / "bucket", ClusterState)
        assert state.last.ended is None
        assert state.last.last_object_ms is not None
        assert state.oldest_wal_ms is not None
        assert state.last_upload_ms is None
        shown = await asyncio.to_thread(run, "status", tmp_path / "bucket")
    assert "runs, or has crashed" in shown.stdout


async def test_the_oldest_object_may_be_of_any_gateway_that_runs(tmp_path: Path) -> None:
    async with (
        running(tmp_path) as gateway,
        running(tmp_path, "node.id=2", f"log.dirs={tmp_path / 'other cache'}"),
    ):
        await gateway.create()
        bucket = tmp_path / "bucket"
        state = await asyncio.to_thread(answer, "status", bucket, ClusterState)
        (of_first,) = keys(bucket, "wal/1")
        assert state.oldest_wal_ms == modified_ms(bucket / of_first)


def test_the_status_of_a_session_whose_objects_an_upload_has_deleted(bucket: Path) -> None:
    last = answer("status", bucket, ClusterState).last
    for key in keys(bucket, "wal"):
        (bucket / key).unlink()
    boundary = bucket / boundary_key(last.node_id, last.session)
    boundary.write_bytes(encode_boundary(9))
    state = answer("status", bucket, ClusterState)
    assert state.last.last_object_ms == modified_ms(boundary)
    assert "runs, or has crashed" in run("status", bucket).stdout


@pytest.mark.parametrize("command", ["status", "verify"])
def test_a_directory_without_a_cluster(tmp_path: Path, command: str) -> None:
    result = run(command, tmp_path)
    assert result.exit_code == 1
    assert f"seqgate: file://{tmp_path} holds no cluster; check the address" in result.stderr


def test_no_bucket_is_named() -> None:
    result = CliRunner().invoke(app, ["cluster", "status"])
    assert result.exit_code == 1
    assert "name the bucket with --cluster" in result.stderr


def test_a_sound_bucket(bucket: Path) -> None:
    found = answer("verify", bucket, Verification)
    assert found.damaged == []
    assert (found.partitions, found.unnamed) == (1, 0)
    assert found.parts >= 1
    assert found.wal_objects >= 2
    assert "all sound" in run("verify", bucket).stdout


async def test_a_bucket_is_sound_while_a_gateway_writes_into_it(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        await gateway.create()
        await gateway.append(4)
        await gateway.uploads.round()
        await gateway.append(1)
        found = await asyncio.to_thread(answer, "verify", tmp_path / "bucket", Verification)
    assert found.damaged == []


def test_objects_that_no_manifest_names_are_counted(bucket: Path) -> None:
    part = next(key for key in keys(bucket, "parts") if not key.endswith("manifest"))
    (bucket / part).with_name(f"{0:020}-{'e' * 32}").write_bytes(b"left by a crash")
    found = answer("verify", bucket, Verification)
    assert (found.damaged, found.unnamed) == ([], 1)


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def _part(bucket: Path) -> str:
    return next(key for key in keys(bucket, "parts") if not key.endswith("manifest"))


def _manifest(bucket: Path) -> str:
    return next(key for key in keys(bucket, "parts") if key.endswith("manifest"))


def _first_wal(bucket: Path) -> str:
    return next(key for key in keys(bucket, "wal") if not key.endswith("boundary"))


def _boundary(bucket: Path) -> str:
    return next(key for key in keys(bucket, "wal") if key.endswith("boundary"))


@pytest.mark.parametrize("damage", [_flip, _cut, Path.unlink], ids=["flipped", "cut", "missing"])
@pytest.mark.parametrize("chosen", [_part, _manifest, _first_wal, _boundary])
def test_damage_is_found(bucket: Path, chosen: Callable[[Path], str], damage: Callable[[Path], None]) -> None:
    key = chosen(bucket)
    damage(bucket / key)
    found = answer("verify", bucket, Verification, 1)
    assert key in {row.key for row in found.damaged} or chosen is _boundary
    shown = run("verify", bucket)
    assert shown.exit_code == 1
    assert "damaged or missing" in shown.stdout
    assert shown.stdout.count(found.damaged[0].key) == 1


@pytest.mark.parametrize("damage", [_flip, _cut], ids=["flipped", "cut"])
def test_a_damaged_change_of_the_metadata_is_found(bucket: Path, damage: Callable[[Path], None]) -> None:
    last = keys(bucket, "meta")[-1]
    damage(bucket / last)
    found = answer("verify", bucket, Verification, 1)
    assert [row.key for row in found.damaged] == [last]
    assert last in run("verify", bucket).stdout


def test_a_missing_change_of_the_metadata_is_told(bucket: Path) -> None:
    (bucket / keys(bucket, "meta")[1]).unlink()
    result = run("verify", bucket)
    assert result.exit_code == 1
    assert f"meta/{1:020} is missing, and later objects are there" in result.stderr


def test_the_logs_of_collected_sessions_are_not_asked_for(bucket: Path) -> None:
    (bucket / SESSIONS_BOUNDARY_KEY).write_bytes(encode_boundary(1))
    found = answer("verify", bucket, Verification)
    assert (found.wal_objects, found.damaged) == (0, [])
    (bucket / SESSIONS_BOUNDARY_KEY).write_bytes(b"{}")
    found = answer("verify", bucket, Verification, 1)
    assert [row.key for row in found.damaged] == [SESSIONS_BOUNDARY_KEY]
    assert found.wal_objects > 0


async def copied(bucket: Path) -> SimulatedBucket:
    """Return a simulated bucket with the same objects."""
    simulated = SimulatedBucket()
    store: ObjectStore = DirectoryObjects(bucket)
    for key in [entry.key async for entry in store.list("")]:
        simulated.create(key, await store.get(key), LONG_AGO_S)
    await store.close()
    return simulated


def test_a_store_that_fails_changes_no_finding(bucket: Path) -> None:
    simulated = asyncio.run(copied(bucket))

    def damaged(seed: int) -> Sequence[str]:
        store = SimulatedObjects(simulated, seed=seed, faults=ROUGH)
        return [row.key for row in in_virtual_time(verified(store, "s3://orders")).damaged]

    assert [damaged(seed) for seed in range(3)] == [[]] * 3
    lost = next(key for key in simulated.keys("parts/") if not key.endswith("manifest"))
    del simulated.objects[lost]
    assert [damaged(seed) for seed in range(3)] == [[lost]] * 3


def test_a_command_gives_up_once_the_store_has_not_answered_in_time() -> None:
    """An answer, also that there is no such object, begins the time anew."""
    simulated = SimulatedBucket()

    async def read_on(reads: PersistentReads) -> None:
        while await reads.find("meta/none") is None:
            await asyncio.sleep(1.0)

    async def lasts_s() -> float:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        outages = ((10, 38), (100, 128), (200, 9999))
        simulated.outages = [(begun_s + begin_s, begun_s + end_s) for begin_s, end_s in outages]
        reads = PersistentReads(ObjectsInTime(SimulatedObjects(simulated), "s3://orders", 60.0), "it waits")
        with pytest.raises(NoAnswer, match="gave up after 60 s: s3://orders does not answer: get 'meta/none"):
            await read_on(reads)
        return loop.time() - begun_s

    for seed in range(5):
        assert 260 <= in_virtual_time(lasts_s(), seed) <= 260 + 1 + MOST_S
