"""Ends the wait of Produce requests for a bucket that does not answer, when the time is up that their clients gave them.

A local disk writes or fails, so nobody waits for long. A bucket may be away for hours. Records whose wait has ended stay in the log and
become durable later; a producer that sends them again is answered with their offsets then.
Source: Kafka's DelayedProduce.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

LOOK_S: Final = 1.0
"""The seconds between two looks at the requests that wait, so a wait may last so much longer."""


class ProduceWaits:
    """The rows of answers that wait until their records are in the bucket. Belongs to one event loop; idle while nothing waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[_Wait, None] = {}
        self._is_looking = False

    def __len__(self) -> int:
        """Return the number of rows that wait."""
        return len(self._waiting)

    def limited(
        self, timeout_ms: int, decided: Callable[[bool], None], expired: Callable[[], None]
    ) -> Callable[[bool], None]:
        """Return what to call when it is decided whether the records are durable: `decided`, unless `expired` was called before."""
        wait = _Wait(self._waiting, self._loop.time() + timeout_ms / 1000, decided, expired)
        self._waiting[wait] = None
        if not self._is_looking:
            self._look_later()
        return wait.decide

    def _look_later(self) -> None:
        self._is_looking = True
        self._loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._is_looking = False
        now_s = self._loop.time()
        for wait in [wait for wait in self._waiting if wait.deadline_s <= now_s]:
            wait.expire()
        if self._waiting:
            self._look_later()


class _Wait:
    """One row. Whichever of `decide` and `expire` comes first is passed on."""

    __slots__ = ("_decided", "_expired", "_waiting", "deadline_s")

    def __init__(
        self,
        waiting: dict[_Wait, None],
        deadline_s: float,
        decided: Callable[[bool], None],
        expired: Callable[[], None],
    ) -> None:
        self._waiting = waiting
        self.deadline_s = deadline_s
        self._decided = decided
        self._expired = expired

    def decide(self, persisted: bool) -> None:
        if self._waiting.pop(self, self) is None:
            self._decided(persisted)

    def expire(self) -> None:
        if self._waiting.pop(self, self) is None:
            self._expired()
