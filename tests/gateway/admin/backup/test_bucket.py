"""Backups of a bucket while a gateway writes, uploads, deletes and is taken over, and what a restore makes."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from seqgate.gateway.admin.backup import bucket as backups
from seqgate.gateway.admin.backup.bucket import (
    MOST_HOLDS,
    TRIES,
    BucketBackup,
    BucketCut,
    BucketRestore,
    CutRequest,
    HeldLog,
)
from seqgate.gateway.admin.backup.command import LEAST_GAP
from seqgate.gateway.admin.cluster.verify import verify
from seqgate.gateway.admin.operation import LiveGateway
from seqgate.gateway.admin.operations import answer_live
from seqgate.gateway.admin.request import ControlError, NotRunning
from seqgate.gateway.backup.pace import Pace
from seqgate.gateway.backup.repository import BackupError, Created, Repository, manifest_of_complete
from seqgate.gateway.cluster.metadata.shared_log import read_metadata
from seqgate.gateway.cluster.objects.directory_objects import DirectoryObjects
from seqgate.gateway.cluster.rebuild.moment import Moved
from seqgate.gateway.cluster.wal.backups import PIN_KEY, PinTaken
from seqgate.gateway.runtime.topics.stored_image import image_of
from seqgate.log import Storage
from tests.gateway.backends.test_uploads import OLD_S, TOPIC, Running, running

SHORT_LEASE = ("seqgate.cluster.lease.ms=1000", "seqgate.cluster.heartbeat.ms=300")
Hook = Callable[[str], Awaitable[None]]


class Watched(DirectoryObjects):
    """A bucket in which something happens once, before an object is read whose key `begins` so."""

    def __init__(self, root: Path, begins: str = "-", hook: Hook | None = None) -> None:
        super().__init__(root)
        self._begins = begins
        self._hook = hook
        self.read_keys: list[str] = []

    async def get(self, key: str, first: int = 0, size_bytes: int | None = None) -> bytes:
        hook = self._hook
        if hook is not None and key.startswith(self._begins) and not key.endswith(("/manifest", "/boundary")):
            self._hook = None
            await hook(key)
        self.read_keys.append(key)
        return await super().get(key, first, size_bytes)


def asking(gateway: Running) -> Callable[[], BucketCut]:
    """Return what asks a gateway of this loop for a moment, from another thread."""
    loop = asyncio.get_running_loop()
    live = LiveGateway(gateway.gateway.services, None, 0, None)  # type: ignore[arg-type]

    def cut() -> BucketCut:
        found: BucketCut = asyncio.run_coroutine_threadsafe(answer_live(live, CutRequest()), loop).result()
        return found

    return cut


class Died(Exception):
    """The command was killed."""


def nobody() -> BucketCut:
    raise NotRunning("no gateway is running on ./data")


async def backed_up(
    tmp_path: Path,
    cut: Callable[[], BucketCut],
    begins: str = "-",
    hook: Hook | None = None,
    *,
    is_full: bool = False,
    keep: int | None = None,
) -> Created:
    objects = Watched(tmp_path / "bucket", begins, hook)
    repository = Repository(Storage(), str(tmp_path / "backups"))
    await asyncio.to_thread(repository.create_and_lock)
    try:
        backup = BucketBackup(objects, "file:///b", lambda _: cut(), repository, Pace(), is_full=is_full)
        return await backup.run(keep)
    finally:
        repository.unlock()
        await objects.close()


async def restored_into(backup: Created, place: Path) -> int:
    """Restore the backup into `place/bucket`; return the next producer id."""
    (place / "bucket").mkdir(parents=True, exist_ok=True)
    objects = DirectoryObjects(place / "bucket")
    manifest = manifest_of_complete(Storage(), backup.path)
    return await BucketRestore(objects, "file:///r", Storage(), Path(backup.path), manifest).run(Pace())


async def ends_at(backup: Created, place: Path) -> int:
    """Return how many records a gateway has that starts on the restored backup; the bucket is sound."""
    await restored_into(backup, place)
    found = await verify(DirectoryObjects(place / "bucket"), "file:///r")
    assert found.damaged == []
    async with running(place) as again:
        await again.append()  # a leader can write
        log = again.partition.log
        assert len(list(log.batches(0, log.log_end_offset, 1 << 20))) == log.log_end_offset
        return log.log_end_offset - 1


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backups, "AGAIN_AFTER_S", 0.0)


async def test_a_backup_has_what_was_acknowledged_before_and_nothing_later(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        await gateway.create()
        await gateway.append(3)
        await gateway.uploads.round()
        await gateway.append(2)
        asked = asking(gateway)

        def cut() -> BucketCut:
            """Take the cut, then append and upload before anything is copied."""
            found = asked()
            asyncio.run_coroutine_threadsafe(gateway.append(4), loop).result()
            asyncio.run_coroutine_threadsafe(gateway.uploads.round(), loop).result()
            return found

        loop = asyncio.get_running_loop()
        backup = await backed_up(tmp_path, cut)
        assert backup.manifest.is_live
        assert not (tmp_path / "bucket" / PIN_KEY).exists()
    assert await ends_at(backup, tmp_path / "restored") == 5


async def test_gateways_that_have_stopped_need_not_be_asked(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        await gateway.create()
        await gateway.append(3)
        with pytest.raises(
            ControlError, match=r"name a gateway of the cluster with --bootstrap 127\.0\.0\.1"
        ):
            await backed_up(tmp_path, nobody)
    backup = await backed_up(tmp_path, nobody)
    assert not backup.manifest.is_live
    assert await ends_at(backup, tmp_path / "restored") == 3


async def test_uploads_and_deletions_while_objects_are_copied(tmp_path: Path) -> None:
    """Parts that no manifest names any more stay for the backup, and a later sweep deletes them."""
    async with running(tmp_path) as gateway:
        await gateway.create(internal_segment_bytes=1000)
        for _ in range(6):
            await gateway.append(10)
        await gateway.uploads.round()

        async def retention(_: str) -> None:
            await gateway.append(5)
            wanted = {"partition_index": 0, "offset": 40}
            await gateway.call(
                "delete_records", 2, topics=[{"name": TOPIC, "partitions": [wanted]}], timeout=10_000
            )
            await gateway.uploads.round()

        backup = await backed_up(tmp_path, asking(gateway), "parts/", retention)
        assert gateway.manifest().log_start_offset == 40
        await gateway.append()
        await gateway.uploads.round()
        _age(tmp_path)
        await gateway.uploads.sweep()
        folder = tmp_path / "bucket" / "parts" / gateway.partition.log.topic_id.hex / "0"
        assert {path.name for path in folder.iterdir()} == {"manifest", *gateway.manifest().objects}
    assert await ends_at(backup, tmp_path / "restored") == 60


def _age(tmp_path: Path) -> None:
    """Make every object two days older."""
    for path in (tmp_path / "bucket").rglob("*"):
        if path.is_file():
            os.utime(path, (path.stat().st_mtime - OLD_S,) * 2)


async def test_a_collection_that_began_before_the_pin_makes_the_backup_begin_again(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        await gateway.create()
        await gateway.append(5)

        async def collect(_: str) -> None:
            pin = tmp_path / "bucket" / PIN_KEY
            content = pin.read_bytes()
            pin.unlink()
            await gateway.uploads.round()
            pin.write_bytes(content)

        backup = await backed_up(tmp_path, asking(gateway), "wal/", collect)
    assert any(file.path.startswith("parts/") for file in backup.manifest.files)
    assert await ends_at(backup, tmp_path / "restored") == 5


async def test_a_backup_that_lost_its_pin_fails_and_leaves_that_of_the_other(tmp_path: Path) -> None:
    pin = tmp_path / "bucket" / PIN_KEY
    async with running(tmp_path) as gateway:
        await gateway.create()
        await gateway.append(5)
        await gateway.uploads.round()

        async def take_over(_: str) -> None:
            found = msgspec.json.decode(pin.read_bytes())
            pin.write_bytes(msgspec.json.encode({**found, "backup": "other", "host": "elsewhere"}))

        with pytest.raises(PinTaken, match="a backup on elsewhere has taken its place"):
            await backed_up(tmp_path, asking(gateway), "parts/", take_over)
    assert msgspec.json.decode(pin.read_bytes())["backup"] == "other"
    assert not list((tmp_path / "backups").glob("2*"))


async def test_a_gateway_that_is_taken_over_while_objects_are_copied(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        await gateway.create()
        await gateway.append(3)
        await gateway.uploads.round()
        await gateway.append(2)
        cut = await asyncio.to_thread(asking(gateway))
        shutil.copytree(tmp_path / "bucket", tmp_path / "later" / "bucket")
    # The later life of the same bucket: another gateway seals the session, appends, and uploads.
    later = tmp_path / "later"

    async def take_over(_: str) -> None:
        async with running(later, "node.id=1", *SHORT_LEASE) as taker:
            await taker.append(4)
            await taker.uploads.round()

    backup = await backed_up(later, lambda: cut, "parts/", take_over)
    assert await ends_at(backup, tmp_path / "restored") == 5


async def test_a_gateway_that_comes_at_the_moment_of_the_cut_spoils_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backups, "TRIES", 2)
    async with running(tmp_path) as gateway:
        await gateway.create()
        asked = asking(gateway)

        def without_one() -> BucketCut:
            cut = asked()
            return BucketCut(cut.taken_ms, cut.metadata_end, [])

        with pytest.raises(Moved, match="came or went"):
            await backed_up(tmp_path, without_one)

        def of_another() -> BucketCut:
            cut = asked()
            return msgspec.structs.replace(cut, logs=[HeldLog(1, cut.logs[0].session, "f" * 32, 0)])

        with pytest.raises(ControlError, match="has another bucket than file:///b"):
            await backed_up(tmp_path, of_another)
    assert list((tmp_path / "backups").glob("2*")) == []
    assert not (tmp_path / "bucket" / PIN_KEY).exists()


@pytest.mark.parametrize(("has_held", "asked"), [(True, MOST_HOLDS), (False, TRIES)])
async def test_gateways_stand_still_in_vain_three_times_at_most(
    tmp_path: Path, *, has_held: bool, asked: int
) -> None:
    cuts: list[BucketCut] = []

    def no_moment() -> BucketCut:
        cuts.append(BucketCut(0, 0, [], "node 3 gave no answer", has_held))
        return cuts[-1]

    async with running(tmp_path):
        with pytest.raises(BackupError if has_held else Moved, match="node 3 gave no answer"):
            await backed_up(tmp_path, no_moment)
    assert len(cuts) == asked
    assert not (tmp_path / "bucket" / PIN_KEY).exists()


async def test_later_backups_share_parts_by_their_names(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        await gateway.create(internal_segment_bytes=1000)
        for _ in range(3):
            await gateway.append(10)
        await gateway.uploads.round()
        first = await backed_up(tmp_path, asking(gateway))
        await gateway.append(10)
        await gateway.uploads.round()
        second = await backed_up(tmp_path, asking(gateway))
        full = await backed_up(tmp_path, asking(gateway), is_full=True, keep=2)
    assert full.removed == [Path(first.path).name]
    assert (full.manifest.copied_bytes, second.manifest.copied_bytes < second.manifest.size_bytes) == (
        full.manifest.size_bytes,
        True,
    )
    assert await ends_at(second, tmp_path / "restored") == 40


async def test_a_restored_cluster_has_no_gateway_and_new_producer_ids(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        await gateway.create()
        await gateway.call("init_producer_id", 4, transactional_id=None, transaction_timeout=1000)
        handed_out = gateway.gateway.services.topics.metadata_log.image.next_producer_id
        backup = await backed_up(tmp_path, asking(gateway))
    next_id = await restored_into(backup, tmp_path / "restored")
    assert next_id >= handed_out + LEAST_GAP
    image = image_of(await read_metadata(DirectoryObjects(tmp_path / "restored" / "bucket")))
    assert image.next_producer_id == next_id
    assert [broker.fenced for broker in image.brokers.by_id.values()] == [True]


async def test_a_restore_that_ended_early_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as gateway:
        await gateway.create()
        await gateway.append(3)
        await gateway.uploads.round()
        backup = await backed_up(tmp_path, asking(gateway))
    place = tmp_path / "restored"

    async def dead(*_: object) -> None:
        raise Died

    for step in ("_create", "_end_sessions"):
        with monkeypatch.context() as patch:
            patch.setattr(BucketRestore, step, dead)
            with pytest.raises(Died):
                await restored_into(backup, place)
        with pytest.raises(Exception, match="is not finished"):
            async with running(place):
                raise AssertionError
    assert await ends_at(backup, place) == 3
    with pytest.raises(ControlError, match="name an address that holds nothing"):
        await restored_into(backup, place)


@pytest.mark.parametrize("damage", ["missing", "other bytes"])
async def test_no_gateway_starts_from_a_damaged_backup(tmp_path: Path, damage: str) -> None:
    async with running(tmp_path) as gateway:
        await gateway.create()
        backup = await backed_up(tmp_path, asking(gateway))
    file = Path(backup.path) / "data" / backup.manifest.files[-1].path
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(BackupError, match="the backup is damaged"):
        await restored_into(backup, tmp_path / "restored")
    with pytest.raises(Exception, match="is not finished"):
        async with running(tmp_path / "restored"):
            raise AssertionError
