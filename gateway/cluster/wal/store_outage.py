"""Log lines about a store that does not answer: one when it is away, one each half minute, and one when it is back."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

logger = logging.getLogger(__name__)

AWAY_AFTER_S: Final = 1.0
"""A store whose calls have failed for less than this is not reported."""
REPEATED_EVERY_S: Final = 30.0


class StoreOutage:
    """The calls that have failed since the last one that succeeded. `seconds` is a clock that is never set."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._begun_s: float | None = None
        self._reported_s: float | None = None
        self._failures = 0

    def failed(self, error: BaseException, what: str) -> None:
        """Note a failed call; `what` says what waits for the store."""
        now_s = self._seconds()
        self._failures += 1
        if self._begun_s is None:
            self._begun_s = now_s
        away_s = now_s - self._begun_s
        last_s = (
            self._begun_s - REPEATED_EVERY_S + AWAY_AFTER_S if self._reported_s is None else self._reported_s
        )
        if now_s - last_s < REPEATED_EVERY_S:
            return
        self._reported_s = now_s
        logger.warning(
            "The store of the cluster has carried out no call for %.1f s (%d failed calls); %s. The calls are repeated until it "
            "does. The last failure: %s",
            away_s,
            self._failures,
            what,
            str(error) or type(error).__name__,
        )

    def succeeded(self) -> None:
        """Note a call that the store answered."""
        if self._begun_s is None:
            return
        if self._reported_s is not None:
            away_s = self._seconds() - self._begun_s
            logger.info(
                "The store of the cluster works again, after %.1f s and %d failed calls",
                away_s,
                self._failures,
            )
        self._begun_s = self._reported_s = None
        self._failures = 0
