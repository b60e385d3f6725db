"""A run in which SCRAM users change while clients log in, and the gateway crashes.

Between two changes the passwords are known: a login that begins and ends in such a time succeeds with the
present password, and with no other. After each change the description of all users must show what was
acknowledged.
"""

from __future__ import annotations

import base64
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.security.sasl.scram_credential import MIN_ITERATIONS, ScramHash
from tests.simulation.changes import Changes, Trial, administrator, is_done, until_answered
from tests.simulation.clients.connection import Disconnected, Link
from tests.simulation.clients.surroundings import Surroundings
from tests.simulation.node import Node
from tests.simulation.plan import HOST, PORT
from tests.support.scram import ScramClient, salted_password

LOGIN_PORT: Final = PORT + 1
CLIENTS: Final = 4
NAMES: Final = ("ann", "bob", "a,b=c")
PASSWORDS: Final = ("first", "second", "third")
SALTS: Final = (b"salt", b"pepper")
"""Few salts and passwords, so that nearly every salted password is computed already."""
SETTLED_S: Final = 0.07
"""The mean time between two changes."""

Credential = tuple[str, ScramHash]
"""A user's name and a hash: a user has a password for each mechanism."""


@dataclass
class Users:
    """The passwords that the gateway has acknowledged."""

    passwords: dict[Credential, str] = field(default_factory=dict)
    former: dict[Credential, set[str]] = field(default_factory=dict)
    """The passwords that each credential once had."""
    changes: Changes = field(default_factory=Changes)

    def set(self, credential: Credential, password: str | None) -> None:
        """Set a password; None removes it."""
        before = self.passwords.pop(credential, None)
        if before is not None:
            self.former.setdefault(credential, set()).add(before)
        if password is not None:
            self.passwords[credential] = password

    def kind(self, credential: Credential, password: str) -> str:
        """Return what kind of password this is for the present."""
        present = self.passwords.get(credential)
        if present == password:
            return "right"
        was_former = password in self.former.get(credential, ())
        return f"{'former' if was_former else 'wrong'}, {'no' if present is None else 'another'} present"


class Run:
    """One run and its findings."""

    def __init__(self, seed: int, duration_s: float = 6.0) -> None:
        self._trial = Trial("users", seed, duration_s)
        self.users = Users()
        self.breaches, self.counts = self._trial.breaches, self._trial.counts

    def execute(self) -> Run:
        """Run the gateway and its clients to the end."""
        chance = self._trial.chance("settings")
        settings = (
            f"listeners=PLAINTEXT://{HOST}:{PORT},SASL_PLAINTEXT://{HOST}:{LOGIN_PORT}",
            "sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512",
            f"connection.failed.authentication.delay.ms={chance.choice((0, 20))}",
            # The time of a turn is real time, and must not decide anything in a run.
            "seqgate.handshake.slice.ms=1000",
            f"seqgate.flush.inline.max.ms={chance.choice((0, 1))}",
        )
        self._trial.execute(settings, self._clients)
        return self

    async def _clients(self, node: Node, where: Surroundings) -> list[Coroutine[Any, Any, None]]:
        door = replace(where, port=LOGIN_PORT)
        return [self._change(where), *(self._use(door, number) for number in range(CLIENTS))]

    # --- the client that changes users

    async def _change(self, where: Surroundings) -> None:
        chance = self._trial.chance("changes")
        link = administrator(where, chance)
        while not where.ending:
            credential = chance.choice(NAMES), chance.choice(tuple(ScramHash))
            password: str | None = chance.choice(PASSWORDS)
            if credential in self.users.passwords and chance.random() < 0.35:
                password = None
            change = _Change(credential, password, chance.choice(SALTS))
            with self.users.changes.one():
                await until_answered(partial(change.carry_out, link, self.breaches))
                self.users.set(credential, password)
            self.counts["removals" if password is None else "upsertions"] += 1
            await where.pause(chance, SETTLED_S)
            await until_answered(partial(self._look, link))
        link.close()

    async def _look(self, link: Link) -> bool:
        """Compare the gateway's users with the acknowledged ones."""
        answer = await link.call("describe_user_scram_credentials", 0, {"users": None})
        if not is_done(answer.error_code):
            return False
        shown = {
            (result.user, ScramHash(info.mechanism))
            for result in answer.results
            for info in result.credential_infos
        }
        if shown != self.users.passwords.keys():
            self.breaches.append(f"{_sorted(shown)} are described instead of {_sorted(self.users.passwords)}")
        return True

    # --- the clients that log in

    async def _use(self, where: Surroundings, number: int) -> None:
        chance, users = self._trial.chance(f"client {number}"), self.users
        link = Link(where, f"client-{number}", chance)
        while not where.ending:
            credential = chance.choice(NAMES), chance.choice(tuple(ScramHash))
            password = chance.choice(PASSWORDS)
            if chance.random() < 0.4:
                password = users.passwords.get(credential, password)
            try:
                await link.connect()
                begun, kind = users.changes.known(), users.kind(credential, password)
                let_in = await _log_in(link, credential, password)
            except Disconnected:
                self.counts["unanswered"] += 1
            else:
                if begun is not None and begun == users.changes.known():
                    self._judge(credential, kind, let_in=let_in)
            link.close()
            await where.pause(chance, 0.02)

    def _judge(self, credential: Credential, kind: str, *, let_in: bool) -> None:
        self.counts[kind] += 1
        if let_in is not (kind == "right"):
            name, hashing = credential
            self.breaches.append(
                f"{name} was {'let in' if let_in else 'refused'} with {hashing.mechanism}; the password was "
                f"{kind}"
            )


class _Change:
    """One change of a credential; a password of None removes the credential."""

    def __init__(self, credential: Credential, password: str | None, salt: bytes) -> None:
        self._name, self._hashing = credential
        self._password = password
        self._salt = salt
        self._was_tried = False

    async def carry_out(self, link: Link, breaches: list[str]) -> bool:
        """Send the change; return whether the gateway has acknowledged it."""
        was_tried, self._was_tried = self._was_tried, True
        answer = await link.call("alter_user_scram_credentials", 0, self._request())
        error = answer.results[0].error_code
        if self._password is None and error is ErrorCode.resource_not_found:
            # An earlier attempt without an answer may have removed the credential.
            if not was_tried:
                breaches.append(f"{self._name} with {self._hashing.mechanism} was lost before its removal")
            return True
        return is_done(error)

    def _request(self) -> dict[str, Any]:
        common = {"name": self._name, "mechanism": int(self._hashing)}
        if self._password is None:
            return {"deletions": [common], "upsertions": []}
        salted = salted_password(self._hashing, self._password.encode(), self._salt, MIN_ITERATIONS)
        upsertion = {**common, "iterations": MIN_ITERATIONS, "salt": self._salt, "salted_password": salted}
        return {"deletions": [], "upsertions": [upsertion]}


async def _log_in(link: Link, credential: Credential, password: str) -> bool:
    """Return whether the gateway let the client in. Raises Disconnected."""
    name, hashing = credential
    client = ScramClient(hashing, name, password)
    connection = link.connection
    assert connection is not None

    async def ask(api: str, version: int, request: dict[str, Any]) -> Any:
        return await connection.send(api, version, request, link.request_timeout_s)

    handshake = await ask("sasl_handshake", 1, {"mechanism": hashing.mechanism})
    assert handshake.error_code is ErrorCode.none, handshake
    first = await ask("sasl_authenticate", 2, {"auth_bytes": client.first()})
    if _is_refused(first):
        return False
    last = await ask("sasl_authenticate", 2, {"auth_bytes": client.final(first.auth_bytes)})
    if _is_refused(last):
        return False
    assert last.auth_bytes == b"v=" + base64.b64encode(client.server_signature)
    return True


def _is_refused(answer: Any) -> bool:
    assert answer.error_code in {ErrorCode.none, ErrorCode.sasl_authentication_failed}, answer
    return answer.error_code is ErrorCode.sasl_authentication_failed


def _sorted(credentials: Any) -> str:
    return ", ".join(f"{name} {hashing.mechanism}" for name, hashing in sorted(credentials)) or "no users"
