"""A listener that accepts nothing for a while: clients connect, and are served later."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvloop

from seqgate.gateway.config.listeners import parse_listener
from seqgate.gateway.server.server import Acceptor

Run = Callable[[Coroutine[Any, Any, None]], None]
LIMIT_S = 120.0
FOR_EVER_S = 1000.0
LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


class Welcome(asyncio.Protocol):
    """A protocol that sends a greeting to each client."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).write(b"hello")


async def open_acceptor(host: str = "127.0.0.1") -> tuple[Acceptor, int]:
    acceptor = Acceptor(asyncio.get_running_loop(), Welcome, 50)
    sockets = await acceptor.open(parse_listener(f"PLAINTEXT://{host}:0"))
    return acceptor, sockets[0].getsockname()[1]


async def greeted(port: int) -> asyncio.Task[bytes]:
    """Connect, and return a task that reads the greeting."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def read() -> bytes:
        found = await reader.readexactly(5)
        writer.close()
        return found

    return asyncio.create_task(read())


@LOOPS
def test_connections_wait_while_it_holds_and_are_served_afterwards(run: Run) -> None:
    async def scene() -> None:
        acceptor, port = await open_acceptor()
        before = await greeted(port)
        assert await asyncio.wait_for(before, LIMIT_S) == b"hello"
        acceptor.hold(0.2)
        acceptor.hold(FOR_EVER_S)  # a second call changes nothing
        waiting = [await greeted(port) for _ in range(5)]
        assert acceptor.is_holding
        done, _ = await asyncio.wait(waiting, timeout=0.1)
        assert not done
        assert await asyncio.wait_for(asyncio.gather(*waiting), LIMIT_S) == [b"hello"] * 5
        assert not acceptor.is_holding
        acceptor.close()
        await asyncio.wait_for(acceptor.wait_closed(), LIMIT_S)

    run(scene())


@LOOPS
def test_it_can_hold_again_and_again(run: Run) -> None:
    async def scene() -> None:
        acceptor, port = await open_acceptor()
        for _ in range(5):
            acceptor.hold(0.01)
            assert await asyncio.wait_for(await greeted(port), LIMIT_S) == b"hello"
        acceptor.close()
        await asyncio.wait_for(acceptor.wait_closed(), LIMIT_S)

    run(scene())


@LOOPS
@pytest.mark.parametrize("holds", [True, False])
def test_a_closed_one_leaves_the_port(run: Run, holds: bool) -> None:
    async def scene() -> None:
        acceptor, port = await open_acceptor()
        if holds:
            acceptor.hold(FOR_EVER_S)
        acceptor.close()
        await asyncio.wait_for(acceptor.wait_closed(), LIMIT_S)
        with socket.socket() as client:
            client.settimeout(LIMIT_S)
            assert client.connect_ex(("127.0.0.1", port)) != 0

    run(scene())


@LOOPS
def test_without_file_handles_it_goes_on_to_accept(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_handle(number: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    async def scene() -> None:
        acceptor, port = await open_acceptor()
        monkeypatch.setattr("seqgate.gateway.server.server.os.dup", no_handle)
        acceptor.hold(FOR_EVER_S)
        assert not acceptor.is_holding
        assert await asyncio.wait_for(await greeted(port), LIMIT_S) == b"hello"
        acceptor.close()
        await asyncio.wait_for(acceptor.wait_closed(), LIMIT_S)

    run(scene())


@LOOPS
def test_a_listener_that_can_not_go_on_tries_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqgate.gateway.server.server.RETRY_S", 0.01)

    async def scene() -> None:
        acceptor, port = await open_acceptor()
        loop = asyncio.get_running_loop()
        failures = iter([OSError(errno.ENOBUFS, "No buffer space available")])

        async def create_server(*arguments: Any, **options: Any) -> Any:
            for failure in failures:
                raise failure
            return await loop.create_server(*arguments, **options)

        stand_in = SimpleNamespace(
            create_server=create_server, call_later=loop.call_later, create_task=loop.create_task
        )
        monkeypatch.setattr(acceptor, "_loop", stand_in)
        acceptor.hold(0.01)
        assert await asyncio.wait_for(await greeted(port), LIMIT_S) == b"hello"
        assert not list(failures)
        acceptor.close()
        await asyncio.wait_for(acceptor.wait_closed(), LIMIT_S)

    run(scene())


@LOOPS
@pytest.mark.parametrize("holds", [True, False])
def test_connections_wait_at_the_duplicates_for_the_one_that_inherits_them(run: Run, holds: bool) -> None:
    async def scene() -> None:
        first, port = await open_acceptor()
        if holds:
            first.hold(FOR_EVER_S)
        kept = [socket.socket(fileno=number) for number in first.duplicates()]
        first.close()
        waiting = await greeted(port)
        second = Acceptor(asyncio.get_running_loop(), Welcome, 50)
        listener = parse_listener(f"PLAINTEXT://127.0.0.1:{port}")
        assert (await second.open(listener, kept))[0].getsockname()[1] == port
        assert await asyncio.wait_for(waiting, LIMIT_S) == b"hello"
        second.close()
        await asyncio.wait_for(second.wait_closed(), LIMIT_S)

    run(scene())
