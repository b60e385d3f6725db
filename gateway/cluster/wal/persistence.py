"""Calls to the store that are repeated until the store answers."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from seqgate.gateway.cluster.objects.objects import Missing, ObjectStore, StoreFailed

logger = logging.getLogger(__name__)


T = TypeVar("T")


class PersistentReads:
    """Reads of the store for a purpose, `what`, which outages are logged with. Repeats only StoreFailed."""

    def __init__(self, objects: ObjectStore, what: str, chance: random.Random | None = None) -> None:
        self.objects = objects
        self._what = what
        self._outage = StoreOutage(asyncio.get_running_loop().time)
        self._chance = chance or random.Random()
        self._backoff = Backoff(self._chance)

    async def get(self, key: str) -> bytes:
        """Return the whole object. Raises Missing, Refused."""
        return await self.answered(lambda: self.objects.get(key))

    async def find(self, key: str) -> bytes | None:
        """Return the whole object; None without one. Raises Refused."""
        try:
            return await self.get(key)
        except Missing:
            return None

    async def get_end(self, key: str, size_bytes: int) -> bytes:
        """Return the last bytes of the object. Raises Missing, Refused."""
        return await self.answered(lambda: self.objects.get_end(key, size_bytes))

    async def answered(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make the call until the store answers. Raises the errors of the call but for StoreFailed."""
        while True:
            try:
                answer = await call()
            except StoreFailed as error:
                await self.failed(error)
            else:
                self._outage.succeeded()
                self._backoff.reset()
                return answer

    def conflicts(self) -> Backoff:
        """Return the delays for one change that the store answers with conflicts (409)."""
        return Backoff(self._chance)

    async def failed(self, error: Exception) -> None:
        self._outage.failed(error, self._what)
        await asyncio.sleep(self._backoff.next_s())


# How long to wait before a failed call is tried again.

FIRST_S: Final = 0.05
MOST_S: Final = 2.0
_DOUBLINGS: Final = 10
"""After this many the delay is at its limit for long."""


class Backoff:
    """Delays that double from FIRST_S to MOST_S, each cut at random, at most to half, to spread the calls."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self._chance = chance or random.Random()
        self.failures = 0

    def next_s(self) -> float:
        delay_s = min(MOST_S, FIRST_S * 2.0 ** min(self.failures, _DOUBLINGS))
        self.failures += 1
        return delay_s * (1 - self._chance.random() / 2)

    def reset(self) -> None:
        """Begin with short delays again: a call succeeded."""
        self.failures = 0


# Log lines about a silent store: one when it is away, one each half minute, one when it is back.

AWAY_AFTER_S: Final = 1.0
"""A store whose calls have failed for less than this is not reported."""
REPEATED_EVERY_S: Final = 30.0


class StoreOutage:
    """The calls that failed since the last one that succeeded. `seconds` is a monotonic clock."""

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
            "The store of the cluster has carried out no call for %.1f s (%d failed calls); %s. The calls "
            "are repeated until it does. The last failure: %s",
            away_s,
            self._failures,
            what,
            str(error) or type(error).__name__,
        )

    def succeeded(self) -> None:
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
