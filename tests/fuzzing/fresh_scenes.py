"""Feeds inputs to a series of gateways. Inputs create things that are never removed, so each gateway takes
only some inputs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager

import uvloop

from tests.fuzzing.scene import Scene, running_scene
from tests.fuzzing.target import Run

Feed = Callable[[Scene, bytes], Awaitable[bool]]
"""Feeds one input to the gateway of a scene; returns whether the next input may use the same gateway."""


@contextmanager
def fresh_scenes(feed: Feed, inputs_per_scene: int) -> Iterator[Run]:
    """Feed inputs, starting a gateway when one is needed."""
    loop = uvloop.new_event_loop()
    feeder = _Feeder(loop, feed, inputs_per_scene)
    try:
        yield feeder.run
    finally:
        loop.run_until_complete(feeder.close())
        loop.close()


class _Feeder:
    def __init__(self, loop: asyncio.AbstractEventLoop, feed: Feed, inputs_per_scene: int) -> None:
        self._loop = loop
        self._feed = feed
        self._inputs_per_scene = inputs_per_scene
        self._stack = AsyncExitStack()
        self._scene: Scene | None = None
        self._fed = 0

    def run(self, data: bytes) -> None:
        try:
            self._loop.run_until_complete(self._run(data))
        except BaseException:
            # the next input must not find what this one created
            self._loop.run_until_complete(self.close())
            raise

    async def _run(self, data: bytes) -> None:
        if self._scene is None:
            self._scene = await self._stack.enter_async_context(running_scene())
            self._fed = 0
        self._fed += 1
        if not await self._feed(self._scene, data) or self._fed >= self._inputs_per_scene:
            await self.close()

    async def close(self) -> None:
        self._scene = None
        await self._stack.aclose()
