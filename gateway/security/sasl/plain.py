"""PLAIN: a client sends its user name and password, so that only TLS keeps the password from others.

A token is `authorization id NUL user NUL password`. Source: RFC 4616, Kafka's PlainSaslServer.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final, Protocol

from gateway.security.principals import user
from gateway.security.sasl.exchange import Exchange, LoggedIn, LoginRefused, Step

PLAIN: Final = "PLAIN"
INVALID: Final = "Authentication failed: Invalid username or password"
_NOBODY: Final = b"\0" * hashlib.sha256().digest_size
"""The value with which the password of an unknown user is compared; it is the digest of no password."""


class PlainUsers(Protocol):
    """The users of a listener with PLAIN."""

    async def digests(self) -> Mapping[str, bytes]:
        """Return the digest of each user's password, by the user's name."""


def digest(password: str) -> bytes:
    """Return the digest of a password, which is kept and compared in its place.

    All digests have one length, so a comparison always takes the same time.
    """
    return hashlib.sha256(password.encode()).digest()


def digests(passwords: Mapping[str, str]) -> dict[str, bytes]:
    """Return the digest of each user's password."""
    return {name: digest(password) for name, password in passwords.items()}


class FixedUsers:
    """Users from the settings."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._digests = digests(passwords)

    async def digests(self) -> Mapping[str, bytes]:
        """Return the digest of each user's password, by the user's name."""
        return self._digests


class Plain:
    """The mechanism PLAIN of a listener."""

    name = PLAIN

    def __init__(self, users: PlainUsers) -> None:
        self._users = users

    def begin(self) -> Exchange:
        """Begin a login."""
        return _Login(self._users)


class _Login:
    """One login with a password; its first step is its last."""

    def __init__(self, users: PlainUsers) -> None:
        self._users = users

    async def step(self, token: bytes) -> Step:
        """Answer the client's token. Raises LoginRefused."""
        authorization_id, name, password = _parts(token)
        expected = (await self._users.digests()).get(name, _NOBODY)
        principal = None if expected is _NOBODY else user(name)
        if not hmac.compare_digest(digest(password), expected):
            raise LoginRefused(INVALID, principal=principal)
        if authorization_id not in {"", name}:
            raise LoginRefused(
                "Authentication failed: Client requested an authorization id that is different from username",
                principal=principal,
            )
        return Step(b"", LoggedIn(user(name)))


def _parts(token: bytes) -> tuple[str, str, str]:
    """Return authorization id, user and password. Raises LoginRefused."""
    parts = token.decode(errors="replace").split("\0")
    if len(parts) != 3:
        raise LoginRefused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
    authorization_id, name, password = parts
    if not name:
        raise LoginRefused("Authentication failed: username not specified")
    if not password:
        raise LoginRefused("Authentication failed: password not specified")
    return authorization_id, name, password
