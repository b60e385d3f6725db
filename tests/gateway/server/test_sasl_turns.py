"""The steps of a login wait while the handshakes and logins of others have used up the turn of the event
loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from seqgate.gateway.config import load_config
from seqgate.gateway.handlers.answering.api import Deferred, ResponseBytes
from seqgate.gateway.runtime.loop.audit import AuditLog
from seqgate.gateway.runtime.loop.request_memory import RequestMemory
from seqgate.gateway.security.principals import ANONYMOUS
from seqgate.gateway.security.sasl.users_file import FixedUsers, plain_mechanism
from seqgate.gateway.server.handshake_turns import HandshakeTurns
from seqgate.gateway.server.sasl import Begin, Logins, RequestLimits, SaslDoor, SaslListener
from tests.gateway.handlers.support import FixedClock
from tests.support.wire import decode, encode

SLICE_S = 0.005
FRAME_BYTES = 4
"""The size before an answer."""


class Connection:
    """A connection that notes how its requests begin."""

    name = peer_host = "192.0.2.1"
    listener_name = "SASL"
    number = 1

    def __init__(self) -> None:
        self.principal = ANONYMOUS
        self.token_id: str | None = None
        self.begin: Begin

    def take(self, begin: Begin, limits: RequestLimits) -> None:
        self.begin = begin

    def when_gone(self, key: object, callback: Callable[[], None]) -> None: ...

    def forget_gone(self, key: object) -> None: ...

    def close(self, reason: str) -> None: ...

    def send(self, api: str, version: int, **fields: object) -> ResponseBytes | Deferred | None:
        return self.begin(memoryview(encode(api, version, fields)), self)


class Scene:
    """A listener with PLAIN, and the turns that its logins share."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.now_s = 0.0
        self.turns = HandshakeTurns(loop, SLICE_S, lambda: self.now_s)
        plain = plain_mechanism(FixedUsers({"ann": "secret"}))
        self.logins = logins = Logins(
            loop, FixedClock(), lambda _: {"PLAIN": plain}, AuditLog(loop, is_on=False)
        )
        limits = RequestLimits(1 << 20, RequestMemory(-1))
        config = load_config(overrides=["connection.failed.authentication.delay.ms=0"])
        self._listener = SaslListener(
            logins, config, "SASL", self.serve, limits, serve_unknown=self.serve, turns=self.turns
        )

    def serve(self, frame: memoryview, peer: Any) -> ResponseBytes:
        raise AssertionError("no request but those of a login may be begun")

    def connect(self) -> Connection:
        connection = Connection()
        SaslDoor(self._listener, connection)
        connection.send("sasl_handshake", 1, mechanism="PLAIN")
        return connection

    def use_up_the_turn(self) -> None:
        with self.turns.measured():
            self.now_s += SLICE_S


def error_of(answer: ResponseBytes | None) -> int:
    assert isinstance(answer, bytes)
    error: int = decode("sasl_authenticate", 1, answer[FRAME_BYTES:]).fields["error_code"]
    return error


async def test_a_token_is_judged_at_once_while_there_is_time() -> None:
    scene = Scene()
    connection = scene.connect()
    answer = connection.send("sasl_authenticate", 1, auth_bytes=b"\0ann\0secret")
    assert not isinstance(answer, Deferred)
    assert error_of(answer) == 0
    assert connection.principal == "User:ann"


@pytest.mark.parametrize(("password", "error"), [("secret", 0), ("wrong", 58)])
async def test_otherwise_it_waits_for_the_next_turn(password: str, error: int) -> None:
    scene = Scene()
    connection = scene.connect()
    scene.use_up_the_turn()
    answer = connection.send("sasl_authenticate", 1, auth_bytes=f"\0ann\0{password}".encode())
    assert isinstance(answer, Deferred)
    assert answer.holds_back
    assert connection.principal == ANONYMOUS
    while answer.answer is None:
        await asyncio.sleep(0)
    assert error_of(answer.answer) == error
    assert answer.failed == bool(error)
    assert (connection.principal == "User:ann") == (not error)


async def test_a_client_that_has_gone_costs_nothing() -> None:
    scene = Scene()
    connection = scene.connect()
    scene.use_up_the_turn()
    answer = connection.send("sasl_authenticate", 1, auth_bytes=b"\0ann\0secret")
    assert isinstance(answer, Deferred)
    answer.abandon()
    while len(scene.turns):
        await asyncio.sleep(0)
    assert connection.principal == ANONYMOUS


async def test_each_failure_counts_also_without_a_line(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    for _ in range(3):
        scene.connect().send("sasl_authenticate", 1, auth_bytes=b"\0ann\0wrong")
    assert scene.logins.failures == 3
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition(" failed: ")[0] for line in lines] == [
        "a login of 192.0.2.1 to listener SASL with PLAIN"
    ]
