from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seqgate.log import InvalidRecord
from tests.log.support import NOW_MS, SMALL, batch, delete_records, fill, flush, open_log
from tests.support.batches import Batch, Record


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_by_time_within_compressed_batches(tmp_path: Path, codec: str) -> None:
    log = open_log(tmp_path / "log")
    for number in range(12):
        log.append(batch(5, timestamp=NOW_MS + 100 * number, step_ms=10, codec=codec), now_ms=NOW_MS)
    flush(log)
    for restarted in (False, True):
        if restarted:
            log = open_log(tmp_path / "log", clean_stop=log.close(clean=True))
        for offset in range(60):
            wanted = NOW_MS + 100 * (offset // 5) + 10 * (offset % 5)
            for timestamp in (wanted - 9, wanted) if offset % 5 else (wanted - 50, wanted):
                found = log.first_not_before(timestamp)
                assert found is not None
                assert (found.offset, found.timestamp) == (offset, wanted)
        assert log.first_not_before(NOW_MS + 1141) is None


def test_times_out_of_order_find_the_first_that_is_late_enough(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    times = [5, 3, 9, 2, 9, 1, 20, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4]
    for time in times:
        log.append(batch(timestamp=time), now_ms=NOW_MS)
    for asked in range(21):
        found = log.first_not_before(asked)
        assert found is not None
        assert found.offset == next(index for index, time in enumerate(times) if time >= asked)
    largest = log.first_of_largest_timestamp()
    assert largest is not None
    assert (largest.timestamp, largest.offset) == (20, 6)


def test_log_append_time_answers_with_the_base_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", replace(SMALL, message_timestamp_type="LogAppendTime"))
    for number in range(10):
        log.append(batch(3, timestamp=7, codec="gzip"), now_ms=NOW_MS + number)
    found = log.first_not_before(NOW_MS + 4)
    assert found is not None
    assert (found.offset, found.timestamp) == (12, NOW_MS + 4)
    largest = log.first_of_largest_timestamp()
    assert largest is not None
    assert largest.offset == 27


def test_a_record_above_the_limit_of_the_topic_is_not_decompressed(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    log.append(batch(3, timestamp=NOW_MS, codec="gzip"), now_ms=NOW_MS)
    log.config = replace(log.config, max_record_bytes=1)
    with pytest.raises(InvalidRecord, match=r"max\.decompressed\.message\.bytes is 1"):
        log.first_not_before(NOW_MS)
    with pytest.raises(InvalidRecord):
        log.first_of_largest_timestamp()


def test_after_deletion(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    log.append(batch(timestamp=NOW_MS + 999), now_ms=NOW_MS)
    fill(log, 40)
    flush(log)
    delete_records(log, 25)
    found = log.first_not_before(0)
    assert found is not None
    assert found.offset == 25
    largest = log.first_of_largest_timestamp()
    assert largest is not None
    assert largest.offset == 40, "the segment with the largest one is gone"


def test_largest_of_records_below_the_log_start(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", replace(SMALL, segment_bytes=100_000))
    fill(log, 5)
    flush(log)
    delete_records(log, -1)
    assert log.first_not_before(0) is None
    largest = log.first_of_largest_timestamp()
    assert largest is not None
    assert largest.offset == 4


def test_without_timestamps(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    assert log.first_of_largest_timestamp() is None
    assert log.first_not_before(0) is None
    fill(log, 20, timestamp=-1, step_ms=0)
    largest = log.first_of_largest_timestamp()
    assert largest is not None
    assert (largest.timestamp, largest.offset) == (-1, 0)
    assert log.first_not_before(0) is None


def test_a_batch_of_too_many_records_is_not_looked_into(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", replace(SMALL, max_decoded_records=4, deep_validation=False))
    for number in range(2):
        log.append(batch(4 + number, timestamp=NOW_MS + 100 * number, step_ms=10), now_ms=NOW_MS)
    flush(log)
    within = log.first_not_before(NOW_MS + 20)
    assert within is not None
    assert within.offset == 2
    beyond = log.first_not_before(NOW_MS + 120)
    assert beyond is not None
    assert (beyond.offset, beyond.timestamp) == (4, NOW_MS + 140)
    assert log.first_of_largest_timestamp() == beyond


def test_a_lookup_by_time_decodes_no_record_headers(tmp_path: Path) -> None:
    """A batch of a few hundred bytes may hold millions of headers."""
    log = open_log(tmp_path / "log", replace(SMALL, deep_validation=False))
    plain = b"".join(
        Record(headers=((b"h", b"1"),), timestamp_delta=10 * index).encode(index)[:-4] + b"\xff" * 4
        for index in range(3)
    )
    log.append(
        Batch(
            payload=plain,
            last_offset_delta=2,
            record_count=3,
            base_timestamp=NOW_MS,
            max_timestamp=NOW_MS + 20,
        ).encode(),
        now_ms=NOW_MS,
    )
    found = log.first_not_before(NOW_MS + 10)
    assert found is not None
    assert (found.offset, found.timestamp) == (1, NOW_MS + 10)
    assert log.first_of_largest_timestamp() == log.first_not_before(NOW_MS + 20)
