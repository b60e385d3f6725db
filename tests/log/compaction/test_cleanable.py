"""The cleanable segments of a log, and whether cleaning them is worth it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from seqgate.log import LogConfig
from seqgate.log.compaction.cleaner import grouped_segments
from seqgate.log.compaction.job import Cleanable, JobSegment, SegmentAge, cleanable

NOW_MS = 1_000_000
FOREVER = 2**63 - 1
RULES = LogConfig(min_cleanable_dirty_ratio=0.5, min_compaction_lag_ms=0, max_compaction_lag_ms=FOREVER)
CLOSED = [
    SegmentAge(base, base + 10, 100, NOW_MS - 100 + base, NOW_MS - 110 + base) for base in (0, 10, 20, 30)
]


def judge(
    rules: LogConfig = RULES,
    *,
    clean: int | None = None,
    start: int = 0,
    decided: int = 45,
    closed: list[SegmentAge] | None = None,
) -> Cleanable:
    return cleanable(
        CLOSED if closed is None else closed,
        rules,
        clean_end_offset=clean,
        log_start_offset=start,
        log_end_offset=45,
        decided_end_offset=decided,
        now_ms=NOW_MS,
    )


def test_all_closed_segments_of_a_log_that_was_never_cleaned() -> None:
    found = judge()
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (0, 40)
    assert (found.dirty_bytes, found.dirty_ratio) == (400, 1.0)
    assert found.reason == "100% of it is dirty, more than min.cleanable.dirty.ratio=0.5"


@pytest.mark.parametrize(
    ("clean", "ratio", "is_due"), [(10, 0.75, True), (20, 0.5, False), (30, 0.25, False), (40, 0, False)]
)
def test_the_dirty_ratio(clean: int, ratio: float, is_due: bool) -> None:
    found = judge(clean=clean)
    assert found.dirty_ratio == ratio
    assert (found.reason is not None) == is_due


@pytest.mark.parametrize(("decided", "end"), [(45, 40), (40, 40), (39, 30), (10, 10), (9, 0)])
def test_no_segment_that_holds_something_undecided(decided: int, end: int) -> None:
    assert judge(decided=decided).first_uncleanable_offset == end


@pytest.mark.parametrize(("lag_ms", "end"), [(0, 40), (69, 40), (70, 40), (71, 30), (81, 20), (200, 0)])
def test_the_least_lag(lag_ms: int, end: int) -> None:
    assert judge(replace(RULES, min_compaction_lag_ms=lag_ms)).first_uncleanable_offset == end


def test_the_largest_lag_overrules_the_ratio() -> None:
    rules = replace(RULES, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=79)
    assert (
        judge(rules, clean=30).reason
        == "its oldest dirty record has waited for more than max.compaction.lag.ms=79"
    )
    assert judge(replace(rules, max_compaction_lag_ms=80), clean=30).reason is None
    assert judge(rules, clean=40).reason is None


@pytest.mark.parametrize(("clean", "start"), [(5, 10), (46, 10)])
def test_an_offset_of_another_log(clean: int, start: int) -> None:
    found = judge(clean=clean, start=start)
    assert found.checkpoint_was_wrong
    assert found.first_dirty_offset == start


def test_nothing_to_clean() -> None:
    found = judge(closed=[])
    assert (found.first_uncleanable_offset, found.dirty_bytes, found.reason) == (0, 0, None)


def test_groups() -> None:
    sources = [
        JobSegment(0, 10, 60, has_aborted=False),
        JobSegment(10, 20, 40, has_aborted=False),
        JobSegment(20, 30, 1, has_aborted=False),
        JobSegment(30, 40, 10, has_aborted=False),
        JobSegment(40, 2**31 + 31, 0, has_aborted=False),
    ]
    index_bytes = {0: 8, 10: 8, 20: 8, 30: 24, 40: 0}
    groups = grouped_segments(sources, index_bytes, max_bytes=100, max_index_bytes=24)
    assert [[source.base_offset for source in group] for group in groups] == [[0, 10], [20], [30], [40]]
    assert grouped_segments([], {}, max_bytes=1, max_index_bytes=1) == []
    many = [JobSegment(base, base + 1, 1, has_aborted=False) for base in range(250)]
    groups = grouped_segments(many, dict.fromkeys(range(250), 0), max_bytes=1_000, max_index_bytes=1)
    assert [len(group) for group in groups] == [100, 100, 50]
