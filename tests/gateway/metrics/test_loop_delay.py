"""How late the event loop runs what is due."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from seqgate.gateway.metrics.metric import PROBE_EVERY_S, LoopDelay


class FakeLoop:
    """A loop that calls back when a test says so."""

    def __init__(self) -> None:
        self.now_s = 50.0
        self.due: list[tuple[float, Callable[..., object], tuple[Any, ...]]] = []
        self.cancelled = 0

    def time(self) -> float:
        return self.now_s

    def call_at(self, due_s: float, callback: Callable[..., object], *given: Any) -> FakeLoop:
        self.due.append((due_s, callback, given))
        return self

    def cancel(self) -> None:
        self.cancelled += 1

    def run_next(self, late_s: float) -> None:
        due_s, callback, given = self.due.pop(0)
        self.now_s = due_s + late_s
        callback(*given)


def test_each_delay_counts() -> None:
    loop: Any = FakeLoop()
    delay = LoopDelay(loop)
    delay.start()
    for late_s in (0.0, 0.25, -0.001, 3.0):  # a timer may come a little early
        loop.run_next(late_s)
        assert [due_s for due_s, *_ in loop.due] == [pytest.approx(loop.now_s + PROBE_EVERY_S)]
    assert delay.durations.count == 4
    assert delay.durations.sum_s == pytest.approx(3.25)
    assert delay.durations.counts[0] == 2
    delay.stop()
    assert loop.cancelled == 1


def test_a_stop_without_a_start() -> None:
    loop: Any = FakeLoop()
    LoopDelay(loop).stop()
