"""A small HTTP/1.1 server for short requests and answers: h11 speaks the protocol, asyncio moves the bytes.

Its limits are constants, because only programs of the operator ask here.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

import h11

from seqgate.gateway.tasks import end_tasks

logger = logging.getLogger(__name__)

MAX_CLIENTS: Final = 64
"""Connections at a time; a further one is closed at once."""
REQUEST_TIMEOUT_S: Final = 30.0
"""Time for the next whole request, and for the client to take the answer; then the connection is closed."""
MAX_HEAD_BYTES: Final = 16 * 1024
"""Bytes of the head of a request."""
MAX_FIELDS: Final = 50
"""Fields in the query of a request."""
_CHUNK_BYTES: Final = 16 * 1024
READING: Final = ("GET", "HEAD")
"""The methods of a server that only tells."""


class HttpRequest(NamedTuple):
    """A request: the path as it was sent, without its query, the fields of the query, the headers by their
    names in lower case, and the host without port that was asked for.
    """

    path: str
    fields: Mapping[str, Sequence[str]]
    headers: Mapping[str, str]
    host: str
    method: str = "GET"
    body: bytes = b""


class HttpAnswer(NamedTuple):
    status: int
    content_type: str
    body: bytes


Answerer = Callable[[HttpRequest], Awaitable[HttpAnswer]]
PLAIN: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"


class HttpServer:
    """Serves one address until `stop`."""

    def __init__(
        self, answer: Answerer, *, methods: Sequence[str] = READING, max_body_bytes: int = 0
    ) -> None:
        """`answer` returns the answer to a request; its exception becomes status 500. Requests with another
        method, or a longer body, are refused.
        """
        self._answer = answer
        self._methods = methods
        self._max_body_bytes = max_body_bytes
        self._servers: list[asyncio.Server] = []
        self._clients: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    async def start(self, bound: Sequence[socket.socket]) -> int:
        """Listen on bound sockets; return the port. Raises OSError."""
        for each in bound:
            self._servers.append(await asyncio.start_server(self._serve, sock=each, limit=MAX_HEAD_BYTES))
        return int(bound[0].getsockname()[1])

    def duplicates(self) -> list[int]:
        """Return duplicates of the listening sockets: connections wait there when this server has stopped."""
        return [os.dup(each.fileno()) for server in self._servers for each in server.sockets]

    async def stop(self) -> None:
        """Close the address, and drop the requests in progress."""
        self._is_stopped = True  # a connection that was accepted may begin only now
        if not self._servers:
            return
        for server in self._servers:
            server.close()
        await end_tasks(*self._clients)
        self._servers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._clients) >= MAX_CLIENTS or self._is_stopped:
            writer.transport.abort()
            return
        self._clients.add(task)
        try:
            await self._exchange(reader, writer)
        except (OSError, TimeoutError, h11.ProtocolError, asyncio.CancelledError):
            writer.transport.abort()  # the client has left, is slow or speaks no HTTP, or the gateway stops
        finally:
            self._clients.discard(task)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer requests one after another until one side has enough."""
        protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        while True:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                try:
                    request = await self._next_request(protocol, reader)
                except h11.RemoteProtocolError as error:
                    if protocol.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
                        answer = HttpAnswer(error.error_status_hint, PLAIN, b"the request is malformed\n")
                        await _send(protocol, writer, answer, has_body=True)
                    return
            if request is None:
                return
            head, body = request
            answer = await self._answer_of(head, body)
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                await _send(protocol, writer, answer, has_body=head.method != b"HEAD")
            if protocol.our_state is h11.MUST_CLOSE or protocol.their_state is not h11.DONE:
                return
            protocol.start_next_cycle()

    async def _answer_of(self, request: h11.Request, body: bytes | None) -> HttpAnswer:
        method = request.method.decode("ascii")
        if method not in self._methods:
            return HttpAnswer(405, PLAIN, f"only {' and '.join(self._methods)} are answered here\n".encode())
        if body is None:
            return HttpAnswer(413, PLAIN, b"the body of the request is too long\n")
        headers = {name.decode("ascii"): value.decode("latin-1") for name, value in request.headers}
        try:
            target = urlsplit(request.target.decode("ascii"))
            fields = parse_qs(target.query, keep_blank_values=True, max_num_fields=MAX_FIELDS)
            host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
        except ValueError:
            return HttpAnswer(400, PLAIN, b"the target of the request is malformed\n")
        try:
            return await self._answer(HttpRequest(target.path, fields, headers, host, method, body))
        except Exception:
            logger.exception("the HTTP request for %s failed", target.path)
            return HttpAnswer(500, PLAIN, b"the request failed in the gateway; its log says why\n")

    async def _next_request(
        self, protocol: h11.Connection, reader: asyncio.StreamReader
    ) -> tuple[h11.Request, bytes | None] | None:
        """Return the next whole request and its body, None for a body that is too long; None when the client
        has hung up. Raises h11.RemoteProtocolError.
        """
        request = None
        body = bytearray()
        while True:
            event = protocol.next_event()
            if event is h11.NEED_DATA:
                protocol.receive_data(await reader.read(_CHUNK_BYTES))
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                # Bytes beyond the limit are read and dropped, so that the client gets its answer.
                body += event.data[: self._max_body_bytes + 1 - len(body)]
            elif isinstance(event, h11.EndOfMessage):
                assert request is not None
                return request, bytes(body) if len(body) <= self._max_body_bytes else None
            elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
                return None


async def _send(
    protocol: h11.Connection, writer: asyncio.StreamWriter, answer: HttpAnswer, *, has_body: bool
) -> None:
    headers = [
        ("content-type", answer.content_type),
        ("content-length", str(len(answer.body))),
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
    ]
    writer.write(protocol.send(h11.Response(status_code=answer.status, headers=headers)) or b"")
    if has_body:
        writer.write(protocol.send(h11.Data(data=answer.body)) or b"")
    writer.write(protocol.send(h11.EndOfMessage()) or b"")
    await writer.drain()
