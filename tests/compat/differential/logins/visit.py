"""One side of a conversation with an endpoint that has logins, and the table of such conversations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from seqgate.gateway.security.sasl.scram_credential import ScramHash, salt_password
from tests.compat.differential.logins.endpoints import SESSION_MS, SUPER_USER, Endpoint, password_of
from tests.compat.differential.peer import Peer, Refused, Transcript, Unsettled
from tests.compat.differential.settling import await_applied
from tests.support.sasl_login import plain_token
from tests.support.scram import SALT
from tests.support.wire import Answer, Plain

ITERATIONS = 4_096
LONG_MS = 10_000
"""A session that lives longer than this is long. The lifetime of a session follows from the time at which its
credentials expire, unless it is `SESSION_MS`.
"""
Show = Callable[[bytes], Any]


class Visit:
    """The connections of one conversation with one endpoint; all share a transcript."""

    def __init__(self, endpoint: Endpoint, conversation: str, prefix: str) -> None:
        self._endpoint = endpoint
        self.conversation = conversation
        self.transcript = Transcript(prefix)
        self.admin = Peer(endpoint.admin, prefix, self.transcript)
        self._clients: list[Peer] = []

    def close(self) -> None:
        self.admin.close()
        for client in self._clients:
            client.close()

    def name(self, suffix: str) -> str:
        return self.admin.name(suffix)

    def client(self, listener: str = "users") -> Peer:
        """Return a new connection to a listener, which has not logged in."""
        client = Peer(getattr(self._endpoint, listener), self.transcript.prefix, self.transcript)
        self._clients.append(client)
        return client

    def known(self, user: str, listener: str = "users") -> Peer:
        """Return a new connection on which a user has logged in with PLAIN."""
        client = self.client(listener)
        shake(client)
        authenticate(client, plain_token(user, password_of(user)))
        return client

    @cached_property
    def observer(self) -> Peer:
        """A connection of the super user whose exchanges the transcript leaves out."""
        observer = Peer(self._endpoint.users, self.transcript.prefix)
        self._clients.append(observer)
        shake(observer)
        authenticate(observer, plain_token(SUPER_USER, password_of(SUPER_USER)))
        return observer

    def add_scram_user(self, suffix: str, password: str, hashes: Sequence[ScramHash]) -> str:
        """Set a password for each hash, and return the user's name once the user can log in."""
        user = self.name(suffix)
        for hashing in hashes:
            row = {
                "name": user,
                "mechanism": int(hashing),
                "iterations": ITERATIONS,
                "salt": SALT,
                "salted_password": salt_password(hashing, password.encode(), SALT, ITERATIONS),
            }
            answer = self.admin.wire.call(
                "alter_user_scram_credentials", 0, deletions=[], upsertions=[row]
            ).fields
            assert not answer["results"][0]["error_code"], answer
        self.admin.until(
            "describe_user_scram_credentials",
            0,
            lambda answer: len(answer["results"][0]["credential_infos"]) == len(hashes),
            {"users": [{"name": user}]},
        )
        await_applied(self.admin)
        return user


class Table:
    """Conversations by name."""

    def __init__(self) -> None:
        self.found: dict[str, Callable[[Visit], None]] = {}

    def add(self, function: Callable[[Visit], None]) -> Callable[[Visit], None]:
        """Add a function under its theme (its module) and its name."""
        self._enter(function, "", function)
        return function

    def add_for_each(
        self, cases: Mapping[str, Any] | Iterable[Any]
    ) -> Callable[[Callable[[Visit, Any], None]], Callable[[Visit, Any], None]]:
        """Add a function once per case. Cases are named values, or values that are their own names."""
        named = cases if isinstance(cases, Mapping) else {str(case): case for case in cases}

        def enter(function: Callable[[Visit, Any], None]) -> Callable[[Visit, Any], None]:
            for case, value in named.items():
                self._enter(function, f"[{case}]", lambda visit, value=value: function(visit, value))  # type: ignore[misc]
            return function

        return enter

    def _enter(self, function: Callable[..., None], case: str, converse: Callable[[Visit], None]) -> None:
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}{case}"
        assert name not in self.found, f"two conversations named {name}"
        self.found[name] = converse

    def run(self, name: str, endpoint: Endpoint, token: str) -> Transcript:
        """Hold a conversation with one endpoint; the names of its resources begin with `token`."""
        legal = "".join(character if character.isalnum() else "-" for character in name)
        visit = Visit(endpoint, name, f"{token}-{legal}-")
        try:
            self.found[name](visit)
        except (Refused, Unsettled) as error:
            visit.admin.stopped(str(error))
        finally:
            visit.close()
        return visit.transcript


def together(*tables: Table) -> Table:
    """Return a table with the conversations of all."""
    made = Table()
    for table in tables:
        made.found |= table.found
    return made


def shake(client: Peer, mechanism: str = "PLAIN", version: int = 1) -> Plain:
    """Send a SaslHandshake."""
    return client.call("sasl_handshake", version, mechanism=mechanism)


def authenticate(client: Peer, token: bytes, *, version: int = 2, show: Show | None = None) -> bytes:
    """Send a token; return the server's token, of which the transcript has what `show` returns."""
    received = b""

    def converse() -> Answer:
        nonlocal received
        answer = client.wire.call("sasl_authenticate", version, auth_bytes=token)
        fields = answer.fields
        received = fields["auth_bytes"]
        shown = {"auth_bytes": show(received) if show else received}
        lifetime_ms = fields.get("session_lifetime", 0)
        if lifetime_ms not in {0, SESSION_MS}:
            shown["session_lifetime"] = "<long>" if lifetime_ms > LONG_MS else "<short>"
        return Answer({**fields, **shown}, answer.trailing)

    client.exchange(f"sasl_authenticate v{version}", token, converse)
    return received


def send_bare(client: Peer, token: bytes) -> None:
    """Send a token without a request around it, as after SaslHandshake v0."""

    def converse() -> Answer:
        client.wire.send_frame(token)
        return Answer({"token": client.wire.receive_frame()})

    client.exchange("bare token", token, converse)


def is_open(client: Peer, seconds: float = 0.3) -> None:
    """Record whether the connection stays open, without sending anything."""

    def converse() -> Answer:
        client.wire.expect_nothing(seconds)
        return Answer({"open": True})

    client.exchange("is open", None, converse)


def is_served(client: Peer) -> None:
    """Record the answer to a request that needs no rights."""
    client.call("metadata", 12, topics=[])
