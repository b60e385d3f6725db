"""The power goes before any one operation of a partition's life; every state of the disk is recovered from."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from log import Storage, StorageFailed
from tests.faults.directory_life import now_ms
from tests.faults.disk_faults import PowerCut
from tests.faults.faulty_storage import FaultyStorage
from tests.faults.scenario import TOPIC, Life, Promises, check, check_producers, steps

SEEDS = 5


def live_until(root: Path, fail_at: int, kind: str = "cut") -> tuple[FaultyStorage, Life]:
    root.mkdir()
    storage = FaultyStorage(root, fail_at=fail_at, kind=kind)
    life = Life(storage, root)
    try:
        for step in steps(life):
            step()
    except PowerCut:
        pass
    return storage, life


def operations(tmp_path: Path) -> int:
    storage, _ = live_until(tmp_path / "counted", 0)
    return storage.operations


def recover_and_check(root: Path, promises: Promises) -> None:
    life = Life(Storage(), root, promises)
    life.open()
    check(life.log, promises)
    promises.cut(life.log.log_end_offset)
    for producer_id in (0, 1, 2):
        life.append(producer_id, 2, leader_epoch=9)
    life.flush()
    check(life.log, promises)
    life.stop()
    life.open()
    assert life.directory is not None
    assert life.directory.was_clean
    check(life.log, promises)
    life.stop(clean=False)


def copy_of(promises: Promises) -> Promises:
    return Promises(
        written=list(promises.written),
        durable_end_offset=promises.durable_end_offset,
        log_start_offset=promises.log_start_offset,
        asked_log_start_offset=promises.asked_log_start_offset,
        sequences=dict(promises.sequences),
    )


def test_life_without_a_fault(tmp_path: Path) -> None:
    storage, life = live_until(tmp_path / "data", 0)
    assert life.promises.durable_end_offset > 40
    assert life.promises.log_start_offset > 9
    assert storage.operations > 150
    assert any("write_file" in operation and ".txnindex" in operation for operation in storage.log)
    recover_and_check(tmp_path / "data", life.promises)


@pytest.mark.parametrize("part", range(8))
def test_power_cut_before_any_operation(tmp_path: Path, part: int) -> None:
    for fail_at in range(1 + part, operations(tmp_path) + 2, 8):
        storage, life = live_until(tmp_path / f"{fail_at}", fail_at)
        for seed in range(SEEDS):
            image = tmp_path / f"{fail_at}-{seed}"
            storage.power_cut(image, seed if seed < 2 else seed + SEEDS * fail_at)
            try:
                recover_and_check(image, copy_of(life.promises))
            except Exception as error:
                where = storage.log[-1] if storage.log else ""
                raise AssertionError(f"operation {fail_at} ({where}), seed {seed}: {error!r}") from error
            shutil.rmtree(image)
        shutil.rmtree(tmp_path / f"{fail_at}")


@pytest.mark.parametrize("kind", ["EIO", "ENOSPC", "short"])
@pytest.mark.parametrize("part", range(4))
def test_one_operation_fails_and_the_partition_is_reopened(tmp_path: Path, kind: str, part: int) -> None:
    for fail_at in range(1 + part, operations(tmp_path) + 1, 4):
        root = tmp_path / f"{fail_at}"
        root.mkdir()
        storage = FaultyStorage(root, fail_at=fail_at, kind=kind)
        life = Life(storage, root)
        try:
            live_on(life)
            check_promises_after(life)
            # What was promised after the failure must hold on the disk too, not only in the page cache.
            image = tmp_path / f"{fail_at}-image"
            storage.power_cut(image, 0)
            recover_and_check(image, copy_of(life.promises))
        except Exception as error:
            raise AssertionError(f"operation {fail_at} ({storage.log[fail_at - 1]}): {error!r}") from error
        shutil.rmtree(root)
        shutil.rmtree(image)


def live_on(life: Life) -> None:
    """The steps of the life; one that fails is followed by a restart or a reopening, and tried again."""
    for step in steps(life):
        try:
            step()
        except (StorageFailed, OSError):
            recover_in_place(life)
            if step in {life.open, life.flush, life.stop}:
                retry(life, step)


def retry(life: Life, step: object) -> None:
    if step == life.open and life.directory is None:
        life.open()
    elif step == life.flush:
        life.flush()
    elif step == life.stop and life.directory is not None:
        life.stop()


def recover_in_place(life: Life) -> None:
    directory = life.directory
    log = directory.get(TOPIC, 0) if directory is not None else None
    if log is None:
        if directory is not None:
            directory.close(clean=False)
        life.directory = None
        life.open()
    elif log.offline:
        with pytest.raises(StorageFailed):
            log.read(log.log_start_offset, 1, upper_bound=log.log_end_offset)
        life.reopen()
    life.promises.cut(life.log.log_end_offset)
    assert life.log.recovery_point == life.log.log_end_offset
    life.promises.durable_end_offset = max(life.promises.durable_end_offset, life.log.recovery_point)


def check_promises_after(life: Life) -> None:
    life.open()
    check(life.log, life.promises)
    life.stop(clean=False)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_the_snapshot_that_recovery_used_survives_a_power_cut(
    tmp_path: Path, seed: int, restarted: bool
) -> None:
    """It was written at a roll and never flushed; after the segment before it is deleted, nothing else remembers."""
    root = tmp_path / "before"
    root.mkdir()
    storage = FaultyStorage(root)
    life = Life(storage, root)
    life.open()
    life.append(0)
    life.log.roll(now_ms())
    life.append(0)
    if restarted:
        life.stop(clean=False)
        life.open()
    else:
        life.log.take_offline("a test says so")
        life.reopen()
    life.log.advance_high_watermark(life.log.log_end_offset)
    life.delete_records(1)
    after = tmp_path / "after"
    storage.power_cut(after, seed)
    survivor = FaultyStorage(after)
    survivor.adopt()
    second = Life(survivor, after, life.promises)
    second.open()
    check_producers(second.log, life.promises.written)


def test_a_spoiled_snapshot_is_replaced_before_segments_go(tmp_path: Path) -> None:
    """Its producers are in the log still, but not for long."""
    root = tmp_path / "data"
    root.mkdir()
    life = Life(Storage(), root)
    life.open()
    life.append(0)
    life.log.roll(now_ms())
    life.append(1)
    life.flush()
    life.stop(clean=False)
    (snapshot,) = (root / f"{TOPIC}-0").glob("*.snapshot")
    snapshot.write_bytes(b"")
    life.open()
    life.log.advance_high_watermark(life.log.log_end_offset)
    life.delete_records(1)
    life.stop(clean=False)
    life.open()
    check_producers(life.log, life.promises.written)
