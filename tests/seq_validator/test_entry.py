from __future__ import annotations

from seqgate.seq_validator.entry import MAX_SEQUENCE, following, last_of


def test_the_next_sequence_wraps_to_zero() -> None:
    assert following(41) == 42
    assert following(MAX_SEQUENCE - 1) == MAX_SEQUENCE
    assert following(MAX_SEQUENCE) == 0


def test_a_batch_may_wrap_itself() -> None:
    assert last_of(10, 0) == 10
    assert last_of(MAX_SEQUENCE - 1, 1) == MAX_SEQUENCE
    assert last_of(MAX_SEQUENCE - 1, 4) == 2
