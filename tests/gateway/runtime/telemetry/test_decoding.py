from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import cramjam
import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.runtime import telemetry
from seqgate.gateway.runtime.loop.machine import Machine, Workers
from seqgate.gateway.runtime.telemetry import MAX_WAITING_BYTES, Payload, PayloadDecoder
from seqgate.gateway.telemetry.payload import Measurements
from seqgate.log.format.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from tests.gateway.telemetry.support import gauge, payload

T = TypeVar("T")
PLAIN = payload(gauge("depth", 3.0))
THROTTLED = ErrorCode.throttling_quota_exceeded


def pushed(content: bytes, codec: int = NONE, max_bytes: int = 100_000) -> Payload:
    return Payload(content, codec, max_bytes, 100)


@pytest.fixture
async def decoder() -> AsyncIterator[PayloadDecoder]:
    made = PayloadDecoder(asyncio.get_running_loop(), Machine())
    yield made
    made.stop()


class HeldWorkers:
    """Takes jobs, and works on none of them before `stop`."""

    def __init__(self, work: Callable[[object], None]) -> None:
        self._work = work
        self._items: list[object] = []

    def put(self, item: object) -> None:
        self._items.append(item)

    def stop(self) -> None:
        for item in self._items:
            self._work(item)


class HeldMachine(Machine):
    def workers(self, name: str, count: int, work: Callable[[T], None]) -> Workers[T]:
        return HeldWorkers(work)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
async def test_each_codec_is_decoded(decoder: PayloadDecoder, codec: int) -> None:
    decoded = await decoder.decode(pushed(compress(codec, PLAIN), codec))
    assert isinstance(decoded.outcome, Measurements)
    assert [point.key.name for point in decoded.outcome.points] == ["depth"]
    assert decoded.busy_s > 0


async def test_a_raw_snappy_block_is_decoded(decoder: PayloadDecoder) -> None:
    content = bytes(cramjam.snappy.compress_raw(PLAIN))
    assert isinstance((await decoder.decode(pushed(content, SNAPPY))).outcome, Measurements)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
async def test_a_decompression_bomb_is_refused(decoder: PayloadDecoder, codec: int) -> None:
    bomb = compress(codec, bytes(50_000_000))
    decoded = await decoder.decode(pushed(bomb, codec, max_bytes=1 << 20))
    assert decoded.outcome is ErrorCode.telemetry_too_large


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
async def test_damaged_bytes_are_refused(decoder: PayloadDecoder, codec: int) -> None:
    decoded = await decoder.decode(pushed(b"\xff" * 64, codec))
    assert decoded.outcome is ErrorCode.invalid_record


async def test_a_failure_of_a_library_refuses_the_push(
    decoder: PayloadDecoder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Panic(BaseException):
        pass

    def panic(*_: object) -> None:
        raise Panic

    monkeypatch.setattr(telemetry, "decompress", panic)
    assert (await decoder.decode(pushed(PLAIN))).outcome is ErrorCode.invalid_record
    assert "could not be decoded" in caplog.text


async def test_too_much_that_waits_is_refused() -> None:
    decoder = PayloadDecoder(asyncio.get_running_loop(), HeldMachine())
    half = pushed(os.urandom(MAX_WAITING_BYTES // 2))
    waiting = [asyncio.ensure_future(decoder.decode(half)) for _ in range(2)]
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        assert (await decoder.decode(pushed(b"x"))).outcome is THROTTLED
    decoder.stop()
    assert [decoded.outcome for decoded in await asyncio.gather(*waiting)] == [THROTTLED, THROTTLED]


async def test_room_is_made_when_a_push_is_decoded(decoder: PayloadDecoder) -> None:
    large = pushed(bytes(MAX_WAITING_BYTES))
    for _ in range(2):
        assert (await decoder.decode(large)).outcome is ErrorCode.invalid_record


async def test_nothing_is_decoded_after_the_stop(decoder: PayloadDecoder) -> None:
    decoder.stop()
    assert (await decoder.decode(pushed(PLAIN))).outcome is THROTTLED
