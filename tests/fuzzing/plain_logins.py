"""Logins on a listener with SASL: an input is a sequence of frames that a client sends.

Before the login nothing but ApiVersions is served, and only the right password logs in, whatever a client
sends in whatever order.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from seqgate.gateway.config import load_config
from seqgate.gateway.handlers.answering.api import CloseConnection, Deferred
from seqgate.gateway.protocol.frames import MalformedRequest
from seqgate.gateway.runtime.loop.audit import AuditLog
from seqgate.gateway.runtime.loop.clock import Clock
from seqgate.gateway.runtime.loop.request_memory import RequestMemory
from seqgate.gateway.security.principals import ANONYMOUS
from seqgate.gateway.security.sasl.users_file import FixedUsers, plain_mechanism
from seqgate.gateway.server.handshake_turns import HandshakeTurns
from seqgate.gateway.server.sasl import Begin, Logins, RequestLimits, SaslDoor, SaslListener
from tests.fuzzing.changes import changed
from tests.fuzzing.target import Breach, Run
from tests.support.full_requests import full_request
from tests.support.wire import encode, versions_of

MAX_INPUT_BYTES = 2048
PEAK_BYTES = 16 << 20
BASE_WORK = 300.0
DEADLINE_S = 60.0
TOKEN = b"\0alice\0open sesame"
API_VERSIONS = 18
SERVED = b"\0\0\0\x06\0\0\0\0\0\0"


class _Clock(Clock):
    def now_ms(self) -> int:
        return 1_800_000_000_000


class _Connection:
    """A connection that notes how its requests begin."""

    name = peer_host = listener_name = "fuzz"
    number = 1

    def __init__(self) -> None:
        self.principal = ANONYMOUS
        self.token_id: str | None = None
        self.begin: Begin

    def take(self, begin: Begin, limits: RequestLimits) -> None:
        self.begin = begin

    def when_gone(self, key: Any, callback: Any) -> None: ...

    def forget_gone(self, key: Any) -> None: ...

    def close(self, reason: str) -> None: ...


async def _send(frames: list[bytes]) -> None:
    connection = _Connection()

    def serve(frame: memoryview, peer: Any) -> bytes:
        if connection.principal == ANONYMOUS and frame[:2] != API_VERSIONS.to_bytes(2, "big"):
            raise Breach(f"{bytes(frame)!r} is served before the login")
        return SERVED

    loop: Any = asyncio.get_running_loop()
    plain = plain_mechanism(FixedUsers({"alice": "open sesame"}))
    logins = Logins(loop, _Clock(), lambda _: {"PLAIN": plain}, AuditLog(loop, is_on=False))
    listener = SaslListener(
        logins,
        load_config(),
        "fuzz",
        serve,
        RequestLimits(1 << 20, RequestMemory(-1)),
        serve_unknown=serve,
        turns=HandshakeTurns(loop, DEADLINE_S),
    )
    SaslDoor(listener, connection)
    for number, frame in enumerate(frames):
        try:
            answer = connection.begin(memoryview(frame), connection)
        except (CloseConnection, MalformedRequest):
            break
        if connection.principal != ANONYMOUS and not any(TOKEN in sent for sent in frames[: number + 1]):
            raise Breach(f"{frames!r} logs in without the password")
        if isinstance(answer, Deferred):  # the login failed
            break


@contextmanager
def opened() -> Iterator[Run]:
    def feed(data: bytes) -> None:
        asyncio.run(_send(_frames(data)))

    yield feed


def _frames(data: bytes) -> list[bytes]:
    frames: list[bytes] = []
    while len(data) >= 2:
        size = int.from_bytes(data[:2], "big")
        frames.append(data[2 : 2 + size])
        data = data[2 + size :]
    return frames


def _joined(frames: list[bytes]) -> bytes:
    return b"".join(struct.pack(">H", len(frame)) + frame for frame in frames)


def seeds() -> Iterator[bytes]:
    versions = encode("api_versions", 3, {"client_software_name": "a", "client_software_version": "1"})
    metadata = encode("metadata", 1, {"topics": None})
    for version in range(3):
        token = encode("sasl_authenticate", version, {"auth_bytes": TOKEN})
        yield _joined([versions, encode("sasl_handshake", 1, {"mechanism": "PLAIN"}), token, metadata])
    yield _joined([encode("sasl_handshake", 0, {"mechanism": "PLAIN"}), TOKEN, metadata])
    yield _joined([encode("sasl_handshake", 1, {"mechanism": "OTHER"}), metadata])
    for api in ("create_topics", "offset_fetch", "alter_client_quotas"):
        refused = encode(api, versions_of(api)[-1], full_request(api, versions_of(api)[-1]))
        yield _joined([encode("sasl_handshake", 1, {"mechanism": "PLAIN"}), refused])


def mutated(data: bytes, chance: random.Random) -> bytes:
    frames = _frames(data) or _frames(chance.choice(_SEEDS))
    place = chance.randrange(len(frames))
    if chance.random() < 0.3:
        frames.insert(place, chance.choice(_frames(chance.choice(_SEEDS))))
    else:
        frames[place] = changed(frames[place], chance)
    return _joined(frames)


_SEEDS = tuple(seeds())
