"""The pauses of the thread that reads the charts' figures."""

from __future__ import annotations

import pytest

from seqgate.gateway.console.metrics.sampler import EVERY_S, FIRST_EVERY_S, FIRST_ROUNDS, IDLE_EVERY, pause_s


@pytest.mark.parametrize(
    ("taken_s", "pause"), [(0.0, FIRST_EVERY_S), (0.5, FIRST_EVERY_S - 0.5), (30.0, 0.1)]
)
def test_the_first_rounds_open_connections_and_are_followed_by_the_second_at_once(
    taken_s: float, pause: float
) -> None:
    assert pause_s(taken_s, FIRST_ROUNDS) == pytest.approx(pause)


@pytest.mark.parametrize("taken_s", [0.5, 30.0])
def test_a_later_round_that_is_slow_is_followed_by_a_longer_pause(taken_s: float) -> None:
    assert pause_s(taken_s, FIRST_ROUNDS + 1) == pytest.approx(taken_s * IDLE_EVERY)


def test_a_later_round_that_is_quick_keeps_time() -> None:
    assert pause_s(0.05, FIRST_ROUNDS + 1) == pytest.approx(EVERY_S - 0.05)
