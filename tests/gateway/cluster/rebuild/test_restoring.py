"""Some partitions are restored from ended logs while others go on, and other gateways collect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from uuid import UUID

import pytest

from seqgate.gateway.cluster.parts.manifest import PartitionKey
from seqgate.gateway.cluster.rebuild.history import RestoredState, restore
from seqgate.gateway.cluster.wal.ended import EndedSession
from seqgate.gateway.cluster.wal.sessions import encode_boundary
from seqgate.gateway.cluster.wal.wal_object import (
    CorruptWalObject,
    DataRow,
    FileRow,
    WalObject,
    WalRow,
    boundary_key,
    encode,
    object_key,
)
from seqgate.log import Storage
from seqgate.log.files.file_names import LOG_SUFFIX, offset_name
from seqgate.log.rebuilding import StagedPartitions
from tests.gateway.cluster.rebuild.test_rebuild import FLIGHTS, GONE, appended, batch, manifest, run
from tests.support.batches import Batch, Record
from tests.support.simulated_objects import SimulatedObjects

KEY, OTHER = PartitionKey(FLIGHTS, 0), PartitionKey(GONE, 0)


class Hooked(SimulatedObjects):
    """A store that calls back once, before a key is read."""

    key = ""
    hook: Callable[[], None] = staticmethod(lambda: None)

    async def get_end(self, key: str, size_bytes: int) -> bytes:
        if key == self.key:
            self.key = ""
            self.hook()
        return await super().get_end(key, size_bytes)


def put(objects: SimulatedObjects, session: int, *puts: list[tuple[WalRow, bytes]]) -> EndedSession:
    nonce = bytes([session] * 16)
    for seq, rows in enumerate(puts):
        made = WalObject(1, session, seq, nonce, [row for row, _ in rows], [data for _, data in rows])
        objects.bucket.create(object_key(1, session, seq), b"".join(encode(made)), 0)
    return EndedSession(1, session, nonce, len(puts))


def in_epoch(epoch: int, first: int, end: int, position: int) -> tuple[WalRow, bytes]:
    row, data = appended(FLIGHTS, first, end, 0, position)
    assert isinstance(row, DataRow)
    return row._replace(leader_epoch=epoch), data


def note(epoch: int, content: bytes) -> tuple[WalRow, bytes]:
    return FileRow(FLIGHTS, 0, "notes", len(content), epoch), content


def restored(tmp_path: Path, objects: SimulatedObjects, *ended: EndedSession) -> tuple[RestoredState, Path]:
    staged = StagedPartitions(Storage(), tmp_path)

    async def work() -> RestoredState:
        return await restore(objects, ended, staged, [KEY, OTHER])

    found = run(work)
    return found, Path(staged.complete(*KEY).path)


def test_rows_of_later_leaders_in_earlier_logs(tmp_path: Path) -> None:
    """Session 2 led in epoch 2, after session 5 in epoch 1; its log is read first."""
    objects, size = SimulatedObjects(), len(batch(0))
    ended = [
        put(objects, 1, [in_epoch(0, 0, 1, 0), note(0, b"first")]),
        put(objects, 2, [in_epoch(2, 2, 3, 2 * size), note(2, b"last")], [in_epoch(2, 3, 4, 3 * size)]),
        put(objects, 5, [in_epoch(1, 1, 2, size), note(1, b"middle")]),
    ]
    found, path = restored(tmp_path, objects, *ended)
    assert not found.failures
    assert (path / offset_name(0, LOG_SUFFIX)).read_bytes() == b"".join(map(batch, range(4)))
    assert (path / "notes").read_bytes() == b"last"
    assert found.with_rows == {KEY}


def written_by(epoch: int, offset: int) -> bytes:
    """Return a batch by which one sees who wrote it; all leaders have the first one in common."""
    return batch(0) if offset == 0 else Batch((Record(b"leader %d" % epoch),), base_offset=offset).encode()


def by_leader(epoch: int, first: int, end: int) -> tuple[WalRow, bytes]:
    """Return a row with a batch for each offset."""
    data = b"".join(written_by(epoch, offset) for offset in range(first, end))
    position = sum(len(written_by(epoch, offset)) for offset in range(first))
    return DataRow(FLIGHTS, 0, epoch, first, end, 0, position, len(data)), data


@pytest.mark.parametrize("end", [3, 4, 6])
@pytest.mark.parametrize("numbers", [(1, 2), (2, 1)])
def test_of_rows_of_two_leaders_those_of_the_later_one_stay(
    tmp_path: Path, numbers: tuple[int, int], end: int
) -> None:
    """The leader of epoch 0 went on writing after that of epoch 1 had begun at the offset 2."""
    objects, (earlier, later) = SimulatedObjects(), numbers
    early = [[by_leader(0, 0, 2), note(0, b"early")], [by_leader(0, 2, 4), note(0, b"too late")]]
    ended = [put(objects, earlier, *early), put(objects, later, [by_leader(1, 2, end), note(1, b"last")])]
    found, path = restored(tmp_path, objects, *sorted(ended, key=lambda each: each.session))
    assert not found.failures
    expected = [written_by(0, 0), written_by(0, 1), *(written_by(1, offset) for offset in range(2, end))]
    assert (path / offset_name(0, LOG_SUFFIX)).read_bytes() == b"".join(expected)
    assert (path / "notes").read_bytes() == b"last"


@pytest.mark.parametrize("numbers", list(permutations(range(3))))
@pytest.mark.parametrize("has_manifest", [False, True])
def test_of_rows_of_three_leaders_no_superseded_one_fills_a_gap(
    tmp_path: Path, numbers: tuple[int, int, int], has_manifest: bool
) -> None:
    objects = SimulatedObjects()
    if has_manifest:
        manifest(objects, 1)
    ended = [
        put(objects, numbers[0], [by_leader(0, 0, 2)], [by_leader(0, 2, 3)], [by_leader(0, 3, 5)]),
        put(objects, numbers[1], [by_leader(1, 2, 3)]),
        put(objects, numbers[2], [by_leader(2, 3, 4)]),
    ]
    found, path = restored(tmp_path, objects, *sorted(ended, key=lambda each: each.session))
    assert not found.failures
    expected = [written_by(epoch, offset) for offset, epoch in enumerate((0, 0, 1, 2))]
    assert (path / offset_name(0, LOG_SUFFIX)).read_bytes() == b"".join(expected)
    assert found.with_rows == {KEY}


def test_what_is_collected_meanwhile_is_in_a_manifest(tmp_path: Path) -> None:
    objects, size = Hooked(), len(batch(0, 2))
    ended = put(objects, 1, [appended(FLIGHTS, 0, 2)], [appended(FLIGHTS, 2, 4, 0, size)])

    def collect() -> None:
        manifest(objects, 4)
        objects.bucket.create(boundary_key(1, 1), encode_boundary(2), 0)
        for seq in range(2):
            objects.bucket.delete(object_key(1, 1, seq), 0)

    objects.key, objects.hook = object_key(1, 1, 1), collect
    found, path = restored(tmp_path, objects, ended)
    assert found.manifests[KEY].end_offset == 4
    assert not found.with_rows
    assert (path / offset_name(0, LOG_SUFFIX)).exists()


def test_a_missing_object_above_the_boundary_is_damage_and_leaves_nothing(tmp_path: Path) -> None:
    objects = SimulatedObjects()
    ended = put(objects, 1, [appended(FLIGHTS, 0, 2)], [appended(GONE, 0, 2)])
    objects.bucket.delete(object_key(1, 1, 1), 0)
    with pytest.raises(CorruptWalObject, match="is missing"):
        restored(tmp_path, objects, ended)
    assert not list(tmp_path.iterdir())


def test_damaged_data_concerns_its_partition_only(tmp_path: Path) -> None:
    objects = SimulatedObjects()
    ended = put(objects, 1, [appended(FLIGHTS, 0, 2), appended(GONE, 0, 2)])
    key = object_key(1, 1, 0)
    content = bytearray(objects.bucket.get(key))
    content[8 + len(batch(0, 2)) + 20] ^= 1
    objects.bucket.delete(key, 0)
    objects.bucket.create(key, bytes(content), 0)
    found, path = restored(tmp_path, objects, ended)
    assert list(found.failures) == [OTHER]
    assert (path / offset_name(0, LOG_SUFFIX)).read_bytes() == batch(0, 2)


def test_only_rows_of_the_partitions_are_read(tmp_path: Path) -> None:
    objects = SimulatedObjects()
    elsewhere = UUID(int=77)
    ended = put(objects, 1, *([appended(elsewhere, offset, offset + 1, offset)] for offset in range(20)))
    found, _ = restored(tmp_path, objects, ended)
    assert (found.size_bytes, found.objects) == (0, 20)


def test_a_restore_that_is_cancelled_waits_for_the_thread_that_writes(tmp_path: Path) -> None:
    """Otherwise the thread would write what is being discarded."""
    objects = SimulatedObjects()
    manifest(objects, 2)

    async def work() -> None:
        begun, may_write, written = asyncio.Event(), asyncio.Event(), list[bool]()

        async def slowly(write: Callable[[], None]) -> None:
            begun.set()
            await may_write.wait()
            write()
            written.append(True)

        async def run_files(write: Callable[[], None]) -> None:
            running = asyncio.ensure_future(slowly(write))
            try:
                await asyncio.shield(running)
            except asyncio.CancelledError:
                await asyncio.wait([running])
                raise

        staged = StagedPartitions(Storage(), tmp_path)
        restoring = asyncio.ensure_future(restore(objects, [], staged, [KEY, OTHER], run_files))
        await begun.wait()
        restoring.cancel()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not restoring.done()
        may_write.set()
        await asyncio.wait([restoring])
        assert restoring.cancelled()
        assert written == [True]
        assert not staged.staged

    run(work)
    assert not list(tmp_path.iterdir())
