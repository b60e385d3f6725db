"""A client of a node without sockets: sends requests of any API as frames, as the dispatcher gets them."""

from __future__ import annotations

import asyncio

from seqgate.gateway.handlers import APIS
from seqgate.gateway.handlers.answering.api import Deferred
from seqgate.gateway.server.dispatcher import Dispatcher
from seqgate.log import FileRegion
from tests.gateway.handlers.support import FakePeer, Node
from tests.support.wire import Plain, decode, encode

PATIENCE_S = 120.0


class HungUp(Exception):
    """The connection was closed instead of an answer."""


class Asking:
    """A connection with a principal of its own; connections of one server share its dispatcher."""

    def __init__(
        self, node: Node, principal: str = "User:ANONYMOUS", dispatcher: Dispatcher | None = None
    ) -> None:
        self.peer = FakePeer()
        self.peer.principal = principal
        self.dispatcher = dispatcher or Dispatcher(APIS, node.services)

    def begin(self, api: str, version: int, **fields: object) -> Deferred:
        """Begin a request; return the future of its answer."""
        begun = self.dispatcher.begin(memoryview(encode(api, version, fields)), self.peer)
        if isinstance(begun, Deferred):
            return begun
        deferred = Deferred()
        deferred.resolve(b"" if begun is None else begun)
        return deferred

    async def ask(self, api: str, version: int, **fields: object) -> Plain:
        """Return the fields of the answer. Raises HungUp."""
        return await answer_to(api, version, self.begin(api, version, **fields))


async def answer_to(api: str, version: int, deferred: Deferred) -> Plain:
    """Wait for an answer and return its fields. Raises HungUp."""
    answered = asyncio.Event()
    deferred.on_resolved = answered.set
    async with asyncio.timeout(PATIENCE_S):
        if deferred.answer is None:
            await answered.wait()
    if deferred.failed:
        raise HungUp
    answer = deferred.answer
    pieces = [answer] if isinstance(answer, bytes) else list(answer or ())
    frame = b"".join(piece.read() if isinstance(piece, FileRegion) else piece for piece in pieces)
    decoded = decode(api, version, frame[4:])
    assert not decoded.trailing
    return decoded.fields
