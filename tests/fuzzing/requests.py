"""A client's connection: an input is all bytes that the client sends before it hangs up.

Every request is answered, or its connection is closed with a log line that says why. Nothing fails inside the
gateway, and other clients can still produce and read.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager

from tests.fuzzing.changes import changed
from tests.fuzzing.composed_requests import VERSIONS, request
from tests.fuzzing.fresh_scenes import fresh_scenes
from tests.fuzzing.scene import Scene
from tests.fuzzing.target import Run

MAX_INPUT_BYTES = 8192
PEAK_BYTES = 64 << 20
BASE_WORK = 400.0
INPUTS_PER_SCENE = 300
MOST_PARTITIONS = 100
_BROKER = 4


def opened() -> AbstractContextManager[Run]:
    return fresh_scenes(_feed, INPUTS_PER_SCENE)


async def _feed(scene: Scene, data: bytes) -> bool:
    await scene.feed(data)
    scene.complaints.check()
    image = scene.gateway.services.topics.metadata_log.image
    if image.configured(_BROKER):
        return False
    await scene.probe()
    scene.complaints.check()
    return image.partition_count <= MOST_PARTITIONS


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
    """Return the complete requests in a stream, and the remaining bytes."""
    frames = []
    while len(data) > 4:
        size = 4 + int.from_bytes(data[:4], "big")
        frames.append(data[:size])
        data = data[size:]
    return frames


def _sized(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload
