from __future__ import annotations

from seqgate.log.state.transactions import OngoingTransactions


def test_none_is_nothing_to_wait_for() -> None:
    transactions = OngoingTransactions()
    assert not transactions.undecided
    assert not transactions.held
    assert transactions.first_unstable_offset(9) is None


def test_loaded_ones_come_in_order() -> None:
    transactions = OngoingTransactions([(30, 3), (10, 1), (20, 2)])
    assert transactions.open_transactions() == [(10, 1), (20, 2), (30, 3)]
    assert transactions.first_unstable_offset(0) == 10


def test_the_end_of_one_gives_way_to_the_next_open_one() -> None:
    transactions = OngoingTransactions([(10, 1), (20, 2)])
    assert transactions.end(10, 40, 30) == 20
    assert transactions.end(20, 41, 30) == 42
    assert transactions.open_transactions() == []


def test_an_ended_one_counts_until_its_marker_is_below_the_high_watermark() -> None:
    transactions = OngoingTransactions([(10, 1)])
    transactions.end(10, 40, 30)
    transactions.begin(1, 41)
    assert transactions.first_unstable_offset(40) == 10
    assert transactions.first_unstable_offset(41) == 41


def test_nobody_has_to_read_for_the_ended_ones_to_go() -> None:
    transactions = OngoingTransactions()
    for offset in range(0, 100, 2):
        transactions.begin(1, offset)
        transactions.end(offset, offset + 1, offset)
    assert len(transactions.undecided) == len(transactions._ended) == 1


def test_held_ones_stay_undecided_until_the_damage_is_deleted() -> None:
    transactions = OngoingTransactions([(20, 2)])
    transactions.hold(10, until_log_start=30)
    transactions.end(20, 40, 41)
    transactions.log_start_moved(29)
    assert (bool(transactions.held), transactions.first_unstable_offset(41)) == (True, 10)
    transactions.log_start_moved(30)
    assert (bool(transactions.held), transactions.first_unstable_offset(41)) == (False, None)
