"""A connection over which no whole request comes is closed: it would take the place of another browser."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from seqgate.gateway.console import command
from seqgate.gateway.console.application import REQUEST_TIMEOUT_S, TimedProtocol
from seqgate.gateway.console.console import ConsoleOptions

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"


class Connection:
    """A connection of a browser to an application that answers whole requests when it may."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self._looks: list[Callable[[], None]] = []
        self.unsent_bytes = 0
        self._transport = Mock(
            get_extra_info=lambda _: None,
            is_closing=lambda: False,
            get_write_buffer_size=lambda: self.unsent_bytes,
        )
        loop = SimpleNamespace(call_later=self._later, create_task=asyncio.get_running_loop().create_task)
        config = uvicorn.Config(self._answer, interface="asgi3", lifespan="off", log_config=None)
        self._state = ServerState()
        self.protocol = TimedProtocol(config, self._state, {}, loop)  # type: ignore[arg-type]
        self.protocol.connection_made(self._transport)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive).body()
        await self.may_answer.wait()
        await PlainTextResponse("done")(scope, receive, send)

    def _later(self, delay_s: float, callback: Callable[[], None]) -> Any:
        if delay_s == REQUEST_TIMEOUT_S:
            self._looks.append(callback)
        return Mock()

    async def answered(self) -> None:
        self.may_answer.set()
        await asyncio.gather(*self._state.tasks)
        assert b"done" in b"".join(call.args[0] for call in self._transport.write.call_args_list)

    def is_closed_after_a_while(self) -> bool:
        self._looks.pop()()
        return bool(self._transport.abort.called)


@pytest.mark.parametrize("sent", [b"", GET[:1], GET[:-1]])
async def test_a_connection_without_a_request_is_closed(sent: bytes) -> None:
    connection = Connection()
    for byte in sent:
        connection.protocol.data_received(bytes([byte]))
    assert connection.is_closed_after_a_while()


async def test_a_form_that_does_not_come_whole_is_given_up() -> None:
    connection = Connection()
    connection.protocol.data_received(POST + b"name")
    assert not connection.is_closed_after_a_while(), "it may have begun just now"
    assert connection.is_closed_after_a_while()


async def test_an_answer_may_take_long_and_the_next_request_may_not() -> None:
    connection = Connection()
    for request in (GET, POST + b"name="):
        connection.may_answer.clear()
        connection.protocol.data_received(request)
        assert not connection.is_closed_after_a_while()
        assert not connection.is_closed_after_a_while()
        await connection.answered()
        connection.unsent_bytes = 1
        assert not connection.is_closed_after_a_while(), "a slow browser reads it"
        connection.unsent_bytes = 0
    connection.protocol.data_received(GET[:20])
    assert connection.is_closed_after_a_while()


def test_the_console_serves_so(monkeypatch: pytest.MonkeyPatch) -> None:
    serving: list[uvicorn.Config] = []

    def server(config: uvicorn.Config) -> SimpleNamespace:
        return SimpleNamespace(run=lambda sockets: (serving.append(config), sockets[0].close()))

    monkeypatch.setattr(uvicorn, "Server", server)
    command._run(ConsoleOptions(bootstrap=(("127.0.0.1", 1),), listen=("127.0.0.1", 0)))
    assert serving[0].http is TimedProtocol
