"""The log remembers producer names on a disk where any one operation fails, or the power fails before it.

Segments roll and are removed, snapshots of names are written, flushes fail, the setting is turned off and on.
After each recovery, acknowledged records are stored and their names known; lost records are not.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from seqgate.log import StorageFailed
from tests.faults.crash_images import images, left_by_power_cut
from tests.faults.directory_life import failing_disk, new_disk
from tests.faults.simulated_disk import SimulatedDisk
from tests.properties.names_life import NamesLife

SAMPLES = 2


def steps(life: NamesLife) -> list[Callable[[], object]]:
    return [
        life.begin,
        lambda: life.send([(3, 0), (3, 0)]),
        life.flush,
        life.toggle,
        lambda: life.send([(0, 0), (1, 0), (0, 0)]),
        lambda: life.send([(0, 2), (0, 1), (0, 0)], codec="zstd"),
        life.flush,
        lambda: life.send([(2, 0)], producer_id=11),
        lambda: life.send([(0, 1), (0, 1)]),
        life.capture,
        lambda: life.flush(lambda: life.send([(1, 1), (1, 0)], producer_id=1)),
        life.roll,
        lambda: life.end(11, commit=True),
        lambda: life.send([(2, 1), (2, 0)]),
        life.flush,
        life.checkpoint,
        lambda: life.send([(0, 0)]),
        life.flush,
        lambda: life.delete_records(100),
        lambda: life.send([(0, 3), (0, 0)], producer_id=2),
        life.flush,
        lambda: life.delete_records(100),
        life.toggle,
        lambda: life.send([(0, 0), (1, 0)]),
        lambda: life.send([(2, 0)], producer_id=12),
        life.flush,
        life.toggle,
        lambda: life.send([(0, 1), (0, 0)]),
        lambda: life.end(12, commit=False),
        life.flush,
        lambda: life.retain(0),
        lambda: life.send([(2, 2), (2, 0), (1, 1)]),
        life.flush,
        life.clean_up,
        lambda: life.stop(clean=True),
        lambda: life.send([(0, 2), (2, 1), (1, 0)]),
        life.flush,
    ]


def new_life(disk: SimulatedDisk) -> NamesLife:
    return NamesLife(disk, is_on=False)


def live(life: NamesLife) -> NamesLife:
    for step in steps(life):
        step()
        life.compare()
    return life


class Known:
    """What a life has written by one moment, from which another life can continue."""

    def __init__(self, life: NamesLife) -> None:
        self._life = life
        self._held = {
            name: copy.deepcopy(value)
            for name, value in vars(life).items()
            if name not in {"disk", "storage", "directory"}
        }

    def __repr__(self) -> str:
        return repr((self._held["acknowledged_end_offset"], self._held["history"].batches))

    def on(self, disk: SimulatedDisk) -> NamesLife:
        life = new_life(disk)
        vars(life).update(copy.deepcopy(self._held))
        return life


def go_on(life: NamesLife) -> None:
    """Send everything again from the first record, and some new records."""
    life.kill()
    if not life.topic_config.deduplicates:
        life.toggle()
    for application in range(3):
        life.send([(application, 50), (application, 1), (application, 0)])
    life.flush()
    life.compare()
    life.stop(clean=True)
    life.replay(1 << 30)
    life.compare()


def test_the_life_without_a_fault() -> None:
    life = live(new_life(new_disk()))
    done = [operation for operation in life.disk.log if ".names" in operation]
    assert len(done) > 20
    assert life.counts["duplicates"] > 5
    assert life.log.log_start_offset > 5
    go_on(life)


def test_power_cut_before_any_operation() -> None:
    life = new_life(new_disk())
    seen: set[object] = set()
    for image in images(life.disk, lambda: live(life), lambda: Known(life)):
        for left in left_by_power_cut(image, SAMPLES, seen):
            try:
                go_on(image.known.on(left.disk))
            except Exception as error:
                raise AssertionError(f"{left.described}: {error!r}") from error
    assert len(seen) > 100


@pytest.mark.parametrize("kind", ["EIO", "short"])
def test_one_operation_fails_and_the_partition_is_reopened(kind: str) -> None:
    for fail_at, operation in enumerate(live(new_life(new_disk())).disk.log, 1):
        if kind == "short" and not operation.startswith("write"):
            continue
        life = new_life(failing_disk(fail_at, kind))
        try:
            live_on(life)
            life.disk.plan.heal()
            life.disk.power_cut(None)
            go_on(life)
        except Exception as error:
            raise AssertionError(f"operation {fail_at} ({operation}): {error!r}") from error


def live_on(life: NamesLife) -> None:
    """Run the steps. After a failed step, reopen the partition or start again.

    Later steps do not depend on the failed one.
    """
    for step in steps(life):
        try:
            step()
            life.compare()
        except (StorageFailed, OSError):
            if life.directory is None or life.directory.opened(life.topic, 0) is None:
                life.kill()
            else:
                life.recover()
