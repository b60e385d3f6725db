"""Rolling and retention on a disk that fails at any one operation, or loses its power before it.

Segments roll by time, go by size, by DeleteRecords and by time with the active one, at once or as the gateway's job does it.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from log import StorageFailed
from tests.faults.disk_faults import PowerCut
from tests.faults.faulty_storage import FaultyStorage
from tests.faults.scenario import Life, Promises, check
from tests.faults.test_power_cut import check_promises_after, copy_of, recover_and_check, recover_in_place

SEEDS = 2
PARTS = 4


def steps(life: Life) -> list[Callable[[], object]]:
    def some(*producers: int) -> list[Callable[[], object]]:
        return [lambda p=producer: life.append(p) for producer in producers]

    return [
        life.open,
        *some(0, 1, 2),
        lambda: life.send(10),
        lambda: life.end(10, commit=False),
        life.flush,
        life.roll_by_time,
        *some(0, 1),
        life.roll_by_time,
        *some(2, 2, 0),
        lambda: life.send(11),
        lambda: life.log.roll(0),
        life.flush,
        lambda: life.retain(in_a_thread=True, retention_bytes=500),
        *some(1),
        lambda: life.delete_records(life.log.high_watermark - 1),
        life.clean_up,
        lambda: life.end(11, commit=True),
        life.flush,
        lambda: life.retain(retention_bytes=0),
        *some(0, 1),
        life.flush,
        lambda: life.retain(in_a_thread=True, retention_ms=1),
        life.clean_up,
        *some(2),
        life.flush,
        lambda: life.retain(retention_ms=1),
        *some(0, 1),
        life.flush,
        life.stop,
    ]


def live(life: Life) -> None:
    for step in steps(life):
        step()


def life_at(root: Path, fail_at: int = 0, kind: str = "EIO") -> Life:
    root.mkdir()
    return Life(FaultyStorage(root, fail_at=fail_at, kind=kind), root)


def faulty(life: Life) -> FaultyStorage:
    assert isinstance(life.storage, FaultyStorage)
    return life.storage


def operations(tmp_path: Path) -> list[str]:
    life = life_at(tmp_path / "counted")
    live(life)
    return faulty(life).log


def test_the_life_without_a_fault(tmp_path: Path) -> None:
    life = life_at(tmp_path / "data")
    live(life)
    done = [operation.split()[0] for operation in faulty(life).log]
    assert done.count("rename") > 40
    assert done.count("delete") > 6
    assert life.promises.log_start_offset >= life.promises.durable_end_offset - 2
    recover_and_check(tmp_path / "data", life.promises)


@pytest.mark.parametrize("part", range(PARTS))
def test_power_cut_before_any_operation(tmp_path: Path, part: int) -> None:
    for fail_at in range(1 + part, len(operations(tmp_path)) + 2, PARTS):
        life = life_at(tmp_path / f"{fail_at}", fail_at, "cut")
        with contextlib.suppress(PowerCut):
            live(life)
        for seed in range(SEEDS):
            image = tmp_path / f"{fail_at}-{seed}"
            faulty(life).power_cut(image, seed and 1 + fail_at)
            described = f"operation {fail_at} ({(faulty(life).log or [''])[-1]}), seed {seed}"
            verify(described, image, copy_of(life.promises))


@pytest.mark.parametrize(("kind", "names"), [("EIO", ""), ("short", "write")])
def test_one_operation_fails_and_the_partition_is_reopened(tmp_path: Path, kind: str, names: str) -> None:
    for fail_at, operation in enumerate(operations(tmp_path), 1):
        if not operation.startswith(names):
            continue
        life = life_at(tmp_path / f"{fail_at}", fail_at, kind)
        try:
            live_on(life)
            check_promises_after(life)
        except Exception as error:
            raise AssertionError(f"operation {fail_at} ({operation}): {error!r}") from error
        shutil.rmtree(tmp_path / f"{fail_at}")


def live_on(life: Life) -> None:
    """A step that fails is followed by a restart or a reopening; what it left undone, the later ones can do without."""
    for step in steps(life):
        try:
            step()
        except (StorageFailed, OSError):
            recover_in_place(life)
        except AssertionError as error:
            if "nothing to remove" not in str(error):
                raise
    if life.directory is not None:
        life.stop()


def verify(described: str, image: Path, promises: Promises) -> None:
    try:
        recover_and_check(image, promises)
    except Exception as error:
        raise AssertionError(f"{described}: {error!r}") from error
    shutil.rmtree(image)


def test_records_and_producers_of_a_log_that_retention_emptied(tmp_path: Path) -> None:
    life = life_at(tmp_path / "data")
    life.open()
    for producer in (0, 1, 2, 0):
        life.append(producer)
    life.flush()
    life.retain(retention_ms=1)
    assert life.log.log_start_offset == life.log.log_end_offset == 4
    life.stop(clean=False)
    life.open()
    check(life.log, life.promises)
