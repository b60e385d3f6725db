"""Logins again on the same connection (KIP-368), and sessions that end."""

from __future__ import annotations

import time
from typing import Any

from tests.compat.differential.logins.endpoints import SESSION_MS, password_of
from tests.compat.differential.logins.visit import (
    Table,
    Visit,
    authenticate,
    is_open,
    is_served,
    send_bare,
    shake,
)
from tests.compat.differential.peer import Peer
from tests.support.sasl_login import plain_token
from tests.support.tokens import first_message, unsecured_token
from tests.support.wire import Answer, Plain

TABLE = Table()
ALICE = plain_token("alice", password_of("alice"))
BOB = plain_token("bob", password_of("bob"))
WRONG = plain_token("alice", "wrong")
PAST_SESSION_S = SESSION_MS / 1000 + 0.2
BETWEEN_S = 1.2
"""The pause (s) before a client logs in again: a second must have passed since its last login."""
METADATA: tuple[str, int, Plain] = ("metadata", 12, {"topics": []})
SHAKE: tuple[str, int, Plain] = ("sasl_handshake", 1, {"mechanism": "PLAIN"})


def _again(visit: Visit) -> Peer:
    return visit.known("alice", "again")


@TABLE.add_for_each([0, 1, 2])
def lifetime(visit: Visit, version: int) -> None:
    client = visit.client("again")
    shake(client)
    authenticate(client, ALICE, version=version)
    shake(client)
    authenticate(client, ALICE, version=version)
    is_served(client)


AFTER_SESSION: dict[str, tuple[str, int, Plain]] = {
    "metadata": METADATA,
    "api_versions": ("api_versions", 3, {"client_software_name": "c", "client_software_version": "1"}),
    "sasl_authenticate": ("sasl_authenticate", 2, {"auth_bytes": ALICE}),
    "produce without acks": ("produce", 9, {"acks": 0}),
    "handshake": SHAKE,
}


@TABLE.add
def requests_after_session(visit: Visit) -> None:
    """Send a request, each on its own connection, after the session is over.

    No connection is closed when its session ends; each is closed at its next request.
    """
    clients = {label: _again(visit) for label in AFTER_SESSION}
    bare = visit.client("again")
    shake(bare, version=0)
    send_bare(bare, ALICE)
    for client in (bare, *clients.values()):
        is_open(client, PAST_SESSION_S if client is bare else 0.01)
    for label, (api, version, request) in AFTER_SESSION.items():
        clients[label].call(api, version, **request)
    authenticate(clients["handshake"], ALICE)
    is_served(clients["handshake"])
    is_served(bare)


@TABLE.add
def session_is_renewed(visit: Visit) -> None:
    """Log in again before the session ends, three times.

    The connection of a client that did not log in again is closed.
    """
    client, other = _again(visit), _again(visit)
    begun_s = time.monotonic()
    while time.monotonic() - begun_s < SESSION_MS / 1000 + BETWEEN_S:
        is_open(client, BETWEEN_S)
        shake(client)
        authenticate(client, ALICE)
        is_served(client)
    is_served(other)


@TABLE.add
def too_soon(visit: Visit) -> None:
    """Log in again twice at once: the second handshake is refused, and the connection stays."""
    client = _again(visit)
    for _ in range(2):
        shake(client)
        authenticate(client, ALICE)
        is_served(client)


@TABLE.add
def token_without_handshake(visit: Visit) -> None:
    client = _again(visit)
    authenticate(client, ALICE)
    is_served(client)


@TABLE.add
def versions_before_handshake(visit: Visit) -> None:
    """Ask for the versions first, twice, as clients do before they log in again."""
    client = _again(visit)
    for _ in range(2):
        client.call("api_versions", 0)
    shake(client)
    authenticate(client, ALICE)
    is_served(client)


OTHERS: dict[str, bytes] = {
    "another user": BOB,
    "wrong password": WRONG,
    "wrong password of another user": plain_token("bob", "wrong"),
    "malformed": b"alice",
    "empty": b"",
}


@TABLE.add_for_each(OTHERS)
def with_another_token(visit: Visit, token: bytes) -> None:
    client = _again(visit)
    shake(client)
    authenticate(client, token)
    is_open(client)


@TABLE.add_for_each(["SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI", "plain", ""])
def with_another_mechanism(visit: Visit, mechanism: str) -> None:
    client = _again(visit)
    shake(client, mechanism)
    is_open(client, 1.0)
    other = _again(visit)
    sent = [
        other.begin("sasl_handshake", 1, mechanism=mechanism),
        other.begin("sasl_authenticate", 2, auth_bytes=ALICE),
    ]
    if sent[0].answer():
        sent[1].answer()


@TABLE.add
def with_bare_tokens(visit: Visit) -> None:
    """Begin to log in again with the old handshake."""
    client = _again(visit)
    shake(client, version=0)
    send_bare(client, ALICE)
    is_served(client)


@TABLE.add
def handshake_of_an_unknown_version(visit: Visit) -> None:
    client = _again(visit)
    frame = b"\0\x11\0\x02\0\0\0\1\0\1c\0\5PLAIN"
    client.frame("sasl_handshake v2", frame, api="sasl_handshake", version=1)


@TABLE.add
def pipelined(visit: Visit) -> None:
    """Send requests before and behind the new login at once."""
    client = visit.client("again")
    token = ("sasl_authenticate", 2, {"auth_bytes": ALICE})
    client.pipelined([SHAKE, token, METADATA, SHAKE, token, METADATA, SHAKE, METADATA])


@TABLE.add
def request_behind_handshake(visit: Visit) -> None:
    client = visit.client("again")
    token = ("sasl_authenticate", 2, {"auth_bytes": ALICE})
    client.pipelined([SHAKE, token, SHAKE, METADATA, token])


def _bearer(client: Peer, lifetime_s: float, subject: str = "alice") -> None:
    """Log in with a bearer token, and record about how long the session lives."""

    def converse() -> Answer:
        claims: Any = {"sub": subject, "exp": time.time() + lifetime_s, "iat": int(time.time()) - 5}
        token = first_message(unsecured_token(**claims))
        answer = client.wire.call("sasl_authenticate", 2, auth_bytes=token)
        told_s = answer.fields["session_lifetime"] / 1000
        about_s = lifetime_s if -0.1 < lifetime_s - told_s < 1 else told_s
        return Answer({**answer.fields, "session_lifetime": about_s})

    client.exchange("bearer token", lifetime_s, converse)


@TABLE.add
def bearer_tokens_end_sessions(visit: Visit) -> None:
    """Log in with tokens where nobody must log in again, and where they must: the shorter time counts."""
    for listener in ("users", "again"):
        for lifetime_s in (1.5, 3600.0):
            client = visit.client(listener)
            shake(client, "OAUTHBEARER")
            _bearer(client, lifetime_s)
            is_open(client, 1.7 if lifetime_s < 2 else 0.01)
            is_served(client)


@TABLE.add_for_each(["alice", "bob"])
def bearer_token_again(visit: Visit, subject: str) -> None:
    """Log in again with a token of the same user, or another one, although only the lifetime of the first
    token requires it.
    """
    client = visit.client()
    for name in ("alice", subject):
        shake(client, "OAUTHBEARER")
        _bearer(client, 600.0, name)
        is_served(client)
