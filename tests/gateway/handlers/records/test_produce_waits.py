"""A wait for a bucket ends once: by the records' fate, or when its time is up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from seqgate.gateway.handlers.records.produce_append import LOOK_S, ProduceWaits


class Clock:
    """The clock and timers of an event loop."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self.timers.append((self.now_s + delay_s, callback))

    def advance(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while self.timers and self.timers[0][0] <= end_s:
            self.now_s, callback = self.timers.pop(0)
            callback()
        self.now_s = end_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def waits(clock: Clock) -> ProduceWaits:
    loop: Any = clock
    return ProduceWaits(loop)


def add(waits: ProduceWaits, ends: list[str], timeout_ms: int, name: str = "") -> Callable[[bool], None]:
    def decided(persisted: bool) -> None:
        ends.append(f"{name}{persisted}")

    return waits.limited(timeout_ms, decided, partial(ends.append, f"{name}expired"))


@pytest.mark.parametrize("persisted", [True, False])
def test_a_decision_in_time_is_passed_on(clock: Clock, waits: ProduceWaits, persisted: bool) -> None:
    ends: list[str] = []
    decide = add(waits, ends, 5_000)
    clock.advance(4)
    decide(persisted)
    clock.advance(60)
    assert ends == [str(persisted)]
    assert not waits
    assert not clock.timers, "nothing is looked at while nothing waits"


def test_a_decision_after_the_time_changes_nothing(clock: Clock, waits: ProduceWaits) -> None:
    ends: list[str] = []
    decide = add(waits, ends, 5_000)
    clock.advance(4.9)
    assert not ends
    clock.advance(0.1 + LOOK_S)
    assert ends == ["expired"]
    assert not waits
    decide(True)
    assert ends == ["expired"]


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31)])
def test_who_gives_no_time_is_answered_at_the_next_look(
    clock: Clock, waits: ProduceWaits, timeout_ms: int
) -> None:
    ends: list[str] = []
    add(waits, ends, timeout_ms)
    assert not ends, "the caller is not called amid its call"
    clock.advance(LOOK_S)
    assert ends == ["expired"]


def test_each_wait_has_its_own_time(clock: Clock, waits: ProduceWaits) -> None:
    ends: list[str] = []
    add(waits, ends, 30_000, "patient ")
    add(waits, ends, 2_000, "hasty ")
    clock.advance(10)
    assert ends == ["hasty expired"]
    assert len(waits) == 1
    clock.advance(30)
    assert ends == ["hasty expired", "patient expired"]
