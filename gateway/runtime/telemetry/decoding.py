"""Decodes pushed metrics in a thread, one push at a time, so that the event loop serves other requests meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from gateway.runtime.loop.machine import Machine, Workers
from gateway.telemetry.payload import InvalidPayload, decode
from gateway.telemetry.points import Measurements
from log import DecompressionLimitReached, LogError
from log.format.compression import decompress

logger = logging.getLogger(__name__)

MAX_WAITING_BYTES: Final = 32 << 20
"""Bytes of the pushes that wait for the thread; a further push gets THROTTLING_QUOTA_EXCEEDED."""


class Payload(NamedTuple):
    """A pushed payload, and the limits on its plain bytes and measurements."""

    content: bytes
    compression_type: int
    max_bytes: int
    max_points: int


class Decoded(NamedTuple):
    """The measurements of a payload, or the error that refuses it. `busy_s`: seconds that the thread worked."""

    outcome: Measurements | ErrorCode
    busy_s: float


class _Job(NamedTuple):
    payload: Payload
    done: asyncio.Future[Decoded]


class PayloadDecoder:
    """Decodes payloads in a thread, which the first payload starts. Call all methods in the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, machine: Machine) -> None:
        self._loop = loop
        self._machine = machine
        self._workers: Workers[_Job] | None = None
        self._waiting: set[asyncio.Future[Decoded]] = set()
        self._waiting_bytes = 0
        self._is_stopped = False

    async def decode(self, payload: Payload) -> Decoded:
        """Return the measurements, or INVALID_RECORD, TELEMETRY_TOO_LARGE, or THROTTLING_QUOTA_EXCEEDED when too much waits."""
        size = len(payload.content)
        if self._is_stopped or self._waiting_bytes + size > MAX_WAITING_BYTES:
            return Decoded(ErrorCode.throttling_quota_exceeded, 0.0)
        if self._workers is None:
            self._workers = self._machine.workers("telemetry", 1, self._work)
        done: asyncio.Future[Decoded] = self._loop.create_future()
        self._waiting.add(done)
        self._waiting_bytes += size
        self._workers.put(_Job(payload, done))
        try:
            return await done
        finally:
            self._waiting.discard(done)
            self._waiting_bytes -= size

    def stop(self) -> None:
        """Answer the pushes that wait with THROTTLING_QUOTA_EXCEEDED, and end the thread when its current push is done."""
        self._is_stopped = True
        for done in list(self._waiting):
            _set(done, Decoded(ErrorCode.throttling_quota_exceeded, 0.0))
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.stop()

    def _work(self, job: _Job) -> None:
        if self._is_stopped:
            return
        decoded = _timed(job.payload, self._machine.seconds)
        self._loop.call_soon_threadsafe(_set, job.done, decoded)


def _timed(payload: Payload, seconds: Callable[[], float]) -> Decoded:
    begun_s = seconds()
    outcome = _decode(payload)
    return Decoded(outcome, seconds() - begun_s)


def _decode(payload: Payload) -> Measurements | ErrorCode:
    try:
        plain = decompress(payload.compression_type, memoryview(payload.content), payload.max_bytes)
        return decode(bytes(plain), payload.max_points)
    except DecompressionLimitReached:
        return ErrorCode.telemetry_too_large
    except (LogError, InvalidPayload) as error:
        logger.debug("pushed metrics are refused: %s", error)
        return ErrorCode.invalid_record
    except BaseException:  # a panic of a codec's library is no Exception, and the request must be answered
        logger.exception("pushed metrics of %d bytes could not be decoded", len(payload.content))
        return ErrorCode.invalid_record


def _set(done: asyncio.Future[Decoded], decoded: Decoded) -> None:
    if not done.done():
        done.set_result(decoded)
