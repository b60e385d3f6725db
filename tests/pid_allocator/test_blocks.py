from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.pid_allocator import (
    MAX_PRODUCER_ID,
    ProducerIdBlock,
    ProducerIdsExhausted,
    block_at,
    overlaps,
    owner_of,
)


def block(first: int, last: int, claimed_at_ms: int = 0) -> ProducerIdBlock:
    return ProducerIdBlock(first, last, "a", claimed_at_ms)


def test_a_block_includes_both_its_ends() -> None:
    one = block_at(1_000, 1_000, "a", 5)
    assert (one.first_producer_id, one.last_producer_id, one.size, one.next_producer_id) == (
        1_000,
        1_999,
        1_000,
        2_000,
    )
    assert 1_000 in one
    assert 1_999 in one
    assert 999 not in one
    assert 2_000 not in one


@pytest.mark.parametrize(("first", "last"), [(-1, 5), (5, 4), (0, MAX_PRODUCER_ID + 1)])
def test_no_block_leaves_the_64_bits(first: int, last: int) -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        block(first, last)


def test_the_last_block_ends_with_the_last_id() -> None:
    assert block_at(MAX_PRODUCER_ID - 9, 10, "a", 0).last_producer_id == MAX_PRODUCER_ID
    with pytest.raises(ProducerIdsExhausted):
        block_at(MAX_PRODUCER_ID - 8, 10, "a", 0)
    with pytest.raises(ValueError, match="must be at least 1"):
        block_at(0, 0, "a", 0)


def test_an_id_belongs_to_the_block_claimed_first() -> None:
    early, late = block(0, 9, 1), block(5, 14, 2)
    assert owner_of([late, early], 7) is early
    assert owner_of([late, early], 14) is late
    assert owner_of([late, early], 15) is None


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 15)), max_size=12))
def test_overlaps_name_every_pair(ranges: list[tuple[int, int]]) -> None:
    claimed = [block(first, first + size - 1, n) for n, (first, size) in enumerate(ranges)]
    found = overlaps(claimed)
    shared = {
        (frozenset((one.claimed_at_ms, other.claimed_at_ms)), producer_id)
        for one in claimed
        for other in claimed
        if one is not other
        for producer_id in range(60)
        if producer_id in one and producer_id in other
    }
    assert shared == {
        (frozenset((pair.lower.claimed_at_ms, pair.upper.claimed_at_ms)), producer_id)
        for pair in found
        for producer_id in range(pair.first_producer_id, pair.last_producer_id + 1)
    }
    assert len(found) == len(
        {frozenset((pair.lower.claimed_at_ms, pair.upper.claimed_at_ms)) for pair in found}
    )
