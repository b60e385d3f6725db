"""The server closes idle connections and stalled ones."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest

from seqgate.gateway.config import Listener, load_config
from seqgate.gateway.runtime.loop.machine import SPARE_HANDLES
from seqgate.gateway.server.server import KEEPALIVE_IDLE_S, STALLED_S, Server


class FakeLoop:
    now_s = 1000.0

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, callback: Any) -> None:
        self.next_look = callback


class FakeConnection:
    listener_name = "PLAINTEXT"
    peer_host = "127.0.0.1"
    name = "127.0.0.1:50312"

    def __init__(self, **state: Any) -> None:
        self.last_active_s = FakeLoop.now_s
        self.active = self.is_closing = self.awaits_answers = self.holds_memory = False
        self.has_request_under_way = self.waits_unread = False
        self.fate = ""
        self.__dict__.update(state)

    def slow_s(self, now_s: float) -> float:
        return now_s - FakeLoop.now_s if self.has_request_under_way else 0.0

    def close(self, reason: str) -> None:
        self.fate = "closed"
        self.is_closing = True

    def abort(self, reason: str = "") -> None:
        self.fate = "dropped"


def look_after(silent_s: float, server: Server, loop: FakeLoop, *connections: FakeConnection) -> list[str]:
    for connection in connections:
        server.admit(cast("Any", connection))
    loop.now_s = FakeLoop.now_s + silent_s
    server.close_idle()
    return [connection.fate for connection in connections]


def new_server(*settings: str) -> tuple[Server, FakeLoop]:
    loop = FakeLoop()
    return Server(cast("Any", loop), load_config(overrides=settings), cast("Any", None)), loop


def test_idle_ones_are_closed_and_those_that_do_not_read_the_end_are_dropped() -> None:
    server, loop = new_server("connections.max.idle.ms=60000")
    idle, busy = FakeConnection(), FakeConnection(awaits_answers=True)
    assert look_after(59, server, loop, idle, busy) == ["", ""]
    assert look_after(61, server, loop, idle, busy) == ["closed", ""]
    assert look_after(119, server, loop, idle, busy) == ["closed", ""]
    assert look_after(121, server, loop, idle, busy) == ["dropped", ""]


def test_a_request_that_stopped_half_way_gives_its_memory_to_those_who_wait() -> None:
    server, loop = new_server("queued.max.request.bytes=100")
    assert server.memory.acquire("a", 90, lambda: None)
    stalled, sound = FakeConnection(holds_memory=True, has_request_under_way=True), FakeConnection()
    assert look_after(STALLED_S + 1, server, loop, stalled, sound) == ["", ""], (
        "a stalled request must stay while memory is not short"
    )
    assert not server.memory.acquire("b", 50, lambda: None)
    assert look_after(STALLED_S - 1, server, loop, stalled, sound) == ["", ""]
    assert look_after(STALLED_S + 1, server, loop, stalled, sound) == ["dropped", ""]


def test_a_request_that_never_gets_whole_is_no_sign_of_life() -> None:
    server, loop = new_server("connections.max.idle.ms=60000")
    trickling = FakeConnection(has_request_under_way=True, active=True)
    assert look_after(59, server, loop, trickling) == [""]
    trickling.active = True
    assert look_after(61, server, loop, trickling) == ["closed"]


class FakeSocket:
    def __init__(self) -> None:
        self.options: list[tuple[Any, ...]] = []

    def setsockopt(self, *option: Any) -> None:
        self.options.append(option)


@pytest.mark.parametrize(
    ("host", "setting", "chosen"),
    [
        ("127.0.0.1", "seqgate.loopback.congestion.control=cubic", [b"cubic"]),
        ("127.8.9.1", "seqgate.loopback.congestion.control=reno", [b"reno"]),
        ("::1", "seqgate.loopback.congestion.control=reno", [b"reno"]),
        ("::ffff:127.0.0.1", "seqgate.loopback.congestion.control=reno", [b"reno"]),
        ("127.0.0.1", "seqgate.loopback.congestion.control=", []),
        ("192.0.2.7", "seqgate.loopback.congestion.control=reno", []),
        ("fe80::1%eth0", "seqgate.loopback.congestion.control=reno", []),
        ("unix", "seqgate.loopback.congestion.control=reno", []),
    ],
)
def test_only_clients_on_this_machine_are_spared_congestion_control(
    host: str, setting: str, chosen: list[bytes]
) -> None:
    server, _ = new_server(setting)
    connected = FakeSocket()
    server.suit_peer(cast("Any", connected), host)
    # only Linux lets a socket choose its congestion control; elsewhere nothing changes
    option = getattr(socket, "TCP_CONGESTION", None)
    expected = [] if option is None else [(socket.IPPROTO_TCP, option, name) for name in chosen]
    assert connected.options == expected


async def test_clients_whose_machine_went_away_are_noticed() -> None:
    server = Server(asyncio.get_running_loop(), load_config(), cast("Any", SimpleNamespace(begin=None)))
    port = await server.listen(Listener("PLAINTEXT", "127.0.0.1", 0))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while not len(server):
        await asyncio.sleep(0)
    (connection,) = cast("Any", server)._connections
    accepted = connection._transport.get_extra_info("socket")
    assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    if hasattr(socket, "TCP_KEEPIDLE"):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == KEEPALIVE_IDLE_S
    writer.close()
    await server.stop_accepting()
    await server.finish(5)
    assert await reader.read() == b""


def test_a_connection_that_was_accepted_before_the_end_of_all_is_closed_when_it_begins() -> None:
    server, _ = new_server()
    connected, accepted = FakeConnection(), FakeConnection()
    assert server.admit(cast("Any", connected)) is None
    server.abort_all()
    assert (connected.fate, server.admit(cast("Any", accepted))) == ("dropped", 0.0)


def test_connections_leave_file_handles_to_the_segments() -> None:
    server = Server(
        cast("Any", FakeLoop()),
        load_config(overrides=()),
        cast("Any", None),
        handles_limit=SPARE_HANDLES + 20,
    )
    admitted = [server.admit(cast("Any", FakeConnection())) for _ in range(11)]
    assert admitted == [None] * 10 + [0]
    assert server.refused_connections == 1
