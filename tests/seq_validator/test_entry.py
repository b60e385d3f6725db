from __future__ import annotations

from seqgate.seq_validator.entry import MAX_SEQUENCE, following


def test_the_next_sequence_wraps_to_zero() -> None:
    assert following(41) == 42
    assert following(MAX_SEQUENCE - 1) == MAX_SEQUENCE
    assert following(MAX_SEQUENCE) == 0
