"""Scripts of faults: the same seed gives the same faults, in bounds."""

from __future__ import annotations

from itertools import groupby

import pytest

from seqgate.gateway.testing.faults import (
    MOST_IN_A_ROW,
    Effect,
    Kind,
    RandomEffects,
    RequestFacts,
    possible_effects,
)

PRODUCE = RequestFacts("Produce", "c", ("t",))


def picks(seed: int, rate: float = 0.5, count: int = 2_000) -> list[Effect | None]:
    effects = RandomEffects(seed, rate)
    return [effects.pick(PRODUCE) for _ in range(count)]


def test_a_seed_gives_the_same_faults_each_time_and_another_seed_others() -> None:
    assert picks(1) == picks(1)
    assert picks(1) != picks(2)


def test_every_effect_comes_and_none_that_a_client_does_not_retry() -> None:
    assert {each for each in picks(1) if each} == set(possible_effects("Produce"))
    assert {each.kind for each in possible_effects("ApiVersions")} == {
        Kind.DROP_ANSWER,
        Kind.CLOSE,
        Kind.DELAY,
        Kind.THROTTLE,
    }


@pytest.mark.parametrize("rate", [0.05, 0.5, 1.0])
def test_a_client_that_retries_gets_on(rate: float) -> None:
    rows = [len(list(row)) for struck, row in groupby(picks(3, rate), key=bool) if struck]
    assert max(rows) <= MOST_IN_A_ROW


def test_the_rate_is_about_what_was_ordered() -> None:
    struck = sum(each is not None for each in picks(5, 0.1, 10_000))
    assert 900 < struck < 1_100


def test_kinds_choose_among_the_effects() -> None:
    effects = RandomEffects(1, 1.0, [Kind.CLOSE])
    assert {effects.pick(PRODUCE) for _ in range(50)} == {None, Effect(Kind.CLOSE)}
