"""The offset to which `seqgate groups reset` moves a group."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.admin.groups.reset import (
    NOTHING_SO_LATE,
    TO_HIGH_WATERMARK,
    TO_LOG_START,
    NewOffset,
    NoCommittedOffset,
    PartitionOffsets,
    ResetTarget,
    new_offset,
)

LOG = PartitionOffsets(100, 200, committed_offset=150)


@pytest.mark.parametrize(
    ("target", "value", "expected"),
    [
        ("earliest", 0, NewOffset(100)),
        ("latest", 0, NewOffset(200)),
        ("offset", 100, NewOffset(100)),
        ("offset", 123, NewOffset(123)),
        ("offset", 200, NewOffset(200)),
        ("offset", 99, NewOffset(100, TO_LOG_START)),
        ("offset", -5, NewOffset(100, TO_LOG_START)),
        ("offset", 201, NewOffset(200, TO_HIGH_WATERMARK)),
        ("offset", 2**80, NewOffset(200, TO_HIGH_WATERMARK)),
        ("shift", 0, NewOffset(150)),
        ("shift", -50, NewOffset(100)),
        ("shift", 50, NewOffset(200)),
        ("shift", -51, NewOffset(100, TO_LOG_START)),
        ("shift", 51, NewOffset(200, TO_HIGH_WATERMARK)),
    ],
)
def test_targets(target: ResetTarget, value: int, expected: NewOffset) -> None:
    assert new_offset(target, value, LOG) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, NewOffset(200, NOTHING_SO_LATE)),
        (100, NewOffset(100)),
        (199, NewOffset(199)),
        # a record that is written but not yet visible
        (200, NewOffset(200, NOTHING_SO_LATE)),
        (205, NewOffset(200, NOTHING_SO_LATE)),
    ],
)
def test_timestamps(found: int | None, expected: NewOffset) -> None:
    assert new_offset("timestamp", 1, LOG._replace(at_timestamp=found)) == expected


def test_a_committed_offset_outside_of_the_log_is_shifted_as_it_is() -> None:
    assert new_offset("shift", 5, LOG._replace(committed_offset=98)) == NewOffset(103)
    assert new_offset("shift", 1, LOG._replace(committed_offset=98)) == NewOffset(100, TO_LOG_START)


def test_without_a_committed_offset_there_is_nothing_to_shift() -> None:
    with pytest.raises(NoCommittedOffset):
        new_offset("shift", 0, LOG._replace(committed_offset=None))
    for target in set(get_args(ResetTarget)) - {"shift"}:
        new_offset(target, 0, LOG._replace(committed_offset=None))


@given(
    st.sampled_from(get_args(ResetTarget)),
    st.integers(),
    st.integers(0, 50),
    st.integers(0, 50),
    st.integers(0, 200),
    st.none() | st.integers(0, 200),
)
def test_a_consumer_can_always_read_from_there(
    target: ResetTarget, value: int, start: int, length: int, committed: int, found: int | None
) -> None:
    known = PartitionOffsets(start, start + length, committed, found)
    assert start <= new_offset(target, value, known).offset <= start + length
