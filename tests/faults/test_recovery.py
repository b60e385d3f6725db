"""A start fails during its recovery, by another power cut or a failed read or write. The next start has all
records.
"""

from __future__ import annotations

import random

import pytest

from seqgate.log import StorageFailed
from tests.faults.crash_images import Image, images, left_by_power_cut
from tests.faults.directory_life import new_disk
from tests.faults.scenario import Life, Promises, check
from tests.faults.simulated_disk import SimulatedDisk
from tests.faults.test_power_cut import live, live_on, moments, recover_and_check, verify

EVERY = 48
"""Of this number of moments of a life, each parametrized test takes one."""
PARTS = 2
READS_EVERY = 3


def crashed(part: int) -> list[tuple[Image[Promises], SimulatedDisk]]:
    """Yield moments of a life, with what a power cut leaves of the disk."""
    found = []
    for image in moments()[part * EVERY // PARTS :: EVERY]:
        left = image.disk.copy()
        left.power_cut(random.Random(image.number))
        found.append((image, left))
    return found


def opened(disk: SimulatedDisk, promises: Promises) -> Life:
    life = Life(disk, promises)
    life.open()
    return life


@pytest.mark.parametrize("part", range(PARTS))
def test_the_power_goes_again(part: int) -> None:
    seen: set[object] = set()
    for image, left in crashed(part):
        again = left.copy()
        for second in images(
            again, lambda image=image, again=again: opened(again, image.known.copy()), lambda: 0
        ):
            for last in left_by_power_cut(second, 0, seen):
                described = f"operation {image.number} ({image.operation}), then {last.described}"
                verify(described, last.disk, image.known.copy())
    assert len(seen) > 50


@pytest.mark.parametrize(("kind", "part"), [("EIO", 0), ("ENOSPC", 1)])
def test_an_operation_fails(kind: str, part: int) -> None:
    for image, left in crashed(part):
        counted = left.copy()
        opened(counted, image.known.copy())
        for fail_at in range(1 + part, counted.plan.operations + 1, PARTS):
            again = left.copy()
            again.plan.fail_at, again.plan.kind = fail_at, kind
            fail_and_start_again(
                f"{image.operation}, operation {fail_at} of the recovery", again, image.known
            )


@pytest.mark.parametrize("part", range(PARTS))
def test_a_read_fails(part: int) -> None:
    """Recovery must not take unreadable data for damaged: it truncates nothing."""
    for image, left in crashed(part):
        counted = left.copy()
        opened(counted, image.known.copy())
        for fail_at in range(1 + part, counted.plan.reads + 1, PARTS):
            again = left.copy()
            again.plan.fail_read_at = fail_at
            fail_and_start_again(f"{image.operation}, read {fail_at} of the recovery", again, image.known)


def fail_and_start_again(described: str, disk: SimulatedDisk, known: Promises) -> None:
    """Start on a disk that fails. All records that this start serves are right, and the next start has all of
    them.
    """
    promises = known.copy()
    life = Life(disk, promises)
    try:
        try:
            life.open()
            check(life.log, promises)
        except (OSError, StorageFailed):
            pass
        disk.plan.heal()
        disk.power_cut(None)
        recover_and_check(disk, known.copy())
    except Exception as error:
        raise AssertionError(f"{described}: {error!r}") from error


@pytest.mark.parametrize("part", range(PARTS))
def test_any_read_of_a_life_fails(part: int) -> None:
    counted = live(Life(new_disk()))
    for fail_at in range(1 + part, counted.disk.plan.reads + 1, READS_EVERY * PARTS):
        life = Life(new_disk())
        life.disk.plan.fail_read_at = fail_at
        try:
            live_on(life)
            life.disk.plan.heal()
            life.open()
            check(life.log, life.promises)
            life.stop(clean=False)
            life.disk.power_cut(None)
            recover_and_check(life.disk, life.promises.copy())
        except Exception as error:
            raise AssertionError(f"read {fail_at}: {error!r}") from error
