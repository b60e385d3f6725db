"""The bytes and the age of the records from an offset on, compared with a walk over all batches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seqgate.log import PartitionLog
from seqgate.log.format.record_batch import parse_header
from seqgate.log.partition_log import MAX_SEARCH_BYTES
from tests.log.support import NOW_MS, SMALL, batch, delete_records, open_log

Written = list[tuple[int, int, int, int]]
"""Base offset, end offset, size and newest timestamp of each batch."""


def write(log: PartitionLog, *batches: bytes) -> Written:
    written = []
    for data in batches:
        info = log.append(data, now_ms=NOW_MS)
        newest = parse_header(data).max_timestamp
        written.append((info.base_offset, info.last_offset + 1, len(data), newest))
    log.advance_high_watermark_to_end()
    return written


def bytes_from(written: Written, offset: int) -> int:
    return sum(size for _, end, size, _ in written if end > offset)


def expired_until(written: Written, offset: int, before_ms: int, upper_bound: int) -> int:
    reached = offset
    for _, end, _, newest in written:
        if end <= offset:
            continue
        if newest >= before_ms:
            break
        reached = end
    return max(offset, min(reached, upper_bound))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.tuples(st.integers(1, 3), st.integers(10, 150), st.integers(0, 9)), max_size=25),
    start=st.integers(0, 30),
    data=st.data(),
)
def test_measures_what_a_walk_over_all_batches_finds(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[tuple[int, int, int]],
    start: int,
    data: st.DataObject,
) -> None:
    log = open_log(tmp_path_factory.mktemp("log"))
    written = write(
        log, *(batch(count, size=size, timestamp=NOW_MS + age * 10) for count, size, age in sizes)
    )
    end_offset = log.log_end_offset
    delete_records(log, min(start, end_offset))
    first = log.log_start_offset
    offset = data.draw(st.integers(0, end_offset + 2))
    before_ms = NOW_MS + data.draw(st.integers(-1, 11)) * 10
    upper_bound = data.draw(st.integers(first, end_offset))
    kept = max(offset, first)

    assert log.bytes_from(offset) == bytes_from(written, kept)
    newest = [entry[3] for entry in written if entry[1] > kept]
    assert log.newest_timestamp_at(offset) == (newest[0] if newest else None)
    assert log.expired_until(offset, before_ms, upper_bound) == expired_until(
        written, kept, before_ms, upper_bound
    )
    limit = data.draw(st.integers(0, 3_000))
    found = log.offset_with_bytes_left(limit)
    assert bytes_from(written, found) <= limit or found == end_offset
    earlier = [base for base, *_ in written if first <= base < found]
    assert all(bytes_from(written, base) > limit for base in earlier)


def test_the_measures_survive_a_restart(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    written = write(log, *(batch(2, timestamp=NOW_MS + index) for index in range(30)))
    stop = log.close(clean=True)
    again = open_log(tmp_path, clean_stop=stop)
    for offset in range(0, 61, 7):
        assert again.bytes_from(offset) == bytes_from(written, offset)
        expected = expired_until(written, offset, NOW_MS + 15, 60)
        assert again.expired_until(offset, NOW_MS + 15, 60) == expected


def test_a_look_at_old_batches_is_bounded_and_goes_on_from_where_it_ended(tmp_path: Path) -> None:
    log = open_log(tmp_path, replace(SMALL, segment_bytes=1 << 30, index_interval_bytes=1 << 20))
    young_first = batch(1, timestamp=NOW_MS + 1_000)
    old = batch(1, size=300_000, timestamp=NOW_MS)
    write(log, young_first, *[old] * 8)
    first = log.expired_until(1, NOW_MS + 1, 9)
    assert 1 < first < 9
    assert first <= 2 + MAX_SEARCH_BYTES // 300_000
    second = log.expired_until(first, NOW_MS + 1, 9)
    assert first < second
    assert log.expired_until(second, NOW_MS + 1, 9) == 9


def test_a_repeated_batch_is_told_from_a_new_one(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    first, second = (batch(1, producer_id=7, base_sequence=sequence) for sequence in (0, 1))
    write(log, first)
    assert log.is_repeated(parse_header(first), NOW_MS)
    assert not log.is_repeated(parse_header(second), NOW_MS)
    assert not log.is_repeated(parse_header(batch(1)), NOW_MS)


def test_batches_without_a_timestamp_are_not_old_by_themselves(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    write(log, *(batch(1, timestamp=-1) for _ in range(20)))
    assert len(log.segments) > 1
    assert log.newest_timestamp_at(0) == -1
    assert log.expired_until(0, NOW_MS + 1, 20) == 0
    write(log, batch(1, timestamp=NOW_MS))
    assert log.expired_until(0, NOW_MS + 1, 21) == 21


def test_the_time_index_shortens_the_look_and_changes_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path, replace(SMALL, segment_bytes=1 << 20, index_interval_bytes=1))
    written = write(log, *(batch(1, timestamp=NOW_MS + index) for index in range(40)))
    assert len(log.segments) == 1
    for offset in range(0, 41, 3):
        for before_ms in range(NOW_MS - 1, NOW_MS + 42):
            found = log.expired_until(offset, before_ms, 40)
            assert found == expired_until(written, offset, before_ms, 40)
