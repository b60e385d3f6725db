"""A log that passes of retention leave out has nothing to roll and nothing to delete, whatever happens to it
and to the clock.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from seqgate.log import PartitionLog, Storage, retention
from seqgate.log.log_lists import RetentionTimes
from seqgate.log.retention import SEGMENTS_AT_ONCE
from tests.log.compaction.cleaning import compact, keyed
from tests.log.support import NOW_MS, SMALL, batch, delete_old_segments, delete_records, flush, open_log

CONFIGS = [
    replace(
        SMALL, segment_bytes=bytes_each, segment_ms=segment_ms, retention_ms=kept_ms, retention_bytes=kept
    )
    for bytes_each, segment_ms, kept_ms, kept in itertools.product(
        (100, 600), (500, 2000), (-1, 0, 1000), (-1, 300)
    )
]
STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(-1500, 1500)),
    st.tuples(st.just("append without a time"), st.just(0)),
    st.tuples(st.just("pass"), st.integers(-1000, 1500)),
    st.tuples(st.just("config"), st.integers(0, len(CONFIGS) - 1)),
    st.tuples(st.just("delete records"), st.integers(0, 100)),
    st.tuples(st.just("flush"), st.just(0)),
    st.tuples(st.just("roll"), st.just(0)),
    st.tuples(st.just("reopen"), st.just(0)),
)


def look(log: PartitionLog, now_ms: int) -> bool:
    """Do what a pass of retention does; return whether it leaves the log out."""
    if log not in log.lists.retention.due(now_ms):
        assert not retention.decide_retention(log, now_ms).doomed
        assert now_ms < log.segments.active.time_to_roll_ms(log.config, now_ms)
        return True
    retention.roll_by_time(log, now_ms)
    if retention.decide_retention(log, now_ms).doomed:
        delete_old_segments(log, now_ms)
    else:
        retention.note_quiet(log, now_ms)
    return False


@given(st.sampled_from(CONFIGS), st.lists(STEPS, max_size=30))
def test_nothing_is_due_in_a_quiet_log(config: object, steps: list[tuple[str, int]]) -> None:
    assert isinstance(config, type(SMALL))
    with TemporaryDirectory() as directory:
        log, now_ms = open_log(Path(directory) / "flights-0", config), NOW_MS
        for kind, number in steps:
            if kind == "append":
                log.append(batch(timestamp=now_ms + number), now_ms=now_ms)
            elif kind == "append without a time":
                log.append(batch(timestamp=-1), now_ms=now_ms)
            elif kind == "pass":
                now_ms += number
            elif kind == "config":
                log.update_config(CONFIGS[number])
            elif kind == "roll":
                log.roll(now_ms)
            elif kind == "reopen":
                log.go_offline("a test")
                log.reopen(now_ms)
            elif kind == "delete records":
                delete_records(log, log.high_watermark * number // 100, now_ms)
            else:
                flush(log)
            look(log, now_ms)


def test_an_unused_log_is_quiet_until_its_records_are_old(tmp_path: Path) -> None:
    config = replace(SMALL, segment_ms=10_000, retention_ms=5000)
    log = open_log(tmp_path / "flights-0", config)
    log.append(batch(), now_ms=NOW_MS)
    flush(log)
    assert [look(log, NOW_MS + waited_ms) for waited_ms in (0, 1, 5000, 5001, 5001)] == [
        False,
        True,
        True,
        False,
        False,
    ]
    assert log.log_start_offset == 1


def test_segments_that_one_removal_left_are_due(tmp_path: Path) -> None:
    log = open_log(tmp_path / "flights-0", replace(SMALL, segment_bytes=100))
    for _ in range(SEGMENTS_AT_ONCE + 5):
        log.append(batch(), now_ms=NOW_MS)
    flush(log)
    assert [look(log, NOW_MS), look(log, NOW_MS)] == [False, True]
    delete_records(log, log.high_watermark, NOW_MS)
    assert retention.decide_retention(log, NOW_MS).doomed
    assert not look(log, NOW_MS)


def test_a_new_retention_time_ends_the_quiet(tmp_path: Path) -> None:
    log = open_log(tmp_path / "flights-0", replace(SMALL, segment_ms=10_000, retention_ms=5000))
    log.append(batch(), now_ms=NOW_MS)
    flush(log)
    assert [look(log, NOW_MS), look(log, NOW_MS + 1)] == [False, True]
    log.update_config(replace(log.config, retention_ms=0))
    assert retention.decide_retention(log, NOW_MS + 1).doomed
    assert not look(log, NOW_MS + 1)


def test_a_closed_segment_below_the_log_start_ends_the_quiet(tmp_path: Path) -> None:
    log = open_log(tmp_path / "flights-0")
    log.append(batch(), now_ms=NOW_MS)
    flush(log)
    delete_records(log, 1)
    assert [look(log, NOW_MS), look(log, NOW_MS)] == [False, True]
    log.roll(NOW_MS)
    assert retention.decide_retention(log, NOW_MS).doomed
    assert not look(log, NOW_MS)


def test_a_log_that_keeps_records_for_a_reason_is_not_quiet(tmp_path: Path) -> None:
    log = open_log(tmp_path / "flights-0", replace(SMALL, segment_ms=10_000, retention_ms=5000))
    log.append(batch(timestamp=NOW_MS + 1000), now_ms=NOW_MS)
    flush(log)
    assert not look(log, NOW_MS)
    assert not look(log, NOW_MS)


def test_a_log_whose_size_counts_is_looked_at_after_each_append(tmp_path: Path) -> None:
    size_bytes = len(batch())
    config = replace(SMALL, segment_bytes=2 * size_bytes, retention_bytes=4 * size_bytes)
    log = open_log(tmp_path / "flights-0", config)
    for _ in range(5):
        log.append(batch(), now_ms=NOW_MS)
    flush(log)
    assert [look(log, NOW_MS), look(log, NOW_MS)] == [False, True]
    log.append(batch(), now_ms=NOW_MS)
    flush(log)
    assert len(log.segments) == 3
    assert not look(log, NOW_MS)
    assert log.log_start_offset == 2


def test_a_record_may_be_older_than_the_last_write_of_records_without_a_time(tmp_path: Path) -> None:
    now_ms = time.time_ns() // 1_000_000 + 60_000
    log = open_log(tmp_path / "flights-0", replace(SMALL, retention_ms=3_600_000), now_ms=now_ms)
    log.append(batch(timestamp=-1), now_ms=now_ms)
    flush(log)
    look(log, now_ms)
    log.append(batch(timestamp=5), now_ms=now_ms)
    flush(log)
    assert retention.decide_retention(log, now_ms).doomed
    assert not look(log, now_ms)


def test_a_cleaned_segment_may_be_older_than_its_sources(tmp_path: Path) -> None:
    config, storage = replace(SMALL, compact=True, retention_ms=1000, segment_ms=100_000), Storage()
    log = open_log(tmp_path / "flights-0", config, storage=storage)
    for value, timestamp in (("1", NOW_MS), ("2", NOW_MS - 900)):
        log.append(keyed(("a", value), timestamp=timestamp), now_ms=NOW_MS)
        log.roll(NOW_MS)
    flush(log)
    assert [look(log, NOW_MS), look(log, NOW_MS)] == [False, True]
    compact(log, storage, now_ms=NOW_MS)
    assert not look(log, NOW_MS + 101)


STEPS_OF_TIMES = st.lists(
    st.tuples(st.sampled_from(["changed", "quiet", "forget", "due"]), st.integers(0, 5), st.integers(0, 20)),
    max_size=60,
)


@given(STEPS_OF_TIMES)
def test_times_are_those_of_the_last_change(steps: list[tuple[str, int, int]]) -> None:
    times: RetentionTimes[int] = RetentionTimes()
    expected: dict[int, int] = {}
    for kind, log, time_ms in steps:
        if kind == "changed":
            times.changed(log)
            expected[log] = -1
        elif kind == "quiet":
            times.quiet(log, time_ms)
            expected[log] = time_ms
        elif kind == "forget":
            times.forget(log)
            expected.pop(log, None)
        else:
            due = sorted(log for log, until_ms in expected.items() if until_ms <= time_ms)
            assert sorted(times.due(time_ms)) == due
            expected.update(dict.fromkeys(due, -1))


def test_entries_that_count_no_more_are_dropped() -> None:
    times: RetentionTimes[int] = RetentionTimes()
    for number in range(10_000):
        times.quiet(number % 10, number)
    assert len(times._heap) < 200
    for log in range(10):
        times.forget(log)
    assert times.due(20_000) == []
