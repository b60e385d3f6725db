"""The time between two runs of a background job, as its setting says at each moment."""

from __future__ import annotations

import asyncio

from gateway.config import Config


class Interval:
    """A setting in ms that a job waits by. Belongs to one event loop."""

    def __init__(self, config: Config, name: str) -> None:
        self._config = config
        self._name = name
        self._altered = asyncio.Event()
        config.follow(self._altered.set)

    @property
    def seconds(self) -> float:
        """The time as it is set now."""
        return self._config.int(self._name) / 1000

    async def passed(self) -> None:
        """Wait for as long from now on; one that is altered meanwhile counts from the same moment."""
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        while (left_s := begun_s + self.seconds - loop.time()) > 0:
            self._altered.clear()
            try:
                async with asyncio.timeout(left_s):
                    await self._altered.wait()
            except TimeoutError:
                continue
