"""What comes in on a client's connection: an input is all bytes that a client sends before it hangs up.

Every request is answered or its connection closed, with a line that says why; nothing fails inside the gateway, and other
clients go on producing and reading.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

import uvloop

from tests.fuzzing.changes import changed
from tests.fuzzing.composed_requests import VERSIONS, request
from tests.fuzzing.scene import Scene, running_scene
from tests.fuzzing.target import Run

MAX_INPUT_BYTES = 8192
PEAK_BYTES = 64 << 20
BASE_WORK = 400.0
INPUTS_PER_SCENE = 300
"""After so many a fresh gateway takes over: what is made is never tidied up."""
MOST_PARTITIONS = 100
_BROKER = 4


class Feeder:
    """Feeds inputs to one gateway after another."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._stack = AsyncExitStack()
        self._scene: Scene | None = None
        self._fed = 0

    def run(self, data: bytes) -> None:
        try:
            self._loop.run_until_complete(self._feed(data))
        except BaseException:
            # what comes next is not to suffer from it
            self._loop.run_until_complete(self.close())
            raise

    async def _feed(self, data: bytes) -> None:
        scene = self._scene
        if scene is None:
            self._scene = scene = await self._stack.enter_async_context(running_scene())
            self._fed = 0
        self._fed += 1
        await scene.feed(data)
        scene.complaints.check()
        image = scene.gateway.services.metadata_log.image
        is_altered = bool(image.configured(_BROKER))
        if not is_altered:
            await scene.probe()
            scene.complaints.check()
        if is_altered or self._fed >= INPUTS_PER_SCENE or image.partition_count > MOST_PARTITIONS:
            await self.close()

    async def close(self) -> None:
        self._scene = None
        await self._stack.aclose()


@contextmanager
def opened() -> Iterator[Run]:
    loop = uvloop.new_event_loop()
    feeder = Feeder(loop)
    try:
        yield feeder.run
    finally:
        loop.run_until_complete(feeder.close())
        loop.close()


def seeds() -> Iterator[bytes]:
    chance = random.Random(7)
    for _ in range(len(VERSIONS)):
        yield request(chance)
    yield b"GET / HTTP/1.1\r\n\r\n"
    yield b"\x16\x03\x01\x02\x00\x01\x00\x01"
    yield b"\x7f\xff\xff\xff\0"


def mutated(data: bytes, chance: random.Random) -> bytes:
    frames = _frames(data)
    for _ in range(chance.choice((1, 1, 2, 3))):
        if not frames or chance.random() < 0.5:
            frames.insert(chance.randrange(len(frames) + 1), request(chance))
        if chance.random() < 0.4:
            position = chance.randrange(len(frames))
            frames[position] = _sized(changed(frames[position][4:], chance))
        if len(frames) > 1 and chance.random() < 0.5:
            del frames[chance.randrange(len(frames))]
    stream = b"".join(frames)
    return changed(stream, chance) if chance.random() < 0.1 else stream


def _frames(data: bytes) -> list[bytes]:
    """The whole requests in a stream, and what is left."""
    frames = []
    while len(data) > 4:
        size = 4 + int.from_bytes(data[:4], "big")
        frames.append(data[:size])
        data = data[size:]
    return frames


def _sized(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload
