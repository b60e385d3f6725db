"""The power is cut before each operation of a partition's life; every possible state of the disk is
recovered.
"""

from __future__ import annotations

import pytest

from seqgate.log import StorageFailed
from seqgate.log.files.file_names import SNAPSHOT_SUFFIX
from tests.faults.crash_images import Image, images, left_by_power_cut
from tests.faults.directory_life import ROOT, failing_disk, new_disk, now_ms
from tests.faults.scenario import TOPIC, Life, Promises, check, check_producers, steps
from tests.faults.simulated_disk import SimulatedDisk
from tests.log.support import read_log

SAMPLES = 4
PARTS = 4


def live(life: Life) -> Life:
    for step in steps(life):
        step()
    return life


def moments() -> list[Image[Promises]]:
    life = Life(new_disk())
    return images(life.disk, lambda: live(life), life.promises.copy)


def recover_and_check(disk: SimulatedDisk, promises: Promises) -> None:
    life = Life(disk, promises)
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


def test_life_without_a_fault() -> None:
    life = live(Life(new_disk()))
    assert life.promises.durable_end_offset > 40
    assert life.promises.log_start_offset > 9
    assert life.disk.plan.operations > 150
    assert any("create" in operation and ".txnindex" in operation for operation in life.disk.log)
    recover_and_check(life.disk, life.promises)


@pytest.mark.parametrize("part", range(PARTS))
def test_power_cut_before_any_operation(part: int) -> None:
    seen: set[object] = set()
    for image in moments()[part::PARTS]:
        for left in left_by_power_cut(image, SAMPLES, seen):
            verify(left.described, left.disk, image.known.copy())
    assert len(seen) > 100


def verify(described: str, disk: SimulatedDisk, promises: Promises) -> None:
    try:
        recover_and_check(disk, promises)
    except Exception as error:
        raise AssertionError(f"{described}: {error!r}") from error


@pytest.mark.parametrize("kind", ["EIO", "ENOSPC", "short"])
@pytest.mark.parametrize("part", range(PARTS))
def test_one_operation_fails_and_the_partition_is_reopened(kind: str, part: int) -> None:
    life = live(Life(new_disk()))
    for fail_at in range(1 + part, life.disk.plan.operations + 1, PARTS):
        fail_once(Life(failing_disk(fail_at, kind)), fail_at)


def fail_once(life: Life, fail_at: int) -> None:
    try:
        live_on(life)
        check_promises_after(life)
        # A promise made after the failure must hold on the disk, not only in the page cache.
        life.disk.plan.heal()
        life.disk.power_cut(None)
        recover_and_check(life.disk, life.promises.copy())
    except Exception as error:
        raise AssertionError(f"operation {fail_at} ({life.disk.log[fail_at - 1]}): {error!r}") from error


def live_on(life: Life) -> None:
    """Run the steps of the life. After a failed step, restart or reopen, and try the step again."""
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
            read_log(log, log.log_start_offset, 1, upper_bound=log.log_end_offset)
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
def test_the_snapshot_that_recovery_used_survives_a_power_cut(seed: int, restarted: bool) -> None:
    """A roll wrote the snapshot, and no flush followed. Once the segment before it is deleted, only the
    snapshot holds this state.
    """
    life = Life(new_disk())
    life.open()
    life.append(0)
    life.flush()
    life.log.roll(now_ms())
    life.append(0)
    if restarted:
        life.stop(clean=False)
        life.open()
    else:
        life.log.go_offline("a test says so")
        life.reopen()
    life.log.advance_high_watermark(life.log.log_end_offset)
    life.delete_records(1)
    life.disk.power_cut_by_seed(seed)
    second = Life(life.disk, life.promises)
    second.open()
    check_producers(second.log, life.promises.written)


def test_a_spoiled_snapshot_is_replaced_before_segments_go() -> None:
    """The producers of the spoiled snapshot can still be read from the log, until segments are deleted."""
    life = Life(new_disk())
    life.open()
    life.append(0)
    life.flush()
    life.log.roll(now_ms())
    life.append(1)
    life.flush()
    life.stop(clean=False)
    (snapshot,) = (path for path in life.disk.files(str(ROOT)) if path.endswith(SNAPSHOT_SUFFIX))
    life.disk.put(snapshot, b"")
    life.open()
    life.log.advance_high_watermark(life.log.log_end_offset)
    life.delete_records(1)
    life.stop(clean=False)
    life.open()
    check_producers(life.log, life.promises.written)
