"""The check of transactions finds every planted breach."""

from __future__ import annotations

import pytest

from tests.faults.kill.checker import RecordName
from tests.faults.processes.transactions.ledger import End, Transaction, TransactionLedger, check

ENDS = (End.COMMITTED, End.NONE, End.IN_DOUBT, End.COMMITTED)
SIZES = (2, 1)
LAST = len(ENDS) - 1

Values = dict[int, list[bytes]]


def _ledger() -> TransactionLedger:
    return TransactionLedger("p", {number: Transaction(SIZES, end) for number, end in enumerate(ENDS)})


def _values(*transactions: int) -> Values:
    return {
        partition: [
            RecordName("p", number, partition, index).encode()
            for number in transactions
            for index in range(size)
        ]
        for partition, size in enumerate(SIZES)
    }


def _breaches(visible: Values, stored: Values | None = None, offset: int = LAST + 1) -> list[str]:
    rows, all_rows = (
        {partition: list(enumerate(found)) for partition, found in values.items()}
        for values in (visible, _values(*range(len(ENDS))) if stored is None else stored)
    )
    return check([_ledger()], rows, all_rows, {"p": offset})


@pytest.mark.parametrize("visible", [(0, 3), (0, 2, 3)])
def test_a_transaction_in_doubt_is_whole_or_not_there(visible: tuple[int, ...]) -> None:
    assert _breaches(_values(*visible)) == []


def test_a_committed_one_that_is_lost_is_found() -> None:
    assert _breaches(_values(3)) == ["transaction 0 of p was committed and is lost"]


def test_one_that_nobody_committed_is_found() -> None:
    (breach,) = _breaches(_values(0, 1, 3))
    assert breach.startswith("transaction 1 of p is visible")


@pytest.mark.parametrize("number", [0, 2])
def test_a_torn_one_is_found(number: int) -> None:
    visible = _values(0, 2, 3)
    visible[1].remove(RecordName("p", number, 1, 0).encode())
    assert _breaches(visible) == [f"transaction {number} of p is torn: 2 of 3 records are visible"]


@pytest.mark.parametrize("number", [0, 1])
def test_a_doubled_record_is_found_even_if_it_was_aborted(number: int) -> None:
    stored = _values(0, 1, 2, 3)
    stored[0].append(RecordName("p", number, 0, 0).encode())
    (breach,) = _breaches(_values(0, 3), stored)
    assert breach.endswith("is doubled")


@pytest.mark.parametrize("places", [(0, 1), (1, 2)])
def test_records_in_another_order_are_found(places: tuple[int, int]) -> None:
    visible = _values(0, 3)
    first, second = places
    visible[0][first], visible[0][second] = visible[0][second], visible[0][first]
    assert all("comes after" in breach for breach in _breaches(visible))
    assert _breaches(visible)


@pytest.mark.parametrize("value", [b"unacknowledged", b"p/9/0/0", b"p/0/1/0", b"p/0/0/2", b"q/0/0/0"])
def test_a_record_that_nobody_sent_there_is_found(value: bytes) -> None:
    visible = _values(0, 3)
    visible[0].append(value)
    (breach,) = _breaches(visible)
    assert breach == f"partition 0 offset 4: nobody sent {value!r}"


@pytest.mark.parametrize("offset", [-1, 1, 3])
def test_an_offset_of_another_transaction_is_found(offset: int) -> None:
    assert _breaches(_values(0, 3), offset=offset) == [f"the group of p has offset {offset} instead of 4"]


def test_no_offset_is_expected_of_a_producer_without_transactions() -> None:
    assert check([TransactionLedger("p")], {}, {}, {}) == []
