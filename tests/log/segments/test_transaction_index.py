from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.log.segments.transaction_index import TransactionIndex


def index(*entries: tuple[int, int, int, int]) -> TransactionIndex:
    made = TransactionIndex()
    for entry in entries:
        made.add(*entry)
    return made


def test_the_bytes_are_kafkas() -> None:
    assert bytes(index((7, 1, 4, 5)).entries) == struct.pack(">hqqqq", 0, 7, 1, 4, 5)
    assert index((7, 1, 4, 5)).size_bytes == 34


@given(
    gaps=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9)), max_size=20),
    offset=st.integers(0, 60),
    size=st.integers(0, 30),
)
def test_what_overlaps_is_found(gaps: list[tuple[int, int]], offset: int, size: int) -> None:
    entries = []
    last_offset = 0
    for gap, length in gaps:
        last_offset += gap
        entries.append((7, max(0, last_offset - length), last_offset, 0))
    found: list[tuple[int, int]] = []
    is_complete = index(*entries).collect(offset, offset + size, found)
    assert found == [
        (pid, first) for pid, first, last, _ in entries if last >= offset and first < offset + size
    ]
    assert not is_complete or offset + size == 0


def test_a_stable_offset_beyond_the_range_ends_the_search() -> None:
    found: list[tuple[int, int]] = []
    assert index((7, 1, 4, 5), (8, 2, 6, 9)).collect(0, 5, found)
    assert found == [(7, 1)]


@pytest.mark.parametrize(
    "entries",
    [
        ((7, 1, 1, 2),),
        ((7, 1, 9, 2),),
        ((7, 1, 20, 21),),
        ((7, 1, 12, 14),),
        ((-1, 1, 12, 13),),
        ((7, 1, 12, 13), (8, 2, 12, 13)),
    ],
    ids=["no records", "before the segment", "beyond it", "stable beyond the marker", "no producer", "twice"],
)
def test_what_makes_no_sense(entries: tuple[tuple[int, int, int, int], ...]) -> None:
    assert index((7, 1, 12, 13), (8, 2, 14, 3)).is_sane(10, 20)
    assert not index(*entries).is_sane(10, 20)


def test_a_torn_or_later_file_makes_no_sense() -> None:
    assert not TransactionIndex(bytes(index((7, 1, 12, 13)).entries)[:-1]).is_sane(10, 20)
    assert not TransactionIndex(struct.pack(">hqqqq", 1, 7, 1, 12, 13)).is_sane(10, 20)
