from __future__ import annotations

import pytest

from seqgate.gateway.coordinator.deadlines import NEVER
from seqgate.gateway.runtime.loop.clock import Deadlines
from tests.gateway.handlers.support import NOW_MS, FixedClock


class TestDeadlines:
    """One timer visits the keys that are due, and no others."""

    def deadlines(self, next_ms: dict[int, int]) -> Deadlines[int]:
        """Return deadlines of keys whose next ones are in `next_ms`, and note the visits."""
        self.visited: list[int] = []

        def release(key: int, now_ms: int) -> int:
            self.visited.append(key)
            return next_ms.get(key, NEVER)

        return Deadlines(FixedClock(), release)

    async def test_a_time_costs_the_keys_that_are_due(self) -> None:
        keys = range(1_000)
        next_ms = {key: NOW_MS + 60_000 + key for key in keys}
        deadlines = self.deadlines(next_ms)
        for key in keys:
            deadlines.set(key, next_ms[key])
        for index in (700, 3, 40):
            deadlines.set(index, NOW_MS + 10 + index)
        deadlines.release_due(NOW_MS + 9)
        assert self.visited == []
        deadlines.release_due(NOW_MS + 50)
        assert self.visited == [3, 40], "the earliest first"
        deadlines.release_due(NOW_MS + 60_001)
        assert self.visited == [3, 40, 700, 0, 1]
        deadlines.stop()

    async def test_a_deadline_that_became_later_is_asked_for_once(self) -> None:
        key = 0
        next_ms = {key: NOW_MS + 90}
        deadlines = self.deadlines(next_ms)
        for later_ms in (10, 50, 90):
            deadlines.set(key, NOW_MS + later_ms)
        deadlines.release_due(NOW_MS + 89)
        assert self.visited == [0]
        next_ms.clear()
        deadlines.release_due(NOW_MS + 90)
        assert self.visited == [0, 0]
        deadlines.release_due(NOW_MS + 900)
        assert self.visited == [0, 0]
        deadlines.stop()

    async def test_replaced_deadlines_do_not_pile_up(self) -> None:
        """Each retry is due long before the lock of another record, which becomes the next one again."""
        key = 0
        lock_ms = NOW_MS + 1_000_000
        deadlines = self.deadlines({key: lock_ms})
        deadlines.set(key, lock_ms)
        for number in range(10_000):
            deadlines.set(key, NOW_MS + number)
            deadlines.release_due(NOW_MS + number)
        assert self.visited == [0] * 10_000
        assert len(deadlines) < 200
        deadlines.stop()

    async def test_they_move_with_the_clock(self) -> None:
        keys = range(2)
        deadlines = self.deadlines({})
        for key in keys:
            deadlines.set(key, NOW_MS + 10 + key)
        deadlines.clock_was_set(-5_000)
        deadlines.release_due(NOW_MS - 5_000 + 9)
        assert self.visited == []
        deadlines.release_due(NOW_MS - 5_000 + 10)
        assert self.visited == [0]
        deadlines.stop()

    async def test_an_error_at_one_leaves_the_others_due(self) -> None:
        visited = []

        def release(key: int, now_ms: int) -> int:
            visited.append(key)
            if len(visited) == 1:
                raise ValueError(key)
            return NEVER

        deadlines = Deadlines(FixedClock(), release)
        for key in range(3):
            deadlines.set(key, NOW_MS + key)
        with pytest.raises(ValueError, match="0"):
            deadlines.release_due(NOW_MS + 9)
        deadlines.release_due(NOW_MS + 9)
        assert visited == [0, 1, 2]
        deadlines.stop()
