"""Delegation tokens: creation to expiry, the rights of owners and renewers, and logins with tokens."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from seqgate.gateway.security.sasl.scram_credential import ScramHash
from tests.compat.differential.logins.endpoints import SUPER_USER
from tests.compat.differential.logins.visit import Table, Visit, authenticate, is_open, is_served, shake
from tests.compat.differential.peer import Peer
from tests.support.scram import ScramClient
from tests.support.wire import Answer, Plain

TABLE = Table()
MAX_LIFE_MS = 7 * 86_400_000
EXPIRY_MS = 86_400_000
TIMES = ("issue_timestamp", "expiry_timestamp", "max_timestamp")
SLACK_MS = 60_000
"""The largest difference (ms) of two times that the duration of a request explains."""
SOON_MS = 3_000
PAST_SOON_S = 3.3
TOKENAUTH = b",tokenauth=true"


class Tokens:
    """The requests of one client about tokens; what only one endpoint knows is left out of the transcript."""

    def __init__(self, visit: Visit, client: Peer) -> None:
        self._visit = visit
        self.client = client

    def create(
        self,
        *,
        version: int = 3,
        lifetime_ms: int = -1,
        renewers: Sequence[str] = (),
        owner: tuple[str, str] | None = None,
    ) -> Plain:
        """Create a token, and return it once the endpoint serves it."""
        rows = [{"principal_type": kind, "principal_name": name} for kind, name in map(_parts, renewers)]
        request: Plain = {"renewers": rows, "max_lifetime": lifetime_ms}
        if owner is not None:
            request |= {"owner_principal_type": owner[0], "owner_principal_name": owner[1]}
        made = self.call("create_delegation_token", version, request)
        if made.get("error_code") == 0:
            self._await(made, made["expiry_timestamp"])
        return made

    def renew(self, token: Plain, period_ms: int = -1, *, version: int = 2) -> None:
        self._change(
            "renew_delegation_token", version, {"hmac": token["hmac"], "renew_period": period_ms}, token
        )

    def expire(self, token: Plain, period_ms: int = -1, *, version: int = 2) -> None:
        self._change(
            "expire_delegation_token",
            version,
            {"hmac": token["hmac"], "expiry_time_period": period_ms},
            token,
        )

    def describe(self, owners: Sequence[str] | None = None, *, version: int = 3) -> None:
        rows = None
        if owners is not None:
            rows = [{"principal_type": kind, "principal_name": name} for kind, name in map(_parts, owners)]
        self.call("describe_delegation_token", version, {"owners": rows})

    def _change(self, api: str, version: int, request: Plain, token: Plain) -> None:
        """Renew or expire a token; the transcript has the time in the answer relative to the token's issue."""
        answer = self.call(api, version, request, issued_ms=token["issue_timestamp"])
        if answer.get("error_code") == 0:
            is_gone = request.get("expiry_time_period", 0) < 0
            self._await(token, None if is_gone else answer["expiry_timestamp"])

    def call(self, api: str, version: int, request: Plain, *, issued_ms: int = 0) -> Plain:
        received: Plain = {}

        def converse() -> Answer:
            answer = self.client.wire.call(api, version, request)
            received.update(answer.fields)
            return Answer(_shown(answer.fields, issued_ms), answer.trailing)

        self.client.exchange(f"{api} v{version}", None, converse)
        return received

    def _await(self, token: Plain, expiry_ms: int | None) -> None:
        """Wait until the brokers know when a token expires, or that it is gone: brokers learn of a change
        after it was answered.
        """

        def known(answer: Plain) -> bool:
            found = [row["expiry_timestamp"] for row in answer["tokens"] if row["hmac"] == token["hmac"]]
            return found == ([] if expiry_ms is None else [expiry_ms])

        self._visit.observer.until("describe_delegation_token", 3, known, {"owners": None})


def _parts(principal: str) -> tuple[str, str]:
    kind, _, name = principal.partition(":")
    return kind, name


def _shown(answer: Plain, issued_ms: int = 0) -> Plain:
    shown = {**answer}
    issued_ms = shown.get("issue_timestamp", issued_ms)
    for name in TIMES:
        if shown.get(name, -1) > 0:
            shown[name] = _about(shown[name] - issued_ms)
    for name in ("token_id", "hmac"):
        if shown.get(name):
            shown[name] = f"<{len(shown[name])} long>"
    if "tokens" in shown:
        shown["tokens"] = sorted((_shown(token) for token in shown["tokens"]), key=str)
        for token in shown["tokens"]:
            token["renewers"] = sorted(token["renewers"], key=str)
    return shown


def _about(duration_ms: int) -> str | int:
    """Return the name of the setting that a duration equals, apart from the time that a request takes;
    otherwise the duration.
    """
    if 0 <= duration_ms < SLACK_MS:
        return "soon"
    for known_ms in (600_000, 3_600_000, EXPIRY_MS, MAX_LIFE_MS):
        if abs(duration_ms - known_ms) < SLACK_MS:
            return f"about {known_ms} ms"
    return duration_ms


def _of(visit: Visit, user: str = "alice") -> Tokens:
    return Tokens(visit, visit.known(user))


def _owner(visit: Visit) -> tuple[Tokens, str]:
    """Return the requests of a user of this conversation alone, and the user's name."""
    user = visit.add_scram_user("ann", "secret", [ScramHash.SHA_256])
    client = visit.client()
    _scram(client, ScramHash.SHA_256, user, "secret")
    return Tokens(visit, client), user


def _scram(client: Peer, hashing: ScramHash, user: str, password: str, *, extensions: bytes = b"") -> bool:
    """Log in with SCRAM, and return whether the server took the password."""
    scram = ScramClient(hashing, user, password, extensions=extensions)
    shake(client, hashing.mechanism)
    answer = authenticate(client, scram.first(), show=bool)
    return bool(answer) and bool(authenticate(client, scram.final(answer), show=bool))


def _log_in(
    visit: Visit, token: Plain, hashing: ScramHash = ScramHash.SHA_256, listener: str = "users"
) -> Peer:
    """Return a new connection that has tried to log in with a token."""
    client = visit.client(listener)
    password = base64.b64encode(token["hmac"]).decode()
    _scram(client, hashing, token["token_id"], password, extensions=TOKENAUTH)
    return client


@TABLE.add_for_each([1, 2, 3])
def life(visit: Visit, version: int) -> None:
    """Create, describe, renew and expire a token."""
    tokens, user = _owner(visit)
    made = tokens.create(version=version, renewers=["User:bob", f"User:{user}"])
    tokens.describe(version=version)
    other = min(version, 2)
    tokens.renew(made, 3_600_000, version=other)
    tokens.renew(made, version=other)
    tokens.expire(made, 600_000, version=other)
    tokens.expire(made, version=other)
    tokens.describe(version=version)
    tokens.renew(made, version=other)
    tokens.expire(made, version=other)


LIFETIMES = {"zero": 0, "minus two": -2, "an hour": 3_600_000, "longer than allowed": 2 * MAX_LIFE_MS}


@TABLE.add_for_each(LIFETIMES)
def lifetime(visit: Visit, lifetime_ms: int) -> None:
    tokens, _ = _owner(visit)
    made = tokens.create(lifetime_ms=lifetime_ms)
    tokens.renew(made)
    tokens.renew(made, 2 * MAX_LIFE_MS)
    tokens.expire(made, 2 * MAX_LIFE_MS)
    tokens.expire(made, 0)


RENEWERS = {
    "a group": ["Group:x"],
    "no type": [":x"],
    "no name": ["User:"],
    "lower case": ["user:x"],
    "twice": ["User:x", "User:x"],
    "a group behind a user": ["User:x", "Group:x"],
}


@TABLE.add_for_each(RENEWERS)
def odd_renewers(visit: Visit, renewers: list[str]) -> None:
    tokens, _ = _owner(visit)
    tokens.create(renewers=renewers)
    tokens.describe()


@TABLE.add
def who_may_renew(visit: Visit) -> None:
    """Renew, expire and describe a delegation token as its owner, its renewer, another user and a super user."""
    tokens, user = _owner(visit)
    made = tokens.create(renewers=["User:bob"])
    for other in ("bob", "alice", SUPER_USER):
        others = _of(visit, other)
        others.renew(made, 3_600_000)
        others.expire(made, 3_600_000)
        others.describe([f"User:{user}"])
    _of(visit, "alice").expire(made)
    _of(visit, "bob").expire(made)


@TABLE.add
def for_another_owner(visit: Visit) -> None:
    """Create a token for another owner: a super user may do that, other users may not."""
    owner = visit.name("owner")
    _of(visit, "alice").create(owner=("User", owner))
    _of(visit, "alice").create(owner=("User", "alice"))
    _of(visit, "alice").create(owner=("Group", "alice"))
    admin = _of(visit, SUPER_USER)
    made = admin.create(owner=("User", owner), renewers=["User:bob"])
    admin.describe([f"User:{owner}"])
    bob = _of(visit, "bob")
    bob.describe([f"User:{owner}"])
    bob.renew(made, 3_600_000)
    admin.renew(made, 3_600_000)
    client = _log_in(visit, made)
    is_served(client)
    admin.create(owner=("Group", owner))
    admin.create(owner=("User", ""))
    admin.expire(made)


@TABLE.add
def passwords_of_nobody(visit: Visit) -> None:
    tokens = _of(visit)
    for password in (b"", b"x", b"x" * 64):
        nobody = {"hmac": password, "issue_timestamp": 0}
        tokens.renew(nobody)
        tokens.expire(nobody)
        tokens.expire(nobody, 1_000)


@TABLE.add
def described_by_owners(visit: Visit) -> None:
    tokens, user = _owner(visit)
    tokens.create()
    tokens.describe([])
    tokens.describe([f"User:{user}"])
    tokens.describe([f"User:{visit.name('nobody')}"])
    tokens.describe([f"User:{user}", f"User:{user}"])
    tokens.describe([f"Group:{user}"])
    tokens.describe([":"])


@TABLE.add
def asked_without_login(visit: Visit) -> None:
    """Send the requests about tokens on the listener without logins."""
    tokens = Tokens(visit, visit.admin)
    nobody = {"hmac": b"x" * 64, "issue_timestamp": 0}
    for version in (1, 2):
        tokens.renew(nobody, version=version)
        tokens.expire(nobody, version=version)
    for version in (1, 2, 3):
        tokens.call("create_delegation_token", version, {"max_lifetime": -1})
        tokens.describe(version=version)


@TABLE.add_for_each({hashing.mechanism: hashing for hashing in ScramHash})
def login(visit: Visit, hashing: ScramHash) -> None:
    """Log in with a token: right, with another password, without `tokenauth`, and as the owner with
    `tokenauth`.
    """
    tokens, user = _owner(visit)
    made = tokens.create()
    client = _log_in(visit, made, hashing)
    is_served(client)
    wrong = {**made, "hmac": b"x" * 64}
    is_open(_log_in(visit, wrong, hashing))
    password = base64.b64encode(made["hmac"]).decode()
    for name, extensions in (
        (made["token_id"], b""),
        (user, TOKENAUTH),
        (made["token_id"], b",tokenauth=false"),
    ):
        client = visit.client()
        _scram(client, hashing, name, password, extensions=extensions)
        is_open(client)


@TABLE.add
def rights_of_a_login(visit: Visit) -> None:
    """After a login with a token, send a request that the token's owner may send, and requests about tokens,
    which are refused.
    """
    tokens, user = _owner(visit)
    made = tokens.create()
    entry: dict[str, Any] = {
        "resource_type": 2,
        "resource_name": visit.name("topic"),
        "resource_pattern_type": 3,
        "principal": f"User:{user}",
        "host": "*",
        "operation": 5,
        "permission_type": 3,
    }
    visit.admin.call("create_acls", 3, creations=[entry])
    client = _log_in(visit, made)
    topic = {"name": visit.name("topic"), "num_partitions": 1, "replication_factor": 1}
    client.until(
        "create_topics",
        7,
        lambda answer: answer["topics"][0]["error_code"] == 0,
        {"topics": [topic], "timeout": 10_000, "validate_only": True},
    )
    client.call("create_topics", 7, topics=[{**topic, "name": visit.name("other")}], timeout=10_000)
    with_token = Tokens(visit, client)
    with_token.call("create_delegation_token", 3, {"max_lifetime": -1})
    with_token.renew(made)
    with_token.expire(made)
    with_token.describe()


@TABLE.add
def token_that_expires(visit: Visit) -> None:
    """Log in with a token that ends soon; when it has ended, the open connection ends at its next request."""
    tokens, _ = _owner(visit)
    short = tokens.create(lifetime_ms=SOON_MS)
    expired = tokens.create()
    tokens.expire(expired, SOON_MS)
    clients = [_log_in(visit, short), _log_in(visit, expired)]
    for client in clients:
        is_open(client, PAST_SOON_S if client is clients[0] else 0.01)
    for client in clients:
        is_served(client)
    tokens.describe()
    for token in (short, expired):
        tokens.renew(token)
        tokens.expire(token, 3_600_000)
        tokens.expire(token)


@TABLE.add
def login_with_expired_token(visit: Visit) -> None:
    tokens, _ = _owner(visit)
    made = tokens.create()
    tokens.expire(made, 0)
    is_open(tokens.client, 0.1)
    is_served(_log_in(visit, made))


@TABLE.add
def removed_token(visit: Visit) -> None:
    """Remove a token: its open connection lives on, and no client can log in with it any more."""
    tokens, _ = _owner(visit)
    made = tokens.create()
    client = _log_in(visit, made)
    tokens.expire(made)
    is_served(client)
    is_open(_log_in(visit, made))


@TABLE.add
def again_with_a_token(visit: Visit) -> None:
    """Log in again, where clients must, with the token, with another token of the same owner, and with the
    owner's password.
    """
    tokens, user = _owner(visit)
    first, second = tokens.create(), tokens.create()
    for name, password, extensions in (
        (first["token_id"], base64.b64encode(first["hmac"]).decode(), TOKENAUTH),
        (second["token_id"], base64.b64encode(second["hmac"]).decode(), TOKENAUTH),
        (user, "secret", b""),
    ):
        client = _log_in(visit, first, listener="again")
        _scram(client, ScramHash.SHA_256, name, password, extensions=extensions)
        Tokens(visit, client).describe()
