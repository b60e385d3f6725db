"""Connections take turns on the event loop."""

from __future__ import annotations

import asyncio
import struct
from typing import Any, cast

import pytest

from seqgate.gateway.handlers.answering.api import REQUEST_FAILED, CloseConnection, Deferred, HoldingBack
from seqgate.gateway.protocol.frames import MalformedRequest, size_complaint
from seqgate.gateway.server.connection import Connection, ConnectionLimits, UnreadAnswers
from seqgate.gateway.server.intake import NO_MEMORY, REQUESTS_PER_TURN, TURN_S, FrameReader, RequestMemory
from seqgate.gateway.server.sasl import RequestLimits


class FakeTransport:
    def __init__(self) -> None:
        self.reads = True
        self.closed = False
        self.high = 0
        self.unsent_bytes = 0

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1)

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def set_write_buffer_limits(self, high: int) -> None:
        self.high = high

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


class SteppedLoop:
    """An event loop whose clock the test moves."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now_s = 0.0
        self.call_soon = loop.call_soon

    def time(self) -> float:
        return self.now_s


class FakeServer:
    """A server, dispatcher and outbox that note their input."""

    def __init__(self) -> None:
        self.loop: Any = asyncio.get_running_loop()
        self.limits = ConnectionLimits(1 << 20, 1 << 20, 100, 60_000, -1, -1, None)
        self.memory = RequestMemory(-1)
        self.unread = UnreadAnswers(1 << 20)
        self.held_bytes = 0
        self.receive_buffer = memoryview(bytearray(1 << 16))
        self.received = self.receive_buffer.toreadonly()
        self.dispatcher = self.outbox = self
        self.begun: list[bytes] = []
        self.written: list[bytes] = []
        self.answer: Any = None

    def suit_peer(self, connected: Any, peer_host: str) -> None: ...

    def count_held(self, more_bytes: int) -> None:
        self.held_bytes += more_bytes

    def admit(self, connection: Connection) -> float | None:
        return None

    def dismiss(self, connection: Connection) -> None: ...

    def begin(self, frame: memoryview, peer: Connection) -> Any:
        self.begun.append(bytes(frame))
        if isinstance(self.answer, Exception):
            raise self.answer
        return bytes(frame) if self.answer is None else self.answer

    def write(self, transport: FakeTransport, frame: bytes) -> None:
        self.written.append(frame)

    def flush(self) -> None: ...


def connect() -> tuple[FakeServer, Connection, FakeTransport]:
    server, transport = FakeServer(), FakeTransport()
    connection = Connection(cast("Any", server), "PLAINTEXT")
    connection.connection_made(cast("Any", transport))
    return server, connection, transport


def receive(connection: Connection, data: bytes) -> None:
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))


def frames(count: int) -> tuple[list[bytes], bytes]:
    bodies = [b"%d" % number for number in range(count)]
    return bodies, b"".join(struct.pack(">i", len(body)) + body for body in bodies)


async def test_many_requests_of_one_read_are_spread_over_turns_in_order() -> None:
    server, connection, transport = connect()
    bodies, data = frames(3 * REQUESTS_PER_TURN + 1)
    receive(connection, data)
    assert server.begun == bodies[:REQUESTS_PER_TURN]
    assert not transport.reads
    for turn in (2, 3, 4):
        await asyncio.sleep(0)
        assert server.begun == bodies[: turn * REQUESTS_PER_TURN]
    assert server.written == bodies
    assert transport.reads


async def test_requests_that_take_long_to_begin_let_others_go_first() -> None:
    server, connection, _ = connect()
    begin = server.begin

    def begin_slowly(frame: memoryview, peer: Connection) -> Any:
        server.loop.now_s += 0.6 * TURN_S
        return begin(frame, peer)

    server.loop = SteppedLoop(server.loop)
    connection.take(begin_slowly, RequestLimits(1 << 20, server.memory))
    bodies, data = frames(5)
    receive(connection, data)
    assert server.begun == bodies[:2]
    await asyncio.sleep(0)
    assert server.begun == bodies[:4]
    await asyncio.sleep(0)
    assert server.begun == server.written == bodies


async def test_one_that_is_lost_meanwhile_begins_nothing_more() -> None:
    server, connection, _ = connect()
    bodies, data = frames(2 * REQUESTS_PER_TURN)
    receive(connection, data)
    connection.connection_lost(None)
    await asyncio.sleep(0)
    assert server.begun == bodies[:REQUESTS_PER_TURN]


async def test_who_asks_to_hear_of_the_end_is_called_once() -> None:
    _, connection, _ = connect()
    called: list[str] = []
    connection.when_gone("a", lambda: called.append("first"))
    connection.when_gone("a", lambda: called.append("second"))
    connection.when_gone("b", lambda: called.append("forgotten"))
    connection.forget_gone("b")
    connection.forget_gone("c")
    assert not called
    connection.connection_lost(None)
    assert called == ["second"]
    connection.when_gone("a", lambda: called.append("too late"))
    assert called == ["second", "too late"]


async def test_a_bug_in_a_request_begun_on_behalf_of_another_stays_with_its_connection() -> None:
    server, connection, transport = connect()
    server.answer = HoldingBack()
    _, data = frames(2)
    receive(connection, data)
    waiting, server.answer = server.answer, ValueError("a bug")
    waiting.resolve(b"done")
    assert server.written == [b"done"]
    assert transport.closed


@pytest.mark.parametrize(
    "error",
    [CloseConnection("its session is over"), MalformedRequest("no header"), ValueError("a bug"), None],
    ids=["refused", "malformed", "bug", "size"],
)
async def test_a_request_that_closes_the_connection_waits_for_the_answers_to_earlier_ones(
    error: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    server, connection, transport = connect()
    earlier = server.answer = Deferred()
    receive(connection, struct.pack(">i", 1) + b"0")
    server.answer = error
    fatal = struct.pack(">i", -1) if error is None else struct.pack(">i", 1) + b"1"
    receive(connection, fatal + struct.pack(">i", 1) + b"2")
    server.answer = None
    begun = server.begun.copy()
    assert not transport.closed
    assert connection.has_work
    receive(connection, struct.pack(">i", 1) + b"3")
    assert not transport.reads
    assert connection.waits_unread, "Server.close_idle must close it"
    earlier.resolve(b"stored")
    assert server.written == [b"stored"]
    assert transport.closed
    assert server.begun == begun == ([b"0"] if error is None else [b"0", b"1"])
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        f"closing the connection of 127.0.0.1:1: {reason(error)}"
    ]


def reason(error: Exception | None) -> str:
    if error is None:
        return f"it can't be read: {size_complaint(-1, 1 << 20)}"
    return REQUEST_FAILED if isinstance(error, ValueError) else str(error)


async def test_a_request_may_let_others_begin_before_its_answer() -> None:
    server, connection, _ = connect()
    first = server.answer = HoldingBack()
    _, data = frames(3)
    receive(connection, data)
    assert len(server.begun) == 1
    second = server.answer = HoldingBack()
    first.let_others_begin()
    assert len(server.begun) == 2
    server.answer = b"third"
    second.resolve(b"second")
    assert server.written == []
    first.resolve(b"first")
    assert server.written == [b"first", b"second", b"third"]
    assert len(server.begun) == 3


async def test_a_lowered_limit_of_requests_in_flight_holds_for_connections_that_are_open() -> None:
    server, connection, _ = connect()
    answers = [Deferred() for _ in range(5)]
    for number, answer in enumerate(answers[:4]):
        server.answer = answer
        receive(connection, struct.pack(">i", 1) + b"%d" % number)
    server.limits = server.limits._replace(in_flight_requests=2)
    server.answer = answers[4]
    receive(connection, struct.pack(">i", 1) + b"4")
    receive(connection, struct.pack(">i", 1) + b"5")
    assert len(server.begun) == 5
    for answer in answers[:3]:
        answer.resolve(b"")
        assert len(server.begun) == 5
    answers[3].resolve(b"")
    assert len(server.begun) == 6


async def test_the_limit_of_answers_that_wait_follows_its_setting() -> None:
    server, connection, transport = connect()
    server.limits = server.limits._replace(response_backlog_bytes=7)
    connection.limits_changed()
    assert transport.high == 7


@pytest.mark.parametrize("parts", [1, 2])
async def test_a_request_that_waits_to_be_decoded_keeps_its_room(parts: int) -> None:
    """Otherwise requests of any size could wait for a thread, also those of connections that have closed."""
    server, connection, _ = connect()
    let_go = []

    def begin(frame: memoryview, peer: Connection) -> Deferred:
        let_go.append(peer.hold_room(len(frame)))
        return HoldingBack()

    connection.take(begin, RequestLimits(1 << 20, server.memory))
    size = 1 << 14
    last = bytes(parts - 1)
    receive(connection, struct.pack(">i", size) + bytes(size - len(last)))
    if last:
        receive(connection, last)
    assert server.memory.used_bytes == size
    connection.connection_lost(None)
    assert server.memory.used_bytes == size
    let_go[0]()
    assert server.memory.used_bytes == 0


class TestWithoutMemory:
    """Only the connection that needs too much memory is closed, with one log line."""

    LARGE = struct.pack(">i", 1 << 20) + bytes(1 << 15)

    async def test_to_go_on_with_a_request(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        server, connection, transport = connect()
        receive(connection, self.LARGE)
        monkeypatch.setattr(FrameReader, "direct_buffer", fail)
        assert connection.get_buffer(-1) is server.receive_buffer
        assert connection.get_buffer(-1) is server.receive_buffer
        connection.buffer_updated(100)
        await asyncio.sleep(0)
        assert transport.closed
        assert [NO_MEMORY in record.message for record in caplog.records] == [True]

    @pytest.mark.parametrize("method", ["start", "add"])
    async def test_to_begin_one(self, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        server, connection, transport = connect()
        monkeypatch.setattr(FrameReader, method, fail)
        receive(connection, self.LARGE)
        assert transport.closed
        assert not server.begun

    async def test_to_begin_one_when_others_have_given_room(self, monkeypatch: pytest.MonkeyPatch) -> None:
        server, connection, transport = connect()
        server.memory = RequestMemory(1 << 20)
        connection.take(server.begin, RequestLimits(1 << 20, server.memory))
        other = object()
        assert server.memory.acquire(other, 1 << 20, fail)
        receive(connection, self.LARGE)
        monkeypatch.setattr(FrameReader, "start", fail)
        server.memory.give_back(other)
        assert transport.closed


def fail(*_: object) -> None:
    raise MemoryError
