"""Ranges of offsets behave like a set of offsets."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqgate.log.state.transactions import OffsetRanges

OFFSETS = st.integers(0, 40)


def naive_first_outside(naive: set[int], offset: int) -> int:
    while offset in naive:
        offset += 1
    return offset


def spread(ranges: list[tuple[int, int]]) -> list[int]:
    return [offset for first, last in ranges for offset in range(first, last + 1)]


@given(
    st.sets(OFFSETS),
    st.lists(st.tuples(st.sampled_from(("one", "all", "below")), OFFSETS), max_size=30),
    st.tuples(OFFSETS, OFFSETS),
)
@settings(max_examples=200, deadline=None)
def test_as_a_set(added: set[int], taken: list[tuple[str, int]], asked: tuple[int, int]) -> None:
    ranges = OffsetRanges()
    naive = set(added)
    for offset in sorted(added):
        ranges.append(offset)
    for way, offset in taken:
        if way == "all":
            many = sorted({offset, offset + 1, offset // 2, 40 - offset})
            assert ranges.discard_all(many) == len(naive.intersection(many))
            naive.difference_update(many)
        elif way == "below":
            gone = {other for other in naive if other < offset}
            assert ranges.discard_below(offset) == len(gone)
            naive -= gone
        else:
            assert ranges.discard(offset) == (offset in naive)
            naive.discard(offset)
        assert ranges.count == len(naive)
        assert ranges.first == min(naive, default=None)
    found = ranges.within(*asked)
    assert spread(found) == sorted(offset for offset in naive if asked[0] <= offset <= asked[1])
    assert all(before[1] + 1 < after[0] for before, after in pairwise(found))
    for offset in range(42):
        assert (offset in ranges) == (offset in naive)
        assert ranges.first_outside(offset) == naive_first_outside(naive, offset)


def test_only_above_all_others() -> None:
    ranges = OffsetRanges()
    ranges.append(5)
    for offset in (5, 4):
        with pytest.raises(ValueError, match="must be above the last offset 5"):
            ranges.append(offset)
