from __future__ import annotations

from seqgate.seq_validator import ACCEPTED, Accepted, Duplicate


def test_there_is_one_accepted() -> None:
    assert Accepted() is ACCEPTED
    assert repr(ACCEPTED) == "ACCEPTED"


def test_duplicates_compare_by_value() -> None:
    assert Duplicate(1, 2, 3) == Duplicate(1, 2, 3)
