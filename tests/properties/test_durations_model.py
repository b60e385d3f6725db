"""Durations against a list of all durations, each as often as its weight says."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.durations import BOUNDS_S, Durations

LENGTHS = st.one_of(st.sampled_from(BOUNDS_S), st.floats(0, 100, allow_nan=False))
ADDED = st.lists(st.tuples(LENGTHS, st.integers(1, 20)))


def added(entries: list[tuple[float, int]]) -> Durations:
    durations = Durations()
    for duration_s, weight in entries:
        durations.add(duration_s, weight)
    return durations


def check(durations: Durations, entries: list[tuple[float, int]]) -> None:
    every = [duration_s for duration_s, weight in entries for _ in range(weight)]
    at_most = [sum(duration_s <= bound for duration_s in every) for bound in (*BOUNDS_S, math.inf)]
    cumulative = [sum(durations.counts[: number + 1]) for number in range(len(durations.counts))]
    assert cumulative == at_most
    assert durations.count == len(every)
    assert math.isclose(durations.sum_s, math.fsum(every), abs_tol=1e-6)


@given(ADDED, ADDED)
def test_buckets_count_and_sum(one: list[tuple[float, int]], two: list[tuple[float, int]]) -> None:
    check(added(one), one)
    check(added(one) + added(two), [*one, *two])
