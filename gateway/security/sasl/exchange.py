"""One login of one client: both sides exchange tokens until the client is logged in or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec


class LoginRefused(Exception):
    """The client may not log in. The message goes to client and log: it has no secret, and does not tell an
    unknown user from a wrong password. `principal` is the claimed one, for the audit log; None for a user
    that does not exist, because people type passwords in place of their names.
    """

    def __init__(self, reason: str, *, principal: str | None = None) -> None:
        super().__init__(reason)
        self.principal = principal


class LoggedIn(msgspec.Struct, frozen=True):
    """The result of a login. `expires_at_ms`: wall-clock time (ms) at which the credentials expire; None for
    never. `token_id`: the delegation token that the client logged in with, or None.
    """

    principal: str
    expires_at_ms: int | None = None
    token_id: str | None = None


class SaslStep(msgspec.Struct, frozen=True):
    """The answer to one token of a client; `logged_in` is set when the login is complete."""

    token: bytes
    logged_in: LoggedIn | None = None


class Exchange(Protocol):
    """The server's side of one login with one mechanism."""

    async def step(self, token: bytes) -> SaslStep:
        """Answer the client's next token. Raises LoginRefused."""


class Mechanism(NamedTuple):
    """A SASL mechanism of a listener: its name on the wire, as `SCRAM-SHA-256`, and what begins a login."""

    name: str
    begin: Callable[[], Exchange]
