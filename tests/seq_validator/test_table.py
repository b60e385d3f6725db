from __future__ import annotations

import pytest

from seqgate.seq_validator import ACCEPTED, Duplicate, ProducerTable, Rejected, RejectionReason
from seqgate.seq_validator.entry import FIRST_DERIVED_ID, MAX_SEQUENCE
from tests.seq_validator.candidate import Candidate

NOW = 1_000_000


def filled(*batches: Candidate, retained_batches: int = 5) -> ProducerTable:
    """Return a table that has folded in `batches` in order, from offset 100 on."""
    table = ProducerTable(retained_batches=retained_batches)
    offset = 100
    for batch in batches:
        assert table.judge(batch, NOW) is ACCEPTED
        table.update(batch, offset, NOW)
        offset += batch.records
    return table


def reason(table: ProducerTable, batch: Candidate) -> RejectionReason:
    verdict = table.judge(batch, NOW)
    assert isinstance(verdict, Rejected)
    assert str(batch.producer_id) in verdict.message
    return verdict.reason


class TestSequence:
    def test_the_next_sequence_is_accepted(self) -> None:
        table = filled(Candidate(0, 10), Candidate(10, 5))
        assert table.judge(Candidate(15, 3), NOW) is ACCEPTED

    def test_a_gap_is_out_of_order(self) -> None:
        assert reason(filled(Candidate(0, 10)), Candidate(11)) is RejectionReason.OUT_OF_ORDER_SEQUENCE

    @pytest.mark.parametrize("overlap", [Candidate(0, 9), Candidate(0, 11), Candidate(5, 5), Candidate(9, 2)])
    def test_an_overlap_is_out_of_order(self, overlap: Candidate) -> None:
        assert reason(filled(Candidate(0, 10)), overlap) is RejectionReason.OUT_OF_ORDER_SEQUENCE

    def test_the_sequence_wraps_between_batches(self) -> None:
        table = filled(Candidate(MAX_SEQUENCE - 4, 5))
        assert table.judge(Candidate(0), NOW) is ACCEPTED
        assert reason(table, Candidate(1)) is RejectionReason.OUT_OF_ORDER_SEQUENCE

    def test_the_sequence_wraps_inside_a_batch(self) -> None:
        wrapping = Candidate(MAX_SEQUENCE - 1, 5)
        table = filled(wrapping)
        assert table.judge(Candidate(3), NOW) is ACCEPTED
        assert table.judge(wrapping, NOW) == Duplicate(100, 104, 1_000)
        assert reason(table, Candidate(0)) is RejectionReason.OUT_OF_ORDER_SEQUENCE

    def test_an_unknown_producer_may_begin_with_any_sequence(self) -> None:
        assert ProducerTable().judge(Candidate(12_345), NOW) is ACCEPTED

    def test_a_rejected_batch_uses_up_no_sequence(self) -> None:
        table = filled(Candidate(0, 10))
        reason(table, Candidate(50))
        assert table.judge(Candidate(10), NOW) is ACCEPTED


class TestDuplicate:
    def test_each_of_the_last_five_batches_is_recognized(self) -> None:
        batches = [Candidate(n * 3, 3, max_timestamp=n) for n in range(7)]
        table = filled(*batches)
        for n in range(2, 7):
            assert table.judge(batches[n], NOW) == Duplicate(100 + 3 * n, 102 + 3 * n, n)
        assert reason(table, batches[1]) is RejectionReason.OUT_OF_ORDER_SEQUENCE

    def test_a_wider_window_recognizes_older_batches(self) -> None:
        batches = [Candidate(n) for n in range(20)]
        assert filled(*batches, retained_batches=20).judge(batches[0], NOW) == Duplicate(100, 100, 1_000)

    def test_the_window_holds_at_least_one_batch(self) -> None:
        with pytest.raises(ValueError, match="at least 1"):
            ProducerTable(retained_batches=0)


class TestEpoch:
    def test_a_new_epoch_begins_with_sequence_zero(self) -> None:
        table = filled(Candidate(0, 10))
        assert table.judge(Candidate(0, producer_epoch=1), NOW) is ACCEPTED
        assert reason(table, Candidate(10, producer_epoch=1)) is RejectionReason.OUT_OF_ORDER_SEQUENCE
        assert table.judge(Candidate(10), NOW) is ACCEPTED

    def test_the_old_epoch_is_fenced(self) -> None:
        table = filled(Candidate(0), Candidate(0, producer_epoch=1))
        assert reason(table, Candidate(0)) is RejectionReason.INVALID_PRODUCER_EPOCH
        assert reason(table, Candidate(1)) is RejectionReason.INVALID_PRODUCER_EPOCH
        assert table.judge(Candidate(1, producer_epoch=1), NOW) is ACCEPTED

    def test_without_an_epoch_any_order_is_accepted_as_in_kafka(self) -> None:
        table = filled(Candidate(0, producer_epoch=-1), Candidate(9, producer_epoch=-1))
        assert table.judge(Candidate(0, producer_epoch=-1), NOW) == Duplicate(100, 100, 1_000)
        assert table.judge(Candidate(55, producer_epoch=3), NOW) is ACCEPTED


class TestEntries:
    def test_an_entry_shows_the_remembered_batches(self) -> None:
        table = filled(Candidate(0, 10), Candidate(10, 5, max_timestamp=77))
        (entry,) = table
        assert (entry.producer_id, entry.producer_epoch) == (7, 0)
        assert (entry.last_sequence, entry.last_offset, entry.last_timestamp) == (14, 114, 77)
        assert entry.last_active_ms == NOW
        assert (entry.coordinator_epoch, entry.current_transaction_first_offset) == (-1, -1)
        assert [batch.base_offset for batch in entry.batches] == [100, 110]
        assert "next_sequence=15" in repr(entry)

    def test_entries_are_ordered_longest_idle_first(self) -> None:
        table = filled(Candidate(0, producer_id=1), Candidate(0, producer_id=2), Candidate(1, producer_id=1))
        assert [entry.producer_id for entry in table] == [2, 1]
        assert len(table) == 2
        assert table.get(2) is table.longest_idle()
        assert table.get(3) is None


class TestForgetting:
    def test_idle_producers_expire(self) -> None:
        table = ProducerTable()
        for producer_id, now_ms in ((1, 100), (2, 200), (1, 300), (3, 400)):
            table.update(Candidate(producer_id=producer_id), 0, now_ms)
        assert table.expire(1_199, 1_000) == 0
        assert table.expire(1_200, 1_000) == 1
        assert [entry.producer_id for entry in table] == [1, 3]
        assert table.expire(9_999, 1_000) == 2
        assert table.expire(9_999, 1_000) == 0

    def test_a_clock_that_was_set_back_keeps_nobody(self) -> None:
        table = ProducerTable()
        table.update(Candidate(producer_id=1), 0, 1_000_000)
        table.update(Candidate(producer_id=2), 0, 200)
        assert table.expire(300, 1_000) == 0
        assert table.expire(1_300, 1_000) == 2

    def test_derived_producers_stay_as_long_as_their_batches(self) -> None:
        table = ProducerTable()
        ids = (7, FIRST_DERIVED_ID - 1, FIRST_DERIVED_ID, FIRST_DERIVED_ID + 1)
        for number, producer_id in enumerate(ids):
            table.update(Candidate(0, 3, producer_id=producer_id), 100 + 3 * number, 1_000)
        assert table.expire(9_999, 1_000, 106) == 2
        assert table.expire(9_999, 1_000, 108) == 0, "the last record of a batch counts"
        assert table.expire(9_999, 1_000, 109) == 1
        assert [entry.producer_id for entry in table] == [FIRST_DERIVED_ID + 1]
        assert table.expire(9_999, 1_000) == 1

    def test_old_record_timestamps_do_not_make_a_producer_idle(self) -> None:
        table = ProducerTable()
        table.update(Candidate(max_timestamp=0), 0, NOW)
        assert table.expire(NOW + 1, 1_000) == 0

    def test_clear_forgets_all_producers(self) -> None:
        table = filled(Candidate(0))
        table.clear()
        assert len(table) == 0
        assert table.judge(Candidate(9), NOW) is ACCEPTED


class TestDoubt:
    """After damage in the log, any producer without a later sound batch may have had batches in the damaged
    part.
    """

    def test_neither_the_next_sequence_nor_a_gap_is_accepted(self) -> None:
        table = filled(Candidate(0, 10), Candidate(10, 5))
        assert table.doubt(200) == 1
        for base_sequence in (15, 16):
            assert reason(table, Candidate(base_sequence)) is RejectionReason.OUT_OF_ORDER_SEQUENCE
        assert table.judge(Candidate(10, 5), NOW) == Duplicate(110, 114, 1_000)

    def test_a_new_epoch_begins_again(self) -> None:
        table = filled(Candidate(0, 10))
        table.doubt(200)
        table.update(Candidate(0, 1, producer_epoch=1), 300, NOW)
        assert table.judge(Candidate(1, 1, producer_epoch=1), NOW) is ACCEPTED

    def test_one_that_wrote_behind_the_damage_goes_on(self) -> None:
        table = filled(Candidate(0, 10))
        assert table.doubt(109) == 0
        assert table.judge(Candidate(10), NOW) is ACCEPTED
