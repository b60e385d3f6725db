"""A TCP proxy in front of a Kafka endpoint that loses acknowledgements: the fault that idempotent producers
exist for.

Every request reaches the endpoint whole. A seeded choice of the Produce requests, or of requests of other
chosen APIs, gets no answer: the proxy closes the client's connection either when the answer arrives, or as
soon as the request is sent. The proxy rewrites answers that name brokers to name itself, so that clients stay
connected to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import io
import random
import ssl
import struct
import threading
from collections import Counter, deque
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Self

from kio.index import load_response_schema
from kio.serial import entity_reader, entity_writer

PRODUCE, METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER = 0, 3, 10, 60
_NAMING_BROKERS = frozenset({METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER})
_NO_ERROR = 0
_DRAIN_S = 10.0
_MAX_FRAME_BYTES = 256 << 20


class Fault(StrEnum):
    """The fault that a chosen request meets."""

    LOSE_ACKNOWLEDGEMENT = "acknowledgement lost"
    DROP_CONNECTION = "connection dropped"


@dataclass
class ProxyReport:
    """The counts of a proxy.

    `duplicate_answers` counts batches that the endpoint acknowledged with a base offset of an earlier answer:
    retries that the endpoint recognized. `unknown_to_clients` counts batches whose acknowledgement never
    reached a client.
    """

    connections: int = 0
    produce_requests: int = 0
    faults: Counter[Fault] = field(default_factory=Counter)
    acknowledged_batches: int = 0
    unknown_to_clients: int = 0
    duplicate_answers: int = 0


@dataclass
class _Pending:
    api_key: int
    api_version: int
    fault: Fault | None


@dataclass
class _Exchange:
    """The requests of one connection that wait for answers, oldest first. No request follows after
    `requests_ended`.
    """

    pending: deque[_Pending] = field(default_factory=deque)
    requests_ended: bool = False


class ProxyTls(NamedTuple):
    """The TLS of a proxy: on the side of its clients, and on the side of the endpoint."""

    for_clients: ssl.SSLContext
    upstream: ssl.SSLContext


class LossyProxy:
    """The proxy; runs in a thread of its own between `start` and `stop`. Clients connect to `address`.

    `fault_rate` is the share of requests of the `losing` APIs that lose their answer. `seed` makes the choice
    repeatable for the same sequence of requests. With `tls` both sides speak TLS; logins pass through.
    """

    def __init__(
        self,
        upstream: tuple[str, int],
        *,
        fault_rate: float,
        seed: int,
        losing: AbstractSet[int] = frozenset({PRODUCE}),
        tls: ProxyTls | None = None,
    ) -> None:
        self.report = ProxyReport()
        self._upstream = upstream
        self._fault_rate = fault_rate
        self._losing = losing
        self._tls = tls
        self._random = random.Random(seed)
        self._answered: set[tuple[str, int, int]] = set()
        self._port = 0
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="lossy-proxy", daemon=True)

    @property
    def address(self) -> str:
        """The address for clients, `host:port`, known after `start`."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> Self:
        """Listen on a free port of the loopback address."""
        self._thread.start()
        self._ready.wait()
        return self

    def stop(self) -> None:
        """Close every connection and end the thread."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(
            self._accept, "127.0.0.1", 0, limit=1 << 20, ssl=self._tls and self._tls.for_clients
        )
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stopping.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.report.connections += 1
        try:
            await self._connect_and_relay(reader, writer)
        except asyncio.CancelledError:
            pass  # The proxy stops. Otherwise asyncio's server would report the cancelled callback as an error.
        finally:
            writer.close()

    async def _connect_and_relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection(
                *self._upstream, limit=1 << 20, ssl=self._tls and self._tls.upstream
            )
        except OSError:
            return
        try:
            await self._relay(reader, writer, upstream_reader, upstream_writer)
        finally:
            upstream_writer.close()

    async def _relay(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        upstream_reader: asyncio.StreamReader,
        upstream_writer: asyncio.StreamWriter,
    ) -> None:
        exchange = _Exchange()
        answers = asyncio.create_task(self._pass_answers(upstream_reader, writer, exchange))
        try:
            await self._pass_requests(reader, writer, upstream_writer, exchange.pending)
            exchange.requests_ended = True
            if exchange.pending:
                await asyncio.wait({answers}, timeout=_DRAIN_S)
        finally:
            answers.cancel()
            await asyncio.gather(answers, return_exceptions=True)

    async def _pass_requests(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        upstream_writer: asyncio.StreamWriter,
        pending: deque[_Pending],
    ) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                frame = await _read_frame(reader)
                api_key, api_version = struct.unpack_from(">hh", frame, 4)
                fault = self._choose(api_key)
                pending.append(_Pending(api_key, api_version, fault))
                await self._send(upstream_writer, frame)
                if fault is Fault.DROP_CONNECTION:
                    writer.close()
                    return

    async def _send(self, writer: asyncio.StreamWriter, frame: bytes) -> None:
        """Forward one whole frame."""
        writer.write(frame)
        await writer.drain()

    def _choose(self, api_key: int) -> Fault | None:
        self.report.produce_requests += api_key == PRODUCE
        if api_key not in self._losing or self._random.random() >= self._fault_rate:
            return None
        fault = self._random.choice(list(Fault))
        self.report.faults[fault] += 1
        return fault

    async def _pass_answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, exchange: _Exchange
    ) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                frame = await _read_frame(reader)
                request = exchange.pending.popleft()
                if request.fault is not None:
                    writer.close()
                delivered = not writer.is_closing()
                if request.api_key == PRODUCE:
                    self._note_answer(frame, request.api_version, delivered=delivered)
                elif request.api_key in _NAMING_BROKERS:
                    frame = self._renamed(frame, request)
                if delivered:
                    # A client that left must not keep the other answers from being counted.
                    with contextlib.suppress(ConnectionError):
                        await self._send(writer, frame)
                if exchange.requests_ended and not exchange.pending:
                    return
        writer.close()  # The endpoint is gone, so no further answer comes.

    def _note_answer(self, frame: bytes, api_version: int, *, delivered: bool) -> None:
        answer, _ = _decoded(PRODUCE, api_version, frame)
        for topic in answer.responses:
            name = str(getattr(topic, "name", None) or getattr(topic, "topic_id", ""))
            for partition in topic.partition_responses:
                if partition.error_code != _NO_ERROR:
                    continue
                self.report.acknowledged_batches += 1
                self.report.unknown_to_clients += not delivered
                key = (name, int(partition.index), int(partition.base_offset))
                self.report.duplicate_answers += key in self._answered
                self._answered.add(key)

    def _renamed(self, frame: bytes, request: _Pending) -> bytes:
        answer, header_end = _decoded(request.api_key, request.api_version, frame)
        buffer = io.BytesIO()
        entity_writer(type(answer))(buffer, self._naming_the_proxy(answer))
        body = frame[4:header_end] + buffer.getvalue()
        return struct.pack(">i", len(body)) + body

    def _naming_the_proxy(self, answer: Any) -> Any:
        for rows in ("brokers", "coordinators"):
            if hasattr(answer, rows):
                named = tuple(self._with_address(row) for row in getattr(answer, rows))
                return dataclasses.replace(answer, **{rows: named})
        return self._with_address(answer)  # FindCoordinator before version 4 names one coordinator.

    def _with_address(self, row: Any) -> Any:
        return dataclasses.replace(row, host="127.0.0.1", port=self._port)


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    prefix = await reader.readexactly(4)
    (size,) = struct.unpack(">i", prefix)
    if not 0 <= size <= _MAX_FRAME_BYTES:
        raise ConnectionError(f"a frame must have 0 to {_MAX_FRAME_BYTES} bytes, not {size}")
    return prefix + await reader.readexactly(size)


def _decoded(api_key: int, api_version: int, frame: bytes) -> tuple[Any, int]:
    response_type: Any = load_response_schema(api_key, api_version)
    _, header_size = entity_reader(response_type.__header_schema__)(frame, 4)
    answer, _ = entity_reader(response_type)(frame, 4 + header_size)
    return answer, 4 + header_size
