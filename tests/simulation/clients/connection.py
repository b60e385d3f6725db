"""One Kafka connection of a simulated client: frames, correlation ids, any number of requests in flight.

Answers come in the order of the requests. As in Kafka's NetworkClient, a request without a timely answer
closes the connection. Then the outcome of every request in flight is unknown.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from random import Random
from typing import Any, NamedTuple

from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from tests.simulation.clients.surroundings import Surroundings
from tests.simulation.history import TopicPartition
from tests.support.wire import API_KEYS, Plain, build, encode_header, entity

LENGTH = struct.Struct(">i")
NO_NODE = -1
CORRELATION_MASK = 0x7FFF_FFFF


class Disconnected(Exception):
    """The connection ended before the answer. The request may have been carried out, or not, or may still be."""


class Coordinator(NamedTuple):
    """The coordinator of a group (key type 0) or of a transactional id (1)."""

    key_type: int
    key: str


Target = TopicPartition | Coordinator | int | None
"""The gateway for a request: the leader of a partition, a coordinator, the gateway of a node id, or any."""


@dataclass
class Pending:
    api: str
    version: int
    correlation_id: int
    deadline: float
    answer: asyncio.Future[Any]


@cache
def _writer(api: str, version: int) -> tuple[type[Any], Callable[..., None]]:
    request_type = entity(api, version, EntityType.request)
    return request_type, entity_writer(request_type)


@cache
def _reader(api: str, version: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    response_type = entity(api, version, EntityType.response)
    return entity_reader(response_type.__header_schema__), entity_reader(response_type)


def encode_frame(api: str, version: int, request: Plain, correlation_id: int, client_id: str) -> bytes:
    request_type, write = _writer(api, version)
    flexible = request_type.__flexible__
    buffer = BytesIO()
    buffer.write(b"\0\0\0\0")
    buffer.write(
        encode_header(API_KEYS[api], version, correlation_id, flexible=flexible, client_id=client_id)
    )
    write(buffer, build(request_type, request))
    frame = bytearray(buffer.getvalue())
    LENGTH.pack_into(frame, 0, len(frame) - LENGTH.size)
    return bytes(frame)


class Connection(asyncio.Protocol):
    """A connection; its answers are kio's entities of the requested version."""

    def __init__(self, surroundings: Surroundings, client_id: str) -> None:
        self._surroundings = surroundings
        self._client_id = client_id
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._pending: deque[Pending] = deque()
        self._correlation_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self.closed = False
        self.node_id = NO_NODE
        """The node id of the gateway, where the client knows it."""

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self._end()

    def data_received(self, data: bytes) -> None:
        self._received += data
        while not self.closed and len(self._received) >= LENGTH.size:
            (size,) = LENGTH.unpack_from(self._received)
            if len(self._received) < LENGTH.size + size:
                return
            frame = bytes(self._received[LENGTH.size : LENGTH.size + size])
            del self._received[: LENGTH.size + size]
            self._answer(frame)

    def _answer(self, frame: bytes) -> None:
        if not self._pending:
            self._breach(f"an answer to no request: {frame[:40]!r}")
            return
        pending = self._pending[0]
        what = f"{pending.api} v{pending.version}"
        read_header, read_body = _reader(pending.api, pending.version)
        try:
            header, size = read_header(frame, 0)
            response, _ = read_body(frame, size)
        except Exception as error:
            self._breach(f"an answer to {what} that cannot be read: {error!r}")
            return
        if header.correlation_id != pending.correlation_id:
            self._breach(f"answer {header.correlation_id} to request {pending.correlation_id} of {what}")
            return
        self._pending.popleft()
        if not pending.answer.done():
            pending.answer.set_result(response)

    def _breach(self, sentence: str) -> None:
        self._surroundings.unexpected(self._client_id, sentence)
        self.close()

    def send(self, api: str, version: int, request: Plain, timeout_s: float) -> asyncio.Future[Any]:
        """Send at once; the returned future raises `Disconnected`."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        if self.closed or self._transport is None:
            answer.set_exception(Disconnected())
            return answer
        self._correlation_id = (self._correlation_id + 1) & CORRELATION_MASK
        deadline = self._loop.time() + timeout_s
        self._pending.append(Pending(api, version, self._correlation_id, deadline, answer))
        self._transport.write(encode_frame(api, version, request, self._correlation_id, self._client_id))
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._check_deadlines)
        return answer

    def _check_deadlines(self) -> None:
        self._timer = None
        if not self._pending:
            return
        earliest = min(pending.deadline for pending in self._pending)
        if earliest <= self._loop.time():
            self.close()
        else:
            self._timer = self._loop.call_at(earliest, self._check_deadlines)

    def close(self) -> None:
        """Close the connection; requests already sent may still arrive."""
        transport = self._transport
        self._end()
        if transport is not None:
            transport.abort()

    def _end(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        lost, self._pending = self._pending, deque()
        for pending in lost:
            if not pending.answer.done():
                pending.answer.set_exception(Disconnected())
                pending.answer.exception()


class Link:
    """Opens a connection when one is needed, and retries for ever with a growing backoff. All requests go to
    the one gateway.
    """

    def __init__(self, surroundings: Surroundings, client_id: str, random: Random) -> None:
        self._surroundings = surroundings
        self._client_id = client_id
        self._random = random
        self._failures = 0
        self._connecting = asyncio.Lock()
        self.request_timeout_s = random.choice((0.5, 1.0, 3.0, 10.0))
        self.connection: Connection | None = None

    async def connect(self, to: Target = None) -> Connection:
        async with self._connecting:
            while self.connection is None or self.connection.closed:
                if self._failures:
                    highest = min(0.05 * 2 ** min(self._failures, 6), 2.0)
                    await asyncio.sleep(highest * self._random.uniform(0.5, 1.0))
                try:
                    self.connection = await self._open(self._address())
                    self._failures = 0
                except (OSError, TimeoutError):
                    self._failures += 1
            return self.connection

    def _address(self) -> tuple[str, int]:
        return self._surroundings.host, self._surroundings.port

    async def _open(self, address: tuple[str, int]) -> Connection:
        where = self._surroundings
        async with asyncio.timeout(self.request_timeout_s):
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: Connection(where, self._client_id), *address
            )
        return connection

    async def call(
        self, api: str, version: int, request: Plain, timeout_s: float | None = None, *, to: Target = None
    ) -> Any:
        """Send one request and return its answer. Raises `Disconnected`, also when no connection can be
        opened.
        """
        connection = await self.connect(to)
        return await connection.send(api, version, request, timeout_s or self.request_timeout_s)

    async def by_leader(self, places: Collection[TopicPartition]) -> dict[Target, list[TopicPartition]]:
        """Return the gateways to ask for the partitions. A partition without a known leader is left out."""
        return {None: list(places)}

    def another(self, node_id: Target, random: Random) -> Target:
        """Return another gateway than this one; the same one where no other is known."""
        return node_id

    def is_reached(self, node_id: Target) -> bool:
        """Return whether the gateway of this node id serves at the address where the client sends what is for
        it.
        """
        return True

    def lanes(
        self, places: Collection[TopicPartition], woken: Callable[[], None]
    ) -> list[tuple[Connection, Collection[TopicPartition]]]:
        """Return the open connections, and the partitions that are led there.

        The others get a connection soon; then `woken` is called.
        """
        return [] if self.connection is None else [(self.connection, places)]

    def moved(self, place: TopicPartition, row: Any = None) -> None:
        """Take notice that the partition has another leader than was asked, perhaps the one that the `row` of
        an answer names.
        """

    def led(self, to: Target, place: TopicPartition, leader_epoch: int, asked_at_ms: int) -> None:
        """Take notice that a gateway answered, as the leader in this epoch, a request that was sent at
        `asked_at_ms`.
        """

    def epoch_of(self, place: TopicPartition) -> int:
        """Return the leader epoch of the partition that the client knows; -1 for a client of one gateway."""
        return -1

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None
