"""Notices that the machine's clock was set, so that what waits for a time goes on waiting for as long as it should.

Sessions of members, rebalances and locks of share groups last a while, whatever the clock says meanwhile: Kafka measures
them with a clock that is never set. Here their deadlines are wall-clock times, which move with the clock instead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from gateway.runtime.loop.clock import Clock

logger = logging.getLogger(__name__)

TOLERATED_MS: Final = 1000
"""Smaller corrections are taken for what clocks do."""


class ClockChanges:
    """A clock that looks, each time it is asked, whether the one behind it was set; `listeners` get by how many ms."""

    def __init__(self, clock: Clock, seconds: Callable[[], float]) -> None:
        """Compare `clock` with `seconds`, which only ever goes on."""
        self._clock = clock
        self._seconds = seconds
        self._ahead_ms = self._look()[1]
        self.listeners: list[Callable[[int], None]] = []

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, after the listeners were told of a change."""
        now_ms, ahead_ms = self._look()
        by_ms = ahead_ms - self._ahead_ms
        self._ahead_ms = ahead_ms
        if abs(by_ms) > TOLERATED_MS:
            logger.warning("the clock was set by %.1f s", by_ms / 1000)
            for listener in self.listeners:
                listener(round(by_ms))
        return now_ms

    def _look(self) -> tuple[int, float]:
        now_ms = self._clock.now_ms()
        return now_ms, now_ms - self._seconds() * 1000
