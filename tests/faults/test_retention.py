"""Rolling and retention on a disk where any one operation fails, or the power fails before it.

Segments roll by time, and are removed by size, by DeleteRecords, and by time with the active one, either at
once or in the steps of the gateway's job.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from seqgate.log import StorageFailed
from tests.faults.crash_images import images, left_by_power_cut
from tests.faults.directory_life import failing_disk, new_disk
from tests.faults.scenario import Life, check
from tests.faults.test_power_cut import check_promises_after, recover_and_check, recover_in_place, verify

SAMPLES = 2
PARTS = 2


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
        lambda: life.retain(retention_bytes=500),
        *some(1),
        lambda: life.delete_records(life.log.high_watermark - 1),
        life.clean_up,
        lambda: life.end(11, commit=True),
        life.flush,
        lambda: life.retain(retention_bytes=0),
        *some(0, 1),
        life.flush,
        lambda: life.retain(retention_ms=1),
        life.clean_up,
        *some(2),
        life.flush,
        lambda: life.retain(retention_ms=1),
        *some(0, 1),
        life.flush,
        life.stop,
    ]


def live(life: Life) -> Life:
    for step in steps(life):
        step()
    return life


def test_the_life_without_a_fault() -> None:
    life = live(Life(new_disk()))
    done = [operation.split()[0] for operation in life.disk.log]
    assert done.count("rename") > 40
    assert done.count("unlink") > 6
    assert life.promises.log_start_offset >= life.promises.durable_end_offset - 2
    recover_and_check(life.disk, life.promises)


@pytest.mark.parametrize("part", range(PARTS))
def test_power_cut_before_any_operation(part: int) -> None:
    life = Life(new_disk())
    seen: set[object] = set()
    for image in images(life.disk, lambda: live(life), life.promises.copy)[part::PARTS]:
        for left in left_by_power_cut(image, SAMPLES, seen):
            verify(left.described, left.disk, image.known.copy())
    assert len(seen) > 100


@pytest.mark.parametrize(("kind", "names"), [("EIO", ""), ("short", "write")])
def test_one_operation_fails_and_the_partition_is_reopened(kind: str, names: str) -> None:
    for fail_at, operation in enumerate(live(Life(new_disk())).disk.log, 1):
        if not operation.startswith(names):
            continue
        life = Life(failing_disk(fail_at, kind))
        try:
            live_on(life)
            check_promises_after(life)
        except Exception as error:
            raise AssertionError(f"operation {fail_at} ({operation}): {error!r}") from error


def live_on(life: Life) -> None:
    """Run the steps. After a failed step, restart or reopen. Later steps do not depend on the failed one."""
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


def test_records_and_producers_of_a_log_that_retention_emptied() -> None:
    life = Life(new_disk())
    life.open()
    for producer in (0, 1, 2, 0):
        life.append(producer)
    life.flush()
    life.retain(retention_ms=1)
    assert life.log.log_start_offset == life.log.log_end_offset == 4
    life.stop(clean=False)
    life.open()
    check(life.log, life.promises)
