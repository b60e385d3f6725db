from __future__ import annotations

import struct
from pathlib import Path

import pytest

from seqgate.log import PartitionLog
from seqgate.log.segments.indexes import OFFSET_ENTRY, TIME_ENTRY
from tests.log.support import NOW_MS, batch, fill, flush, offsets_read, open_log, read_log


def stopped(tmp_path: Path) -> tuple[PartitionLog, Path]:
    """Return the directory of a log with several segments and durable indexes, and its first segment's file
    name without suffix.
    """
    log = open_log(tmp_path / "log")
    for number in range(30):
        log.append(batch(timestamp=NOW_MS + 10 * number), now_ms=NOW_MS)
    flush(log)
    assert len(log.segments) > 2
    log.close(clean=False)
    return log, tmp_path / "log" / f"{0:020d}"


def change(path: Path, entry: struct.Struct, number: int, **fields: int) -> None:
    content = bytearray(path.read_bytes())
    values = list(entry.unpack_from(content, number * entry.size))
    for name, value in fields.items():
        values[["first", "second"].index(name)] += value
    entry.pack_into(content, number * entry.size, *values)
    path.write_bytes(content)


@pytest.mark.parametrize("field", ["first", "second"])
def test_an_entry_that_points_elsewhere(tmp_path: Path, field: str) -> None:
    _, name = stopped(tmp_path)
    change(name.with_suffix(".index"), OFFSET_ENTRY, 0, **{field: -1})
    log = open_log(tmp_path / "log", recovery_point=30)
    assert offsets_read(log, 3) == list(range(3, 30))
    for offset in range(30):
        assert read_log(log, offset, 1, upper_bound=30)[:8] == offset.to_bytes(8, "big")


@pytest.mark.parametrize("change_ms", [-5, 5, 1 << 40])
def test_a_timestamp_that_is_not_the_batch_s(tmp_path: Path, change_ms: int) -> None:
    _, name = stopped(tmp_path)
    path = name.with_suffix(".timeindex")
    change(path, TIME_ENTRY, len(path.read_bytes()) // TIME_ENTRY.size - 1, first=change_ms)
    log = open_log(tmp_path / "log", recovery_point=30)
    for number in range(30):
        found = log.first_not_before(NOW_MS + 10 * number)
        assert found is not None
        assert found.offset == number
    found = log.first_of_largest_timestamp()
    assert found is not None
    assert found.offset == 29


def test_a_young_segment_is_not_deleted_for_an_old_one(tmp_path: Path) -> None:
    before, name = stopped(tmp_path)
    path = name.with_suffix(".timeindex")
    change(path, TIME_ENTRY, len(path.read_bytes()) // TIME_ENTRY.size - 1, first=-9)
    log = open_log(tmp_path / "log", recovery_point=30)
    assert log.segments.segments[0].largest_timestamp() == before.segments.segments[0].largest_timestamp()


def test_a_segment_that_is_written_to_keeps_its_indexes(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    fill(log, 5)
    active = log.segments.active
    before = active.max_timestamp
    active.mend_indexes()
    assert active.max_timestamp == before
    fill(log, 3)
    flush(log)
    assert offsets_read(log, 0) == list(range(8))
