"""The bytes that were appended to a log, whatever was removed since."""

from __future__ import annotations

from pathlib import Path

from seqgate.log import LogConfig, PartitionLog
from tests.log.support import NOW_MS, SMALL, batch, delete_old_segments, delete_records, fill, flush, open_log


def sizes(count: int) -> int:
    return sum(len(batch(timestamp=NOW_MS + number)) for number in range(count))


def test_bytes_count_from_the_load(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    assert log.segments.appended_bytes == 0
    fill(log, 12)
    assert log.segments.appended_bytes == log.size_bytes == sizes(12)
    flush(log)
    again = open_log(tmp_path / "log", recovery_point=log.log_end_offset)
    assert (again.size_bytes, again.segments.appended_bytes) == (sizes(12), 0)
    fill(again, 3)
    assert again.segments.appended_bytes == sizes(3)


def test_duplicates_add_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    data = batch(producer_id=7, base_sequence=0)
    for _ in range(3):
        log.append(data, now_ms=NOW_MS)
    assert log.segments.appended_bytes == len(data)


def test_retention_and_deleted_records(tmp_path: Path) -> None:
    config = LogConfig(
        segment_bytes=600, index_interval_bytes=100, file_delete_delay_ms=0, retention_bytes=1200
    )
    log = open_log(tmp_path / "log", config)
    fill(log, 30)
    flush(log)
    assert delete_old_segments(log, NOW_MS)
    assert log.size_bytes < sizes(30)
    assert log.segments.appended_bytes == sizes(30)
    delete_records(log, log.log_end_offset - 1)
    fill(log, 2)
    assert log.segments.appended_bytes == sizes(32)


def offline(log: PartitionLog) -> None:
    log.go_offline("the disk is on fire")
    log.reopen(NOW_MS)
    assert not log.offline


def test_a_reopening_changes_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", SMALL)
    fill(log, 12)
    flush(log)
    for _ in range(2):
        offline(log)
        assert (log.segments.appended_bytes, log.segments.cut_records) == (sizes(12), 0)
    fill(log, 3)
    assert log.segments.appended_bytes == sizes(15)


def test_records_that_a_reopening_cuts_off_stay_counted(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", SMALL)
    fill(log, 12)
    flush(log)
    fill(log, 1)
    path = Path(log.segments.active.file.path)
    content = path.read_bytes()
    log.go_offline("a torn write")
    path.write_bytes(content[:-5])
    log.reopen(NOW_MS)
    assert log.log_end_offset == 12
    assert (log.segments.appended_bytes, log.segments.cut_records) == (sizes(12) + sizes(1), 1)
    offline(log)
    assert (log.segments.appended_bytes, log.segments.cut_records) == (sizes(12) + sizes(1), 1)
