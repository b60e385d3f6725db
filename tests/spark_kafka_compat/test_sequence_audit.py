from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.spark_kafka_compat.batch_reader import BatchRow
from seqgate.spark_kafka_compat.sequence_audit import (
    FINDINGS_KEPT,
    SEQUENCE_SPAN,
    Finding,
    FindingKind,
    Trail,
    judge_offsets,
)

LAST = SEQUENCE_SPAN - 1


def judged(batches: Iterable[BatchRow], *, complete_from_start: bool = True) -> Trail:
    """Return the audit of one producer's batches in one partition: its gaps, duplicates and reorderings."""
    trail = Trail(complete_from_start)
    for batch in batches:
        trail.observe(batch)
    trail.finish()
    return trail


def batches(*spans: tuple[int, int], producer_epoch: int = 0) -> list[BatchRow]:
    """Return batches of (base_sequence, record_count), ten offsets apart."""
    return [
        BatchRow(
            topic="t",
            partition=0,
            base_offset=index * 10,
            last_offset=index * 10 + count - 1,
            producer_id=1,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=count,
            is_control=False,
        )
        for index, (base_sequence, count) in enumerate(spans)
    ]


def counts(trail: Trail) -> tuple[int, int, int]:
    return trail.missing_records, trail.duplicate_records, trail.reordered_batches


def test_an_unbroken_sequence_is_clean() -> None:
    trail = judged(batches((0, 5), (5, 1), (6, 100)))
    assert counts(trail) == (0, 0, 0)
    assert (trail.first_sequence, trail.last_sequence) == (0, 105)


def test_a_gap_is_found() -> None:
    trail = judged(batches((0, 5), (8, 2)))
    assert counts(trail) == (3, 0, 0)
    assert trail.findings == [Finding(FindingKind.GAP, 0, 5, 7, 3, 0)]


def test_whole_and_partial_duplicates_are_found() -> None:
    assert counts(judged(batches((0, 5), (0, 5), (5, 5)))) == (0, 5, 0)
    trail = judged(batches((0, 5), (3, 4)))
    assert trail.findings == [
        Finding(FindingKind.DUPLICATE, 0, 3, 4, 2, 10),
        Finding(FindingKind.REORDERING, 0, 3, 6, 4, 10),
    ]


def test_a_late_batch_fills_its_gap() -> None:
    trail = judged(batches((0, 5), (8, 2), (5, 3), (10, 1)))
    assert counts(trail) == (0, 0, 1)
    assert trail.findings == [Finding(FindingKind.REORDERING, 0, 5, 7, 3, 20)]
    assert trail.last_sequence == 10


def test_a_missing_head_is_a_gap_only_in_a_complete_log() -> None:
    assert judged(batches((4, 5))).findings == [Finding(FindingKind.GAP, 0, 0, 3, 4, -1)]
    assert counts(judged(batches((4, 5)), complete_from_start=False)) == (0, 0, 0)


class TestWrap:
    def test_sequences_wrap_between_two_batches(self) -> None:
        trail = judged(batches((LAST - 1, 2), (0, 3)), complete_from_start=False)
        assert counts(trail) == (0, 0, 0)
        assert trail.last_sequence == 2

    def test_sequences_wrap_within_a_batch(self) -> None:
        trail = judged(batches((LAST, 3), (2, 1)), complete_from_start=False)
        assert counts(trail) == (0, 0, 0)
        assert trail.last_sequence == 2

    def test_a_gap_across_the_wrap(self) -> None:
        trail = judged(batches((LAST - 1, 1), (1, 1)), complete_from_start=False)
        assert trail.findings == [Finding(FindingKind.GAP, 0, LAST, 0, 2, 0)]

    def test_a_duplicate_from_before_the_wrap(self) -> None:
        trail = judged(batches((LAST, 1), (0, 1), (LAST, 1)), complete_from_start=False)
        assert trail.findings == [Finding(FindingKind.DUPLICATE, 0, LAST, LAST, 1, 20)]

    def test_a_reordering_across_the_wrap(self) -> None:
        trail = judged(batches((LAST - 1, 1), (0, 1), (LAST, 1)), complete_from_start=False)
        assert trail.findings == [Finding(FindingKind.REORDERING, 0, LAST, LAST, 1, 20)]

    def test_a_whole_log_that_begins_near_the_end_misses_nearly_all(self) -> None:
        assert judged(batches((LAST, 1))).missing_records == LAST


class TestEpochs:
    def test_a_new_epoch_begins_at_zero(self) -> None:
        assert counts(judged([*batches((0, 5)), *batches((0, 3), producer_epoch=1)])) == (0, 0, 0)

    def test_a_new_epoch_that_begins_later_has_a_gap(self) -> None:
        trail = judged([*batches((0, 5)), *batches((2, 3), producer_epoch=1)])
        assert trail.findings == [Finding(FindingKind.GAP, 1, 0, 1, 2, -1)]

    def test_a_batch_of_an_older_epoch_is_reordered(self) -> None:
        trail = judged([*batches((0, 3), producer_epoch=1), *batches((3, 2))])
        assert counts(trail) == (0, 0, 1)
        assert trail.findings == [Finding(FindingKind.REORDERING, 0, 3, 4, 2, 0)]

    def test_gaps_of_the_old_epoch_are_kept(self) -> None:
        trail = judged([*batches((0, 5), (6, 1)), *batches((0, 3), producer_epoch=1)])
        assert trail.missing_records == 1


def test_findings_are_bounded_and_counts_are_not() -> None:
    trail = judged(batches(*((sequence, 1) for sequence in range(0, 200, 2))))
    assert trail.missing_records == 99
    assert len(trail.findings) == FINDINGS_KEPT


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12), start=st.integers(0, LAST), data=st.data())
def test_counts_equal_those_of_a_naive_model(sizes: list[int], start: int, data: st.DataObject) -> None:
    spans, sequence = [], start
    for size in sizes:
        spans.append((sequence, size))
        sequence = (sequence + size) % SEQUENCE_SPAN
    kept = data.draw(st.lists(st.sampled_from(spans), min_size=1, max_size=15))
    written = [spans[0], *kept]

    trail = judged(batches(*written), complete_from_start=False)

    numbers = [
        base + step - start + (SEQUENCE_SPAN if base < start else 0)
        for base, n in written
        for step in range(n)
    ]
    assert trail.duplicate_records == len(numbers) - len(set(numbers))
    assert trail.missing_records == max(numbers) + 1 - len(set(numbers))


@pytest.mark.parametrize(
    ("spans", "missing", "overlapping"),
    [([(0, 4), (5, 9)], 0, 0), ([(7, 9), (12, 12)], 2, 0), ([(0, 4), (3, 6)], 0, 2), ([], 0, 0)],
)
def test_offsets(spans: list[tuple[int, int]], missing: int, overlapping: int) -> None:
    assert judge_offsets(spans)[1:] == (missing, overlapping)
