"""Methods, bodies and broken requests, sent as bytes over one connection."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from seqgate.gateway.config.listeners import parse_listener
from seqgate.gateway.http_server import PLAIN, HttpAnswer, HttpRequest, HttpServer
from seqgate.gateway.server.server import bound_sockets

ADDRESS = parse_listener("PLAINTEXT://127.0.0.1:0")
LIMIT = 8
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _echo(request: HttpRequest) -> HttpAnswer:
    if request.path == "/fails":
        raise ValueError("a bug")
    accept = request.headers.get("accept", "")
    text = f"{request.method} {request.path} {dict(request.fields)} {accept} "
    return HttpAnswer(200, PLAIN, text.encode() + request.body)


@pytest.fixture
async def streams() -> AsyncIterator[Streams]:
    server = HttpServer(_echo, methods=("GET", "HEAD", "POST"), max_body_bytes=LIMIT)
    port = await server.start(bound_sockets(ADDRESS))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    yield reader, writer
    writer.close()
    await server.stop()


async def ask(streams: Streams, head: str, body: bytes = b"") -> tuple[int, bytes]:
    reader, writer = streams
    length = f"content-length: {len(body)}\r\n" if body else ""
    writer.write(f"{head} HTTP/1.1\r\nhost: x\r\naccept: a/b\r\n{length}\r\n".encode() + body)
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    sizes = [int(line.partition(":")[2]) for line in lines if line.startswith("content-length")]
    size = 0 if head.startswith("HEAD") else sizes[0]
    return int(lines[0].split()[1]), await reader.readexactly(size)


async def test_requests_of_one_connection_are_answered_in_turn(streams: Streams) -> None:
    assert await ask(streams, "GET /a%20b?c=d") == (200, b"GET /a%20b {'c': ['d']} a/b ")
    assert await ask(streams, "POST /x", b"12345678") == (200, b"POST /x {} a/b 12345678")
    assert await ask(streams, "HEAD /x") == (200, b"")
    assert await ask(streams, "POST /x", b"z" * 100_000) == (413, b"the body of the request is too long\n")
    assert await ask(streams, "DELETE /x") == (405, b"only GET and HEAD and POST are answered here\n")
    assert (await ask(streams, "GET /fails"))[0] == 500
    assert (await ask(streams, "GET http://[/"))[0] == 400
    assert (await ask(streams, "POST /x"))[0] == 200


async def test_a_body_in_chunks_is_put_together(streams: Streams) -> None:
    reader, writer = streams
    writer.write(b"POST /x HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
    writer.write(b"2\r\nde\r\n0\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    assert (await reader.read(100)).endswith(b"abcde")


async def test_a_malformed_request_is_refused(streams: Streams) -> None:
    reader, writer = streams
    writer.write(b"no HTTP at all\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 400")


async def test_requests_wait_at_the_duplicates_for_the_server_that_inherits_them() -> None:
    first = HttpServer(_echo)
    port = await first.start(bound_sockets(ADDRESS))
    kept = [socket.socket(fileno=number) for number in first.duplicates()]
    await first.stop()
    streams = await asyncio.open_connection("127.0.0.1", port)
    second = HttpServer(_echo)
    assert await second.start(kept) == port
    assert (await ask(streams, "GET /x"))[0] == 200
    streams[1].close()
    await second.stop()
