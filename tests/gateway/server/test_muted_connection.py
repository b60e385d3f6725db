"""A connection whose client is over a quota is not read from until its time is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from seqgate.gateway.server.connection import Connection
from tests.gateway.server.test_connection import FakeServer, FakeTransport, connect, frames, receive


class Timer:
    def __init__(self, when_s: float, callback: Callable[[], None]) -> None:
        self.when_s = when_s
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class TimedLoop:
    """An event loop whose time the test moves, and with it the timers."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.timers: list[Timer] = []
        self.call_soon = asyncio.get_running_loop().call_soon

    def time(self) -> float:
        return self.now_s

    def call_at(self, when_s: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(when_s, callback)
        self.timers.append(timer)
        return timer

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        due = [timer for timer in self.timers if timer.when_s <= self.now_s]
        self.timers = [timer for timer in self.timers if timer.when_s > self.now_s]
        for timer in due:
            if not timer.cancelled:
                timer.callback()


def timed() -> tuple[TimedLoop, FakeServer, Connection, FakeTransport]:
    server, connection, transport = connect()
    loop = TimedLoop()
    server.loop = loop
    return loop, server, connection, transport


async def test_a_muted_connection_is_not_read_until_its_time_is_over() -> None:
    loop, server, connection, transport = timed()
    connection.mute(1500)
    assert not transport.reads
    loop.pass_time(1.4)
    assert not transport.reads
    loop.pass_time(0.2)
    assert transport.reads
    bodies, data = frames(1)
    receive(connection, data)
    assert server.begun == bodies


async def test_a_longer_silence_replaces_a_shorter_one_and_needs_no_second_timer() -> None:
    loop, _, connection, transport = timed()
    connection.mute(1000)
    connection.mute(3000)
    connection.mute(500)
    assert len(loop.timers) == 1
    loop.pass_time(1.1)
    assert not transport.reads
    loop.pass_time(2.0)
    assert transport.reads
    assert loop.timers == []


class ThrottlingServer(FakeServer):
    """A server whose dispatcher throttles every request for a second."""

    def begin(self, frame: memoryview, peer: Connection) -> Any:
        peer.mute(1000)
        return super().begin(frame, peer)


async def test_pipelined_requests_wait_behind_the_one_that_is_throttled() -> None:
    server, transport, loop = ThrottlingServer(), FakeTransport(), TimedLoop()
    server.loop = loop
    connection = Connection(cast("Any", server), "PLAINTEXT")
    connection.connection_made(cast("Any", transport))
    bodies, data = frames(3)
    receive(connection, data)
    assert server.begun == bodies[:1]
    assert server.written == bodies[:1]
    for number in (2, 3):
        loop.pass_time(1.1)
        assert server.begun == bodies[:number]
    loop.pass_time(1.1)
    assert transport.reads
    assert server.held_bytes == 0


async def test_a_muted_client_that_hangs_up_leaves_no_timer() -> None:
    loop, _, connection, _ = timed()
    connection.mute(60_000)
    assert connection.waits_unread
    connection.connection_lost(None)
    assert [timer.cancelled for timer in loop.timers] == [True]
    connection.mute(60_000)
    assert len(loop.timers) == 1


async def test_a_muted_connection_has_no_work_that_a_stop_would_wait_for() -> None:
    _, _, connection, transport = timed()
    connection.mute(60_000)
    assert not connection.has_work
    connection.hang_up()
    assert transport.closed
