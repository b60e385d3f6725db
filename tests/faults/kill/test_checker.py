"""The checker finds every planted breach."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.faults.kill.checker import Ledger, RecordName, check, summary

Rows = dict[int, list[tuple[int, bytes]]]


def _names(partition: int, count: int = 6) -> list[RecordName]:
    return [RecordName("p", 0, partition, number) for number in range(count)]


def _ledger(*, acknowledged: int = 5) -> Ledger:
    ledger = Ledger("p", sent=Counter({(0, 0): 6, (0, 1): 6}))
    for partition in (0, 1):
        for name in _names(partition)[:acknowledged]:
            ledger.acknowledged[name] = name.number
    return ledger


def _rows() -> Rows:
    return {partition: [(name.number, name.encode()) for name in _names(partition)] for partition in (0, 1)}


def _renumbered(rows: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    return [(offset, value) for offset, (_, value) in enumerate(rows)]


def test_a_faultless_log_passes() -> None:
    assert check([_ledger()], _rows()) == []


def test_an_unacknowledged_record_may_be_missing() -> None:
    rows = _rows()
    rows[1].pop()
    assert check([_ledger()], rows) == []


def test_an_acknowledged_record_is_missed() -> None:
    rows = _rows()
    del rows[0][2]
    rows[0] = _renumbered(rows[0])
    breaches = check([_ledger()], rows)
    assert any("number=2) was acknowledged at offset 2 and is lost" in breach for breach in breaches)
    assert any("number=3) was acknowledged at offset 3 and is at 2" in breach for breach in breaches)


def test_a_whole_partition_is_missed() -> None:
    rows = _rows()
    rows[1] = []
    assert len(check([_ledger()], rows)) == 5


@pytest.mark.parametrize("number", [1, 5])
def test_a_doubled_record_is_found_acknowledged_or_not(number: int) -> None:
    rows = _rows()
    rows[0].append((6, _names(0)[number].encode()))
    breaches = check([_ledger()], rows)
    assert len(breaches) == 1
    assert "is doubled" in breaches[0]


def test_a_record_doubled_in_another_partition_is_found() -> None:
    rows = _rows()
    rows[1].append((6, _names(0)[1].encode()))
    breaches = check([_ledger()], rows)
    assert any("was not sent there" in breach for breach in breaches)
    assert any("is doubled" in breach for breach in breaches)


def test_swapped_records_are_found() -> None:
    ledger = _ledger(acknowledged=0)
    rows = _rows()
    rows[0][2], rows[0][3] = rows[0][3], rows[0][2]
    rows[0] = _renumbered(rows[0])
    (breach,) = check([ledger], rows)
    assert "comes after number 3" in breach


def test_a_wrong_offset_is_found() -> None:
    ledger = _ledger()
    ledger.acknowledged[_names(0)[1]] = 4
    (breach,) = check([ledger], _rows())
    assert "acknowledged at offset 4 and is at 1" in breach


def test_an_acknowledgement_without_offset_still_asks_for_the_record() -> None:
    ledger = _ledger()
    ledger.acknowledged[_names(0)[1]] = -1
    assert check([ledger], _rows()) == []
    rows = _rows()
    rows[0] = rows[0][:1]
    assert any("lost" in breach for breach in check([ledger], rows))


def test_a_gap_in_the_offsets_is_found() -> None:
    rows = _rows()
    rows[0] = [(offset + (offset > 2), value) for offset, value in rows[0]]
    assert any("expected offset 3" in breach for breach in check([_ledger()], rows))


@pytest.mark.parametrize("value", [b"", b"p/0/0", b"q/0/0/1", b"p/0/0/6", b"p/7/0/0", b"\xff/0/0/0"])
def test_a_record_that_nobody_sent_is_found(value: bytes) -> None:
    rows = _rows()
    rows[0].append((6, value))
    assert check([_ledger()], rows)


def test_incarnations_are_counted_and_kept_apart() -> None:
    ledger = _ledger()
    ledger.sent[1, 0] = 1
    again = RecordName("p", 1, 0, 0)
    ledger.acknowledged[again] = 6
    rows = _rows()
    rows[0].append((6, again.encode()))
    assert check([ledger], rows) == []
    assert ledger.incarnations == 2


def test_the_summary_is_short() -> None:
    text = summary([f"breach {number}" for number in range(100)])
    assert text.startswith("100 breaches")
    assert len(text.splitlines()) == 11


class TestOfALogWhoseStartMoved:
    def test_what_lies_before_it_may_be_missing(self) -> None:
        rows = _rows()
        rows[0] = rows[0][3:]
        assert check([_ledger()], rows, {0: 3}) == []
        assert len(check([_ledger()], rows)) > 1

    def test_what_lies_behind_it_may_not(self) -> None:
        rows = _rows()
        rows[0] = _renumbered(rows[0])[4:]
        breaches = check([_ledger()], rows, {0: 3, 1: 0})
        assert "partition 0 offset 4: expected offset 3" in breaches
        assert any("number=3) was acknowledged at offset 3 and is lost" in breach for breach in breaches)
