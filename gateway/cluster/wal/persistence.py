"""Calls to the store that are repeated until the store answers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gateway.cluster.objects.objects import ObjectStore, StoreFailed
from gateway.cluster.wal.backoff import Backoff
from gateway.cluster.wal.store_outage import StoreOutage

T = TypeVar("T")


class PersistentReads:
    """Reads of the store for one purpose, `what`, which the log lines of an outage name. Only StoreFailed is repeated."""

    def __init__(self, objects: ObjectStore, what: str, chance: random.Random | None = None) -> None:
        self.objects = objects
        self._what = what
        self._outage = StoreOutage(asyncio.get_running_loop().time)
        self._chance = chance or random.Random()
        self._backoff = Backoff(self._chance)

    async def get(self, key: str) -> bytes:
        """Return the whole object. Raises Missing, Refused."""
        return await self.answered(lambda: self.objects.get(key))

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
        """Return the delays for one change that the store answers with a conflict (409), perhaps again and again."""
        return Backoff(self._chance)

    async def failed(self, error: Exception) -> None:
        """Wait before a failed call is made again."""
        self._outage.failed(error, self._what)
        await asyncio.sleep(self._backoff.next_s())
