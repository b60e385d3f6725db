"""Notices when the machine's clock is set, so that deadlines move with the clock.

Sessions of members, rebalances and locks of share groups last a fixed time, whatever the clock does. Kafka measures
that time with a clock that is never set. Here the deadlines are wall-clock times, so they move when the clock is set.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from gateway.runtime.loop.clock import Clock

logger = logging.getLogger(__name__)

TOLERATED_MS: Final = 1000
"""Smaller jumps are ordinary corrections of a clock and are ignored."""


class ClockChanges:
    """A clock that checks at each call whether the machine's clock was set, and then passes the jump (ms) to
    `listeners`.
    """

    def __init__(self, clock: Clock, seconds: Callable[[], float]) -> None:
        """Compare `clock` with `seconds`, a clock that is never set."""
        self._clock = clock
        self._seconds = seconds
        self._ahead_ms = clock.now_ms() - seconds() * 1000
        self.listeners: list[Callable[[int], None]] = []

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch. If the clock was set, call the listeners first."""
        now_ms = self._clock.now_ms()
        ahead_ms = now_ms - self._seconds() * 1000
        by_ms = ahead_ms - self._ahead_ms
        self._ahead_ms = ahead_ms
        if not -TOLERATED_MS <= by_ms <= TOLERATED_MS:
            logger.warning("the clock was set by %.1f s", by_ms / 1000)
            for listener in self.listeners:
                listener(round(by_ms))
        return now_ms
