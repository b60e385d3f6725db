"""The time between two runs of a background job, which follows its setting."""

from __future__ import annotations

import asyncio

from gateway.config import Config


class Interval:
    """An interval in ms that a setting gives. Belongs to one event loop."""

    def __init__(self, config: Config, name: str) -> None:
        self._config = config
        self._name = name
        self._altered = asyncio.Event()
        config.follow(self._altered.set)

    @property
    def seconds(self) -> float:
        """The present value of the setting, in seconds."""
        return self._config.int(self._name) / 1000

    async def passed(self) -> None:
        """Wait for the interval. When the setting changes meanwhile, the new interval counts from the same start."""
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        while (left_s := begun_s + self.seconds - loop.time()) > 0:
            self._altered.clear()
            try:
                async with asyncio.timeout(left_s):
                    await self._altered.wait()
            except TimeoutError:
                continue
