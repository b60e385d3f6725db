"""A histogram of durations."""

from __future__ import annotations

import pytest

from seqgate.gateway.durations import BOUNDS_S, Durations


def test_the_bounds_ascend() -> None:
    assert list(BOUNDS_S) == sorted(set(BOUNDS_S))


@pytest.mark.parametrize(("number", "bound"), list(enumerate(BOUNDS_S)))
def test_a_bound_belongs_to_its_bucket(number: int, bound: float) -> None:
    durations = Durations()
    durations.add(bound)
    assert durations.counts[number] == 1
    durations.add(bound * 1.000001)
    assert durations.counts[number + 1] == 1


def test_none_and_endless() -> None:
    durations = Durations()
    durations.add(0.0)
    durations.add(1e9)
    assert (durations.counts[0], durations.counts[-1], durations.count) == (1, 1, 2)
    assert durations.sum_s == 1e9


def test_a_sample_stands_for_several() -> None:
    durations = Durations()
    durations.add(0.5, 16)
    assert (durations.count, durations.sum_s) == (16, 8.0)


def test_a_sum_leaves_both_unchanged() -> None:
    one, two = Durations(), Durations()
    one.add(0.001)
    two.add(0.002, 3)
    both = one + two
    assert (both.count, both.sum_s) == (4, pytest.approx(0.007))
    assert (one.count, two.count) == (1, 3)
