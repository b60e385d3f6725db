"""Checkers of producer ids, transactions, committed offsets and groups find breaches in small histories, and
accept histories that only look wrong.
"""

from __future__ import annotations

import pytest

from tests.simulation.checkers import breaches
from tests.simulation.history import Assigned, GatewayCrashed, TransactionEnded, TransactionEnding
from tests.simulation.story import P0, P1, Story, rec


class TestProducerIds:
    def test_an_id_goes_to_two_producers(self) -> None:
        story = Story()
        story.got_id(0, 7, 0)
        story.got_id(0, 7, 1, producer="u")
        assert story.found() == {"producer_ids"}

    def test_an_id_goes_to_a_later_life_of_the_same_producer(self) -> None:
        story = Story()
        story.got_id(0, 7, 0)
        story.got_id(1, 7, 0)
        assert story.found() == {"producer_ids"}

    def test_an_epoch_of_a_transactional_id_is_given_twice(self) -> None:
        story = Story()
        story.got_id(0, 7, 3, tx="x")
        story.got_id(1, 7, 3, tx="x", asked_at_ms=0)
        assert story.found() == {"producer_ids"}

    def test_an_epoch_goes_back(self) -> None:
        story = Story()
        story.got_id(0, 7, 3, tx="x")
        story.got_id(1, 7, 2, tx="x")
        assert story.found() == {"producer_ids"}

    def test_answers_that_overlapped_may_come_in_any_order(self) -> None:
        story = Story()
        story.got_id(1, 7, 3, tx="x")
        story.got_id(0, 7, 2, tx="x", asked_at_ms=0)
        story.got_id(2, 8, 0, tx="x")
        story.got_id(3, 9, 0)
        assert story.found() == set()

    def test_a_fenced_producer_is_acknowledged(self) -> None:
        story = Story()
        story.got_id(0, 7, 0, tx="x")
        story.got_id(1, 7, 1, tx="x")
        zombie = rec(0, "t", 0, 1)
        story.acknowledged(zombie, 0)
        story.final([zombie, False], [None, False])
        assert story.found() == {"fencing"}

    def test_a_fenced_producer_commits(self) -> None:
        story = Story()
        story.got_id(0, 7, 0, tx="x")
        story.acknowledged(rec(0, "t", 0, 1), 0)
        story.got_id(1, 7, 1, tx="x")
        story.ending(1)
        story.final([rec(0, "t", 0, 1), True])
        assert story.found() == {"fencing"}

    def test_what_was_under_way_when_it_was_fenced_may_succeed(self) -> None:
        story = Story()
        story.got_id(0, 7, 0, tx="x")
        name = rec(0, "t", 0, 1)
        story.sent(name)
        story.add(TransactionEnding(story.tick(), "t", 0, 1, commit=True))
        story.got_id(1, 7, 1, tx="x")
        story.acknowledged(name, 0)
        story.add(TransactionEnded(story.tick(), "t", 0, 1, commit=True))
        story.final([name, True])
        assert story.found() == set()

    def test_a_fenced_producers_record_after_its_successors(self) -> None:
        story = Story()
        story.got_id(0, 7, 0, tx="x")
        old, new = rec(0, "t", 0, 1), rec(0, "t", 1, 1)
        story.sent(old)
        story.got_id(1, 7, 1, tx="x")
        story.sent(new)
        story.final([new, old, False], [None, None, False])
        assert story.found() == {"fencing"}


class TestTransactions:
    ONE, TWO = rec(0, "t", 0, 1), rec(1, "t", 0, 1)

    def story(self) -> Story:
        story = Story()
        story.acknowledged(self.ONE, 0)
        story.acknowledged(self.TWO, 1)
        return story

    def test_committed_and_aborted_ones(self) -> None:
        story = self.story()
        story.ending(1)
        story.acknowledged(rec(2, "t", 0, 2), 3)
        story.ending(2, commit=False)
        story.final(
            [self.ONE, self.TWO, True, rec(2, "t", 0, 2), False], [self.ONE, self.TWO, True, None, False]
        )
        assert story.found() == set()

    @pytest.mark.parametrize("shown", [True, False])
    def test_an_unknown_end_shows_all_or_nothing(self, shown: bool) -> None:
        story = self.story()
        story.ending(1, ended=False)
        story.final([self.ONE, self.TWO, shown], None if shown else [None, None, False])
        assert story.found() == set()

    @pytest.mark.parametrize("ended", [True, False])
    def test_a_part_of_a_transaction(self, ended: bool) -> None:
        story = self.story()
        story.ending(1, ended=ended)
        story.final([self.ONE, self.TWO, True], [self.ONE, None, True])
        assert story.found() == {"half_seen"}

    def test_a_committed_one_is_not_there(self) -> None:
        story = self.story()
        story.ending(1)
        story.final([self.ONE, self.TWO, False], [None, None, False])
        assert story.found() == {"half_seen"}

    def test_one_that_was_seen_stays(self) -> None:
        story = self.story()
        story.ending(1, ended=False)
        story.fetched([self.ONE, self.TWO], read_committed=True)
        story.final([self.ONE, self.TWO, False], [None, None, False])
        assert "half_seen" in story.found()

    def test_an_aborted_one_is_seen(self) -> None:
        story = self.story()
        story.ending(1, commit=False)
        story.final([self.ONE, self.TWO, False])
        assert story.found() == {"aborted_data"}

    def test_one_is_seen_before_its_commit_is_asked_for(self) -> None:
        story = self.story()
        story.fetched([self.ONE, self.TWO], read_committed=True)
        story.ending(1)
        story.final([self.ONE, self.TWO, True])
        assert story.found() == {"aborted_data"}

    def test_one_of_which_a_part_was_deleted(self) -> None:
        story = self.story()
        story.history.deleted_before[P0] = 1
        story.ending(1)
        story.final([self.TWO, True], begin=1)
        assert story.found() == set()

    def test_a_record_of_no_transaction_is_left_out(self) -> None:
        story = Story()
        story.acknowledged(rec(0), 0)
        story.final([rec(0)], [None])
        assert story.found() == {"outside"}

    def test_one_stays_open_for_ever(self) -> None:
        story = self.story()
        story.final([self.ONE, self.TWO], [], high_watermark=2, last_stable_offset=0)
        assert "ends" in story.found()

    def test_two_ends(self) -> None:
        story = self.story()
        story.ending(1)
        story.ending(1, commit=False)
        story.final([self.ONE, self.TWO, True])
        assert "ends" in story.found()


class TestCommittedOffsets:
    def test_the_last_one_is_there(self) -> None:
        story = Story()
        story.offsets_fetched(-1)
        story.committing(5)
        story.committing(3)
        story.offsets_fetched(3)
        assert story.found() == set()

    @pytest.mark.parametrize("wrong", [-1, 5, 99])
    def test_lost_gone_back_or_invented(self, wrong: int) -> None:
        story = Story()
        story.committing(5)
        story.committing(7)
        story.offsets_fetched(wrong)
        assert story.found() == {"committed_offsets"}

    def test_one_that_was_not_answered_may_have_happened_or_not(self) -> None:
        for offset in (5, 7):
            story = Story()
            story.committing(5)
            story.committing(7, answered=False)
            story.offsets_fetched(offset)
            assert story.found() == set()

    def test_once_it_was_seen_it_stays(self) -> None:
        story = Story()
        story.committing(5)
        story.committing(7, answered=False)
        story.offsets_fetched(7)
        story.offsets_fetched(5)
        assert story.found() == {"committed_offsets"}

    def test_it_does_not_happen_after_the_gateway_died(self) -> None:
        story = Story()
        story.committing(5, answered=False)
        story.add(GatewayCrashed(story.tick(), "kill"))
        story.committing(7)
        story.offsets_fetched(5)
        assert story.found() == {"committed_offsets"}

    def test_reads_that_overlap_a_commit_may_see_both(self) -> None:
        for offset in (5, 7):
            story = Story()
            story.committing(5)
            begun = story.tick()
            story.committing(7)
            story.offsets_fetched(offset, asked_at_ms=begun)
            assert story.found() == set()

    def test_offsets_of_a_transaction_come_with_its_commit(self) -> None:
        story = Story()
        story.committing(3)
        story.acknowledged(rec(0, "t", 0, 1), 0)
        story.ending(1, offsets=((P0, 8),))
        story.offsets_fetched(3)
        story.final([rec(0, "t", 0, 1), True])
        assert story.found() == {"committed_offsets"}

    def test_offsets_of_an_aborted_transaction(self) -> None:
        story = Story()
        story.acknowledged(rec(0, "t", 0, 1), 0)
        story.add(TransactionEnding(story.tick(), "t", 0, 1, commit=True, group="g", offsets=((P0, 8),)))
        story.add(TransactionEnded(story.tick(), "t", 0, 1, commit=False))
        story.offsets_fetched(8)
        story.final([rec(0, "t", 0, 1), False], [None, False])
        assert story.found() == {"committed_offsets"}

    @pytest.mark.parametrize(
        ("offset", "shown", "found"),
        [
            (8, False, {"committed_offsets"}),
            (3, True, {"committed_offsets"}),
            (8, True, set[str]()),
            (3, False, set[str]()),
        ],
        ids=["half: the offsets", "half: the records", "all of it", "nothing of it"],
    )
    def test_a_transaction_whose_end_is_unknown(self, offset: int, shown: bool, found: set[str]) -> None:
        story = Story()
        story.committing(3)
        name = rec(0, "t", 0, 1)
        story.acknowledged(name, 0)
        story.ending(1, ended=False, offsets=((P0, 8),))
        story.final([name, shown], [name if shown else None, shown])
        story.offsets_fetched(offset)
        assert story.found() == found


class TestGroups:
    def test_two_owners_in_one_generation(self) -> None:
        story = Story()
        story.add(Assigned(10, "g", "m", 1, frozenset({P0, P1})))
        story.add(Assigned(10, "g", "n", 1, frozenset({P1})))
        assert story.found() == {"owners"}

    def test_owners_change_with_the_generation_or_when_one_lets_go(self) -> None:
        story = Story()
        story.add(Assigned(10, "g", "m", 1, frozenset({P0, P1})))
        story.add(Assigned(20, "g", "n", 2, frozenset({P1})))
        story.add(Assigned(30, "g", "m", 2, frozenset({P0})))
        story.add(Assigned(40, "g", "m", 2, frozenset()))
        story.add(Assigned(50, "g", "n", 2, frozenset({P0, P1})))
        assert story.found() == set()

    def test_an_owner_that_had_not_let_go(self) -> None:
        story = Story()
        story.add(Assigned(10, "g", "m", 1, frozenset({P0, P1})))
        story.add(Assigned(20, "g", "n", 2, frozenset({P1})))
        assert story.found() == set()
        story.add(Assigned(30, "g", "m", 1, frozenset({P0})))
        assert breaches(story.history) == [
            (
                "early_owners: 20 ms: flights-1 was assigned to n in generation 2 of g, and m, which had it "
                "since 10 ms, was still in generation 1 at 30 ms"
            )
        ]

    def test_a_generation_goes_back(self) -> None:
        story = Story()
        story.add(Assigned(10, "g", "m", 2, frozenset()))
        story.add(Assigned(20, "g", "m", 1, frozenset()))
        assert story.found() == {"owners"}

    def test_a_commit_of_an_old_generation(self) -> None:
        story = Story()
        story.add(Assigned(story.tick(), "g", "m", 2, frozenset({P0})))
        story.committing(5, generation=1, member="old")
        story.committing(6, generation=2)
        expected = (
            "old_generations: 30 ms: a commit of old in generation 1 of g was accepted, asked for at 20 ms, "
            "and generation 2 was assigned at 10 ms"
        )
        assert breaches(story.history) == [expected]

    def test_a_commit_of_an_old_epoch_for_a_partition_that_another_member_has(self) -> None:
        story = Story()
        story.add(Assigned(story.tick(), "g", "old", 1, frozenset({P0, P1})))
        story.add(Assigned(story.tick(), "g", "old", 2, frozenset({P0})))
        story.add(Assigned(story.tick(), "g", "m", 2, frozenset({P1})))
        story.committing(5, member_epoch=1, member="old")
        assert story.found() == set()
        story.add(Assigned(story.tick(), "g", "m", 3, frozenset({P0, P1})))
        story.committing(6, member_epoch=2, member="old", answered=False)
        assert story.found() == set()
        story.committing(7, member_epoch=2, member="old")
        expected = (
            "stale_epochs: 90 ms: a commit of old at epoch 2 of g was accepted for flights-0, asked for at "
            "80 ms, and m had the partition at epoch 3 from 60 ms on"
        )
        assert breaches(story.history) == [expected]
