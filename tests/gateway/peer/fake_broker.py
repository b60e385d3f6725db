"""A broker on a socket that answers as a test says, or does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from seqgate.gateway.peer.peers import PeerAddress
from seqgate.gateway.protocol.frames import parse_request_header, skip_tagged_fields
from seqgate.gateway.protocol.messages import (
    API_VERSIONS,
    build,
    encode_response,
    request_schema,
    response_module,
)

Answer = Callable[[Any], Any]
"""Returns the answer to a request of kio; None to stay silent."""
HEARTBEAT, FIND_COORDINATOR = 12, 10


class FakeBroker:
    """Counts its connections and keeps the requests that it got."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[Any] = []
        self.client_ids: set[str] = set()
        self.connections = 0
        self.apis = {HEARTBEAT: (0, 4), FIND_COORDINATOR: (0, 6)}
        self.open: set[asyncio.StreamWriter] = set()
        self.arrived = asyncio.Condition()
        self.address: PeerAddress

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open.add(writer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                await self._take(await reader.readexactly(size), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open.discard(writer)
            writer.transport.abort()

    async def _take(self, frame: bytes, writer: asyncio.StreamWriter) -> None:
        view = memoryview(frame)
        header = parse_request_header(view)
        self.client_ids.add(header.client_id)
        schema = request_schema(header.api_key, header.api_version)
        position = skip_tagged_fields(view, header.body_position) if schema.flexible else header.body_position
        request, end = schema.read(view, position)
        assert end == len(frame)
        answer = (
            self._versions(header.api_version) if header.api_key == API_VERSIONS else self.answer(request)
        )
        if header.api_key != API_VERSIONS:
            async with self.arrived:
                self.requests.append(request)
                self.arrived.notify_all()
        if answer is not None:
            writer.write(encode_response(header.api_key, header.correlation_id, answer))

    def _versions(self, version: int) -> Any:
        module = response_module(API_VERSIONS, version)
        rows = tuple(
            build(module.ApiVersion, api_key=key, min_version=lowest, max_version=highest)
            for key, (lowest, highest) in self.apis.items()
        )
        return build(module.ApiVersionsResponse, error_code=0, api_keys=rows)

    async def got(self, count: int) -> None:
        """Wait until so many requests have arrived."""
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.requests) >= count)

    def hang_up(self) -> None:
        for writer in list(self.open):
            writer.transport.abort()


@asynccontextmanager
async def fake_broker(answer: Answer, port: int = 0) -> AsyncIterator[FakeBroker]:
    broker = FakeBroker(answer)
    server = await asyncio.start_server(broker.serve, "127.0.0.1", port)
    broker.address = PeerAddress("127.0.0.1", server.sockets[0].getsockname()[1])
    try:
        yield broker
    finally:
        server.close()
        broker.hang_up()
