"""The client's side of PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512, for gateways that log in to brokers.

Source: RFC 4616, RFC 5802, Kafka's ScramSaslClient.
"""

from __future__ import annotations

import base64
import hmac
import re
import secrets
from collections.abc import Callable
from typing import Final

from seqgate.gateway.security.sasl.exchange import LoginRefused
from seqgate.gateway.security.sasl.scram_credential import MAX_ITERATIONS, ScramHash, salt_password

PLAIN: Final = "PLAIN"
_MOST_ITERATIONS: Final = 100 * MAX_ITERATIONS
"""Iterations that a server may ask for; a login that asks for more is refused, because it would take seconds
of CPU.
"""
_FIRST: Final = re.compile(rb"r=([\x21-+\--~]+),s=([A-Za-z0-9+/=]+),i=(\d{1,9})(?:,.*)?", re.DOTALL)
_CHANNEL_BINDING: Final = b"c=" + base64.b64encode(b"n,,")


def client_login(
    mechanism: str,
    username: str,
    password: str,
    new_nonce: Callable[[], bytes] = lambda: secrets.token_urlsafe(24).encode(),
) -> _PlainLogin | _ScramLogin:
    """Begin a login; `mechanism` is PLAIN or one of SCRAM.

    Send its `first` message, and for each answer the one that `step` returns, until that is None: the login
    is complete. `step` raises LoginRefused for a wrong answer. A step of SCRAM takes milliseconds, so call it
    in another thread than that of the event loop.
    """
    if mechanism == PLAIN:
        return _PlainLogin(username, password)
    (hashing,) = (each for each in ScramHash if each.mechanism == mechanism)
    return _ScramLogin(hashing, username, password, new_nonce())


class _PlainLogin:
    def __init__(self, username: str, password: str) -> None:
        self._message = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        return self._message

    def step(self, answer: bytes) -> bytes | None:  # noqa: ARG002 - the answer says nothing
        return None


class _ScramLogin:
    def __init__(self, hashing: ScramHash, username: str, password: str, nonce: bytes) -> None:
        self._hashing = hashing
        self._password = password.encode()
        self._nonce = nonce
        name = username.replace("=", "=3D").replace(",", "=2C").encode()
        self._bare = b"n=" + name + b",r=" + nonce
        self._signature = b""
        """The signature that the server must show; empty until the server was answered."""

    def first(self) -> bytes:
        return b"n,," + self._bare

    def step(self, answer: bytes) -> bytes | None:
        if not self._signature:
            return self._proof(answer)
        if not hmac.compare_digest(answer, b"v=" + base64.b64encode(self._signature)):
            raise LoginRefused("the server does not prove that it knows the password")
        return None

    def _proof(self, answer: bytes) -> bytes:
        """Return the message that proves the password, and note the proof that is expected in return."""
        found = _FIRST.fullmatch(answer)
        if found is None:
            raise LoginRefused("the server's first message is malformed: it must follow SCRAM (RFC 5802)")
        nonce, salt, iterations = found[1], base64.b64decode(found[2]), int(found[3])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise LoginRefused("the server's nonce does not begin with the client's")
        if not 0 < iterations <= _MOST_ITERATIONS:
            raise LoginRefused(f"the server asks for {iterations} iterations; at most {_MOST_ITERATIONS}")
        hashing = self._hashing
        salted = salt_password(hashing, self._password, salt, iterations)
        client_key = hashing.hmac(salted, b"Client Key")
        without_proof = _CHANNEL_BINDING + b",r=" + nonce
        signed = b",".join((self._bare, answer, without_proof))
        signature = hashing.hmac(hashing.digest(client_key), signed)
        proof = bytes(key ^ sign for key, sign in zip(client_key, signature, strict=True))
        self._signature = hashing.hmac(hashing.hmac(salted, b"Server Key"), signed)
        return without_proof + b",p=" + base64.b64encode(proof)
