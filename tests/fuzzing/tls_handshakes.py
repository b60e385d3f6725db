"""TLS handshakes on a listener: an input says, step by step, what a client sends and how its bytes are
damaged.

The client is a real one, so damage meets every state of a handshake. No bytes reach the gateway's requests
before a whole handshake, the connection ends with its client, nothing raises, and an undamaged handshake is
served.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

import uvloop

from seqgate.gateway.security.key_stores import Store
from seqgate.gateway.security.tls_context import TlsSettings, build_context
from seqgate.gateway.server.connection import Connection
from seqgate.gateway.server.handshake_turns import HandshakeTurns
from seqgate.gateway.server.tls import TlsDoor
from tests.fuzzing.changes import changed
from tests.fuzzing.stored_keys import CERTIFICATE, KEY
from tests.fuzzing.target import Breach, Run
from tests.support.wire import encode

MAX_INPUT_BYTES = 1024
PEAK_BYTES = 32 << 20
BASE_WORK = 600.0
WHOLE, PIECES, FLIP, DROP, TWICE, RAW, PLAIN, HALF, DATA, ANSWERS = range(10)
STEP_BYTES: Final = 3
MOST_STEPS: Final = 40
HANDSHAKE_S: Final = 3600.0
"""The time limit of a handshake: far away, because a connection must end with its client, and not by the
limit.
"""
TURNS: Final = 60
"""The turns of the event loop in which it must have done all its work."""
REQUEST: Final = encode("api_versions", 0, {})


class _Served(asyncio.Protocol):
    """A connection that records the bytes that arrive after the handshake."""

    name = peer_host = "fuzz"

    def __init__(self) -> None:
        self.is_open = False
        self.has_ended = False
        self.received = bytearray()

    def meet(self, transport: asyncio.Transport) -> bool:
        return True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.has_ended = True


class _Client:
    """A TLS client whose bytes go through the hands of the input."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.is_done = self.has_failed = False

    def go_on(self) -> None:
        """Continue the handshake with the bytes that have arrived."""
        if self.is_done or self.has_failed:
            return
        try:
            self._tls.do_handshake()
            self.is_done = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            self.has_failed = True

    def write(self, data: bytes) -> None:
        if self.is_done and not self.has_failed:
            self._tls.write(data)


class _Scene:
    """A listener and its clients in one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._context, _ = build_context(TlsSettings(Store(key=KEY, certificates=CERTIFICATE), Store()))
        self._contexts = [
            _client_context(version) for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
        ]
        self._errors: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: self._errors.append(context))

    async def meet(self, data: bytes) -> None:
        """Let one client do what an input says."""
        served, client = _Served(), _Client(self._contexts[data[0] & 1 if data else 0])
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        turns = HandshakeTurns(cast("Any", self._loop), HANDSHAKE_S)
        connection = cast("Connection", served)
        await self._loop.connect_accepted_socket(
            lambda: TlsDoor(
                self._loop, connection, lambda: self._context, HANDSHAKE_S, turns, lambda *_: None
            ),
            sock=ours,
        )
        is_damaged = False
        with theirs:
            for step in _steps(data):
                is_damaged |= await self._step(step, client, theirs)
                if served.received and not client.is_done:
                    raise Breach(f"{bytes(served.received)!r} is served before the handshake")
        for _ in range(TURNS):
            if served.has_ended:
                break
            await asyncio.sleep(0)
        if self._errors:
            errors, self._errors = self._errors, []
            raise errors[0].get("exception") or Breach(str(errors[0]))
        if not served.has_ended:
            raise Breach("the connection stays open after its client has left")
        if not is_damaged and client.has_failed:
            raise Breach("an undamaged handshake fails")

    async def _step(self, step: bytes, client: _Client, theirs: socket.socket) -> bool:
        """Carry out a step; return whether it damages what a client sends."""
        kind, first, second = step[0] % 10, step[1], step[2]
        client.go_on()
        if kind == DATA:
            client.write(REQUEST)
        sent = client.outgoing.read()
        pieces, is_damaged = [sent], kind in (FLIP, DROP, TWICE) and bool(sent)
        if kind == PIECES:
            size = 1 + first % 64
            pieces = [sent[at : at + size] for at in range(0, len(sent), size)]
        elif kind == FLIP and sent:
            place = (first << 8 | second) % len(sent)
            pieces = [sent[:place] + bytes([sent[place] ^ 1 << second % 8]) + sent[place + 1 :]]
        elif kind == DROP:
            pieces = [sent[: first % (len(sent) + 1)]]
        elif kind == TWICE:
            pieces = [sent, sent]
        elif kind in (RAW, PLAIN):
            raw = bytes([first, second]) * (1 + second % 9) if kind == RAW else REQUEST
            pieces, is_damaged = [sent, raw], True
        for piece in pieces:
            if piece:
                with contextlib.suppress(OSError):
                    theirs.send(piece)
                await asyncio.sleep(0)
        if kind == HALF:
            with contextlib.suppress(OSError):
                theirs.shutdown(socket.SHUT_WR)
            is_damaged = True
        await self._take_answers(client, theirs)
        return is_damaged

    async def _take_answers(self, client: _Client, theirs: socket.socket) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
            with contextlib.suppress(OSError):
                client.incoming.write(theirs.recv(1 << 16))


def _client_context(version: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=CERTIFICATE)
    context.minimum_version = context.maximum_version = version
    return context


def _steps(data: bytes) -> list[bytes]:
    places = range(1, len(data) - STEP_BYTES + 1, STEP_BYTES)
    return [data[at : at + STEP_BYTES] for at in places][:MOST_STEPS]


@contextmanager
def opened() -> Iterator[Run]:
    loop = uvloop.new_event_loop()
    try:
        scene = _Scene(loop)

        def feed(data: bytes) -> None:
            loop.run_until_complete(scene.meet(data))

        yield feed
    finally:
        loop.close()


def input_of(*kinds: int, is_newest: bool = True) -> bytes:
    """Return an input of steps of these kinds, for a client of TLS 1.3 or 1.2."""
    return bytes([is_newest]) + b"".join(bytes([kind, 7, 3]) for kind in kinds)


def seeds() -> Iterator[bytes]:
    for is_newest in (False, True):
        yield input_of(WHOLE, WHOLE, DATA, DATA, is_newest=is_newest)
        yield input_of(PIECES, PIECES, DATA, PIECES, is_newest=is_newest)
        for kind in (FLIP, DROP, TWICE, RAW, PLAIN, HALF):
            yield input_of(kind, WHOLE, DATA, is_newest=is_newest)
            yield input_of(WHOLE, kind, DATA, kind, is_newest=is_newest)
    yield input_of(PLAIN)
    yield input_of()


def mutated(data: bytes, chance: random.Random) -> bytes:
    steps = _steps(data)
    for _ in range(chance.randint(1, 3)):
        if steps and chance.random() < 0.2:
            del steps[chance.randrange(len(steps))]
        else:
            new = bytes([chance.randrange(10), *chance.randbytes(2)])
            steps.insert(chance.randrange(len(steps) + 1), new)
    joined = (data[:1] or b"\1") + b"".join(steps)
    return changed(joined, chance, 1) if chance.random() < 0.2 else joined
