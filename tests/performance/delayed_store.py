"""A process between a gateway and an S3 store that answers as late as a distant store does.

It relays each connection, request after request. A put is answered no sooner than a time drawn from a
lognormal distribution after its first byte came; other requests after a fixed time. `GET /-/counts` tells as
JSON what was relayed so far, and `GET /-/delays/MEDIAN_MS/P99_MS` changes the delays of puts from then on;
the store does not get these requests.

`python -m tests.performance.delayed_store PORT STORE_PORT` runs until it is terminated.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import random
import subprocess
import sys
import time
import urllib.request
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Self

from tests.support.gateway_process import free_port

CHUNK_BYTES = 1 << 18
GET_DELAY_S = 0.015
P99_SIGMAS = 2.3263
"""The 99th percentile of the normal distribution, in standard deviations."""
START_TIMEOUT_S = 20.0


@dataclass
class Counts:
    """The requests and bytes that a relay has passed on."""

    puts: int = 0
    gets: int = 0
    others: int = 0
    put_bytes: int = 0
    put_ms: list[float] = field(default_factory=list)
    """How long each put took, from its first byte to the answer."""


class DelayedStore:
    """The proxy as a process, and a context manager."""

    def __init__(self, store_port: int) -> None:
        self.port = free_port()
        self._store_port = store_port
        self._process: subprocess.Popen[bytes] | None = None

    def counts(self) -> Counts:
        """Return the requests and bytes that were passed on so far."""
        return Counts(**self._ask("counts"))

    def delay(self, median_ms: float, p99_ms: float) -> None:
        """Answer puts from now on with these delays; without any for 0."""
        self._ask(f"delays/{median_ms}/{p99_ms}")

    def _ask(self, what: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/{what}", timeout=10) as answer:
            told: dict[str, Any] = json.loads(answer.read())
        return told

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.performance.delayed_store"]
        self._process = subprocess.Popen([*command, str(self.port), str(self._store_port)])
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            with contextlib.suppress(OSError):
                self.counts()
                return self
            assert time.monotonic() < deadline, "the delayed store does not answer"
            time.sleep(0.02)  # the pause between polls of another process, which offers nothing to wait on

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


class _Relay:
    """Relays connections to the store, with a delay."""

    def __init__(self, store_port: int) -> None:
        self._store_port = store_port
        self._counts = Counts()
        self._mu = self._sigma = 0.0
        self._is_delayed = False
        self._chance = random.Random(1)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay the requests of one connection until either side closes it."""
        store_writer: asyncio.StreamWriter | None = None
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            store_reader, store_writer = await asyncio.open_connection("127.0.0.1", self._store_port)
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                begun_s = time.monotonic()
                method, target = head.split(b" ", 2)[:2]
                if target.startswith(b"/-/"):
                    writer.write(self._answer(target.decode()))
                    continue
                store_writer.write(head)
                size_bytes = _length(head)
                await _copy(reader, store_writer, size_bytes)
                answer = await store_reader.readuntil(b"\r\n\r\n")
                await self._wait(method, begun_s)
                writer.write(answer)
                if method != b"HEAD":
                    await _copy(store_reader, writer, _length(answer))
                await writer.drain()
                self._count(method, size_bytes, begun_s)
        for one in (writer, store_writer):
            if one is not None:
                one.close()

    async def _wait(self, method: bytes, begun_s: float) -> None:
        delay_s = GET_DELAY_S if self._is_delayed else 0.0
        if method == b"PUT" and self._is_delayed:
            delay_s = self._chance.lognormvariate(self._mu, self._sigma)
        left_s = begun_s + delay_s - time.monotonic()
        if left_s > 0:
            await asyncio.sleep(left_s)

    def _count(self, method: bytes, size_bytes: int, begun_s: float) -> None:
        counts = self._counts
        if method == b"PUT":
            counts.puts += 1
            counts.put_bytes += size_bytes
            counts.put_ms.append(round((time.monotonic() - begun_s) * 1000, 3))
        elif method == b"GET":
            counts.gets += 1
        else:
            counts.others += 1

    def _answer(self, target: str) -> bytes:
        what, *values = target.removeprefix("/-/").split("/")
        if what == "delays":
            median_ms, p99_ms = map(float, values)
            self._is_delayed = median_ms > 0
            if self._is_delayed:
                self._mu = math.log(median_ms / 1000)
                self._sigma = math.log(p99_ms / median_ms) / P99_SIGMAS
        body = json.dumps(asdict(self._counts)).encode()
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def _length(head: bytes) -> int:
    """Return the bytes of the body that follows a head."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
        assert name.lower() != b"transfer-encoding", "the relay knows only bodies with a Content-Length"
    return 0


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, size_bytes: int) -> None:
    while size_bytes:
        piece = await reader.read(min(size_bytes, CHUNK_BYTES))
        if not piece:
            raise ConnectionResetError("the body is cut")
        writer.write(piece)
        await writer.drain()
        size_bytes -= len(piece)


async def _run(port: int, store_port: int) -> None:
    relay = _Relay(store_port)
    server = await asyncio.start_server(relay.serve, "127.0.0.1", port, limit=1 << 20)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_run(int(sys.argv[1]), int(sys.argv[2])))
