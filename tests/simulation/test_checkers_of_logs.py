"""Checkers of logs find breaches in small histories: lost, duplicated, misplaced and reordered records, gaps,
watermarks.

They accept histories that only look wrong.
"""

from __future__ import annotations

import pytest

from tests.simulation.checkers import breaches
from tests.simulation.history import (
    FinalRead,
    GatewayCrashed,
    GivenUp,
    OffsetListed,
    RecordName,
    RecordsDeleting,
    Refused,
    Unexpected,
)
from tests.simulation.story import KEYED, P0, P1, Row, Story, rec

OUT_OF_ORDER = "OUT_OF_ORDER_SEQUENCE_NUMBER"


class TestStored:
    def test_an_acknowledged_record_that_is_not_in_the_last_reading(self) -> None:
        story = Story()
        story.acknowledged(rec(0), 0)
        story.acknowledged(rec(1), 1)
        story.final([rec(0)])
        assert story.found() == {"lost", "watermarks"}
        assert "lost: 40 ms: p/0/0/0/1 was acknowledged at offset 1 of flights-0 and is lost" in breaches(
            story.history
        )

    def test_a_partition_that_was_not_read_at_the_end(self) -> None:
        story = Story()
        story.acknowledged(rec(0), 0)
        assert "dense" in story.found()

    def test_an_empty_partition_needs_no_answer_with_records(self) -> None:
        story = Story(deleted_before={P0: 1})
        story.acknowledged(rec(0), 0)
        story.add(FinalRead(story.tick()))
        for read_committed in (False, True):
            for timestamp in (-2, -1):
                story.add(OffsetListed(story.tick(), "c", P0, read_committed, timestamp, 1))
        assert story.found() == set()

    def test_a_record_that_was_read_once_must_stay(self) -> None:
        story = Story()
        story.given_up(rec(0))
        story.fetched([rec(0)])
        story.final([])
        assert "lost" in story.found()

    def test_deleted_on_purpose_is_not_lost(self) -> None:
        story = Story(deleted_before={P0: 2})
        story.acknowledged(rec(0), 0)
        story.acknowledged(rec(1), 1)
        story.acknowledged(rec(2), 2)
        story.final([rec(2)], begin=2)
        assert story.found() == set()

    def test_deleted_beyond_what_was_asked_for_is_lost(self) -> None:
        story = Story(deleted_before={P0: 1})
        story.acknowledged(rec(0), 0)
        story.acknowledged(rec(1), 1)
        story.acknowledged(rec(2), 2)
        story.final([rec(2)], begin=2)
        assert story.found() == {"lost", "log_start"}

    def test_a_record_stored_twice(self) -> None:
        story = Story()
        story.acknowledged(rec(0), 0)
        story.final([rec(0), rec(0)])
        assert story.found() == {"doubled"}

    def test_a_given_up_record_may_be_stored_once(self) -> None:
        story = Story()
        story.given_up(rec(0))
        story.given_up(rec(1))
        story.final([rec(0)])
        assert story.found() == set()

    def test_a_given_up_record_stored_twice(self) -> None:
        story = Story()
        story.given_up(rec(0))
        story.final([rec(0), rec(0)])
        assert "doubled" in story.found()

    def test_a_record_doubled_where_its_first_place_was_deleted(self) -> None:
        story = Story(deleted_before={P0: 1})
        story.acknowledged(rec(0), 0)
        story.fetched([rec(0)])
        story.final([rec(0)], begin=1)
        assert "doubled" in story.found()

    def test_two_records_acknowledged_at_one_offset(self) -> None:
        story = Story(deleted_before={P0: 1})
        story.acknowledged(rec(0), 0)
        story.acknowledged(rec(1), 0)
        story.final([], begin=1)
        assert story.found() == {"doubled"}

    def test_a_retry_answered_with_another_offset(self) -> None:
        story = Story(deleted_before={P0: 2})
        story.acknowledged(rec(0), 0)
        story.acknowledged(rec(0), 1)
        story.final([], begin=2)
        assert story.found() == {"acknowledged_offsets"}

    def test_an_acknowledgement_with_a_wrong_offset(self) -> None:
        story = Story()
        story.acknowledged(rec(0), 1)
        story.acknowledged(rec(1), 0)
        story.final([rec(0), rec(1)])
        assert story.found() == {"acknowledged_offsets"}

    @pytest.mark.parametrize("stranger", [rec(7), rec(0, "nobody")])
    def test_a_record_that_nobody_sent(self, stranger: RecordName) -> None:
        story = Story()
        story.final([stranger])
        assert "misplaced" in story.found()

    def test_a_record_in_another_partition(self) -> None:
        story = Story()
        story.given_up(rec(0), P1)
        story.final([rec(0)])
        assert "misplaced" in story.found()


class TestOrder:
    def test_a_number_after_a_later_one(self) -> None:
        story = Story()
        story.sent(rec(0), rec(1))
        story.acknowledged(rec(1), 0)
        story.acknowledged(rec(0), 1)
        story.final([rec(1), rec(0)])
        assert story.found() == {"order"}

    def test_a_skipped_number(self) -> None:
        story = Story()
        story.sent(rec(0), rec(1))
        story.acknowledged(rec(1), 0)
        story.final([rec(1)])
        assert story.found() == {"order"}

    @pytest.mark.parametrize(("acknowledged", "breaks"), [(rec(1), {"order"}), (rec(0, "q"), set())])
    def test_a_number_that_was_refused_behind_a_later_one(
        self, acknowledged: RecordName, breaks: set[str]
    ) -> None:
        """It was overtaken, even if its producer gave it up. Another producer's number proves nothing."""
        story = Story()
        story.sent(rec(0))
        story.acknowledged(acknowledged, 0)
        story.add(Refused(story.tick(), "p", 0, P0, 7, 0, 0, OUT_OF_ORDER, explained=True, first=rec(0)))
        story.add(GivenUp(story.tick(), rec(0), P0, "timed out"))
        story.final([acknowledged])
        assert story.found() == breaks

    def test_a_given_up_number_may_be_skipped(self) -> None:
        story = Story()
        story.given_up(rec(0))
        story.acknowledged(rec(1), 0)
        story.final([rec(1)])
        assert story.found() == set()

    def test_other_incarnations_partitions_and_producers_are_numbered_anew(self) -> None:
        story = Story()
        names = [rec(0), rec(1), rec(0, incarnation=1), rec(0, "q"), rec(1, incarnation=1)]
        for offset, name in enumerate(names):
            story.acknowledged(name, offset)
        story.final([*names])
        assert story.found() == set()

    def test_a_deleted_beginning_excuses_what_came_before_only(self) -> None:
        story = Story(deleted_before={P0: 3})
        story.sent(rec(0), rec(1), rec(2), rec(3), rec(4))
        story.acknowledged(rec(2), 3)
        story.acknowledged(rec(4), 4)
        story.final([rec(2), rec(4)], begin=3)
        assert breaches(story.history) == [
            "order: offset 4 of flights-0 holds number 4 of p/0 without number 3, which was not given up"
        ]


class TestDense:
    def test_a_gap(self) -> None:
        story = Story()
        story.acknowledged(rec(0), 0)
        story.acknowledged(rec(1), 2)
        story.final([rec(0), None, rec(1)])
        assert breaches(story.history) == ["dense: flights-0 has nothing from offset 1 to 1"]

    def test_a_gap_at_the_end(self) -> None:
        story = Story()
        story.acknowledged(rec(0), 0)
        story.final([rec(0), None])
        assert story.found() == {"dense"}

    def test_a_reading_that_did_not_reach_the_end(self) -> None:
        story = Story()
        story.acknowledged(rec(0), 0)
        story.final([rec(0)], high_watermark=2)
        assert story.found() == {"dense", "ends"}

    def test_markers_and_compaction_explain_gaps(self) -> None:
        story = Story(compacted=frozenset({"latest"}))
        story.sent(rec(0, "t", 0, 1))
        story.acknowledged(rec(0, "t", 0, 1), 0)
        story.ending(1)
        story.acknowledged(rec(0, partition=2), 0, KEYED, b"a")
        story.acknowledged(rec(1, partition=2), 1, KEYED, b"a")
        story.final([rec(0, "t", 0, 1), True])
        story.final([None, rec(1, partition=2)], partition=KEYED)
        assert story.found() == set()


class TestWatermarks:
    @pytest.mark.parametrize("what", ["high_watermark", "last_stable_offset", "log_start_offset"])
    def test_one_goes_back(self, what: str) -> None:
        story = Story(deleted_before={P0: 3})
        low = {"high_watermark": 5, "last_stable_offset": 4, "log_start_offset": 3}
        story.fetched([], begin=4, **low)  # type: ignore[arg-type]
        story.add(GatewayCrashed(story.tick(), "power"))
        story.fetched([], begin=4, **(low | {what: low[what] - 1}))  # type: ignore[arg-type]
        assert "watermarks" in story.found()

    def test_answers_that_overlapped_may_differ(self) -> None:
        story = Story()
        story.fetched([], high_watermark=5, asked_at_ms=3)
        story.fetched([], high_watermark=4, asked_at_ms=4)
        assert story.found() == set()

    def test_an_acknowledgement_puts_the_high_watermark_past_its_record(self) -> None:
        story = Story()
        story.acknowledged(rec(0), 4)
        story.fetched([], high_watermark=4)
        assert "watermarks" in story.found()

    def test_listed_offsets_are_compared_too(self) -> None:
        story = Story()
        story.add(OffsetListed(10, "c", P0, read_committed=False, timestamp=-1, offset=5, asked_at_ms=5))
        story.add(OffsetListed(20, "c", P0, read_committed=False, timestamp=-1, offset=4, asked_at_ms=15))
        assert story.found() == {"watermarks"}

    def test_a_log_that_begins_late_without_a_reason(self) -> None:
        story = Story()
        story.fetched([], begin=2, high_watermark=5, log_start_offset=2)
        assert story.found() == {"log_start"}

    def test_a_log_that_begins_late_at_the_time(self) -> None:
        story = Story()
        story.add(RecordsDeleting(story.tick(), P0, 1))
        story.fetched([], begin=1, high_watermark=5, log_start_offset=1)
        assert story.found() == set()
        story.fetched([], begin=2, high_watermark=5, log_start_offset=2)
        story.add(RecordsDeleting(story.tick(), P0, 2))
        assert story.found() == {"log_start"}

    def test_an_answer_beyond_the_high_watermark(self) -> None:
        story = Story()
        story.sent(rec(0))
        story.fetched([rec(0)], high_watermark=0)
        assert "beyond" in story.found()

    def test_an_answer_beyond_the_last_stable_offset(self) -> None:
        story = Story()
        story.sent(rec(0))
        story.fetched([rec(0)], last_stable_offset=0, read_committed=True)
        assert "beyond" in story.found()

    def test_an_answer_with_less_or_more_than_it_says(self) -> None:
        story = Story()
        story.sent(rec(0), rec(1))
        story.fetched([rec(0), rec(1)], next_offset=1, high_watermark=2)
        assert "beyond" in story.found()


class TestRepeatable:
    def test_another_value_at_an_offset(self) -> None:
        story = Story()
        story.given_up(rec(0))
        story.given_up(rec(1))
        story.fetched([rec(0)])
        story.fetched([rec(1)])
        assert "repeatable" in story.found()

    def test_a_record_left_out_of_one_answer(self) -> None:
        story = Story()
        for number in range(3):
            story.acknowledged(rec(number), number)
        names: list[Row] = [rec(0), rec(1), rec(2)]
        story.fetched([rec(0), None, rec(2)])
        story.final(names)
        assert story.found() == {"whole_answers"}

    def test_an_answer_may_begin_and_end_anywhere(self) -> None:
        story = Story()
        for number in range(3):
            story.acknowledged(rec(number), number)
        story.fetched([rec(1)], begin=1, high_watermark=3)
        story.fetched([], begin=3)
        story.final([rec(0), rec(1), rec(2)])
        assert story.found() == set()

    def test_compaction_takes_the_last_value_of_a_key(self) -> None:
        story = Story(compacted=frozenset({"latest"}))
        story.acknowledged(rec(0), 0, KEYED, b"a")
        story.acknowledged(rec(1), 1, KEYED, b"a")
        story.acknowledged(rec(2), 2, KEYED, b"b")
        story.final([rec(0), None, rec(2)], partition=KEYED)
        assert story.found() == {"compaction"}

    def test_compaction_lets_an_aborted_record_replace_a_committed_one(self) -> None:
        story = Story(compacted=frozenset({"latest"}))
        aborted = rec(0, "t", 0, 1)
        story.acknowledged(rec(0), 0, KEYED, b"a")
        story.acknowledged(aborted, 1, KEYED, b"a")
        story.ending(1, commit=False)
        story.final([None, aborted, False], [None, None, False], partition=KEYED)
        assert story.found() == {"compaction"}

    def test_compaction_may_take_aborted_records(self) -> None:
        story = Story(compacted=frozenset({"latest"}))
        story.acknowledged(rec(0), 0, KEYED, b"a")
        story.acknowledged(rec(0, "t", 0, 1), 1, KEYED, b"a")
        story.ending(1, commit=False)
        story.final([rec(0), None, False], partition=KEYED)
        assert story.found() == set()


def test_what_clients_call_unexpected() -> None:
    story = Story()
    story.add(Unexpected(10, "p", "UNKNOWN_SERVER_ERROR"))
    story.add(Refused(20, "p", 0, P0, 7, 0, 3, OUT_OF_ORDER, explained=False))
    story.add(Refused(30, "p", 0, P0, 7, 0, 3, OUT_OF_ORDER, explained=True))
    assert breaches(story.history) == [
        "unexpected: 10 ms: p: UNKNOWN_SERVER_ERROR",
        (
            "unexpected: 20 ms: p/0 was refused sequence 3 of producer id 7, epoch 0, in flights-0: "
            "OUT_OF_ORDER_SEQUENCE_NUMBER"
        ),
    ]
