from __future__ import annotations

from seqgate.seq_validator import Duplicate


def test_duplicates_compare_by_value() -> None:
    assert Duplicate(1, 2, 3) == Duplicate(1, 2, 3)
