from __future__ import annotations

import base64
import datetime as dt
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.security import delegation_tokens as create_delegation_token
from seqgate.gateway.handlers.security import delegation_tokens as describe_delegation_token
from seqgate.gateway.handlers.security import delegation_tokens as expire_delegation_token
from seqgate.gateway.handlers.security import delegation_tokens as renew_delegation_token
from seqgate.gateway.handlers.security.delegation_tokens import MAX_RENEWERS, NO_TIME
from seqgate.gateway.runtime.topics import delegation_tokens
from seqgate.gateway.security.acls.access import Operation, ResourceType
from seqgate.gateway.security.sasl.exchange import LoggedIn, LoginRefused
from seqgate.gateway.security.sasl.scram import scram_mechanism
from seqgate.gateway.security.sasl.scram_credential import ScramHash
from tests.gateway.backends.shared_changes import SharedChanges
from tests.gateway.handlers.asking import Asking
from tests.gateway.handlers.rights import Rights
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.support.scram import ScramClient

KEY = "delegation.token.secret.key=a secret of the gateway"
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NONE = ErrorCode.none.value
NOT_ALLOWED = ErrorCode.delegation_token_request_not_allowed


class Client(Asking):
    """A client that has authenticated itself as a user, by TLS or, with a token's id, by SCRAM."""

    def __init__(
        self, node: Node, user: str = "ann", *, listener: str = "SSL", token: str | None = None
    ) -> None:
        super().__init__(node, f"User:{user}")
        self.peer.listener_name = listener
        self.peer.token_id = token

    async def create(
        self,
        *,
        owner: str | None = None,
        renewers: Sequence[str] = (),
        lifetime_ms: int = -1,
        renewer_type: str = "User",
    ) -> Any:
        return await self.ask(
            "create_delegation_token",
            3,
            owner_principal_type=None if owner is None else "User",
            owner_principal_name=owner,
            renewers=[{"principal_type": renewer_type, "principal_name": name} for name in renewers],
            max_lifetime=lifetime_ms,
        )

    async def renew(self, password: bytes, period_ms: int = -1) -> tuple[int, int]:
        answer: Any = await self.ask("renew_delegation_token", 2, hmac=password, renew_period=period_ms)
        return answer["error_code"], answer["expiry_timestamp"]

    async def expire(self, password: bytes, period_ms: int = -1) -> tuple[int, int]:
        answer: Any = await self.ask(
            "expire_delegation_token", 2, hmac=password, expiry_time_period=period_ms
        )
        return answer["error_code"], answer["expiry_timestamp"]

    async def described(self, *owners: str, version: int = 3) -> Any:
        named = [{"principal_type": "User", "principal_name": name} for name in owners]
        return await self.ask("describe_delegation_token", version, owners=named or None)


def create_for(owner: str | None) -> Callable[[ModuleType], dict[str, Any]]:
    return lambda _: {
        "owner_principal_type": None if owner is None else "User",
        "owner_principal_name": owner,
        "renewers": (),
        "max_lifetime": dt.timedelta(milliseconds=-1),
    }


async def test_a_token_is_created_renewed_described_and_expired(tmp_path: Path) -> None:
    async with open_node(tmp_path, KEY) as node:
        ann, bob = Client(node), Client(node, "bob")
        token = await ann.create(renewers=["bob"], lifetime_ms=2 * DAY_MS)
        assert token["error_code"] == NONE
        assert (token["principal_type"], token["principal_name"]) == ("User", "ann")
        assert token["token_requester_principal_name"] == "ann"
        assert token["issue_timestamp"] == NOW_MS
        assert token["expiry_timestamp"] == NOW_MS + DAY_MS
        assert token["max_timestamp"] == NOW_MS + 2 * DAY_MS
        assert len(token["token_id"]) == 22
        assert len(token["hmac"]) == 64
        node.clock.time_ms += HOUR_MS
        assert await bob.renew(token["hmac"]) == (NONE, NOW_MS + HOUR_MS + DAY_MS)
        assert await bob.renew(token["hmac"], 90 * DAY_MS) == (NONE, NOW_MS + HOUR_MS + DAY_MS)
        (described,) = (await bob.described())["tokens"]
        assert described["hmac"] == token["hmac"]
        assert described["expiry_timestamp"] == NOW_MS + HOUR_MS + DAY_MS
        assert described["renewers"] == [{"principal_type": "User", "principal_name": "bob"}]
        assert await ann.expire(token["hmac"], HOUR_MS) == (NONE, NOW_MS + 2 * HOUR_MS)
        node.clock.time_ms += 2 * HOUR_MS
        expired = ErrorCode.delegation_token_expired.value
        assert await ann.renew(token["hmac"]) == (expired, 0)
        assert await ann.expire(token["hmac"], HOUR_MS) == (expired, 0)
        assert await ann.expire(token["hmac"]) == (NONE, NOW_MS + 3 * HOUR_MS)
        assert (await ann.described())["tokens"] == []
        assert await ann.renew(token["hmac"]) == (ErrorCode.delegation_token_not_found.value, 0)


async def test_a_token_lives_as_long_as_it_is_asked_for(tmp_path: Path) -> None:
    """Periods on the wire have 64 bits; 30 days need more than 31 of them."""
    year = f"={365 * DAY_MS}"
    settings = (f"delegation.token.max.lifetime.ms{year}", f"delegation.token.expiry.time.ms{year}")
    async with open_node(tmp_path, KEY, *settings) as node:
        ann = Client(node)
        token = await ann.create(lifetime_ms=90 * DAY_MS)
        assert token["max_timestamp"] == NOW_MS + 90 * DAY_MS
        assert await ann.renew(token["hmac"], 60 * DAY_MS) == (NONE, NOW_MS + 60 * DAY_MS)
        assert await ann.expire(token["hmac"], 30 * DAY_MS) == (NONE, NOW_MS + 30 * DAY_MS)
        assert await ann.renew(token["hmac"], 10**15) == (NONE, NOW_MS + 90 * DAY_MS)


async def test_a_token_that_another_gateway_has_just_created_is_found(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="seqgate.changes")
    shared = SharedChanges()
    async with (
        open_node(tmp_path / "1", KEY, journal=shared.journal) as here,
        open_node(tmp_path / "2", KEY, journal=shared.journal) as there,
    ):
        token = await Client(there).create()
        assert await Client(here).renew(token["hmac"]) == (NONE, NOW_MS + DAY_MS)
        assert await Client(there).expire(token["hmac"]) == (NONE, NOW_MS)
        assert f"expired delegation token {token['token_id']}" in caplog.text


async def test_no_token_lives_longer_than_its_lifetime(tmp_path: Path) -> None:
    async with open_node(tmp_path, KEY) as node:
        ann = Client(node)
        token = await ann.create(lifetime_ms=90 * DAY_MS)
        assert token["max_timestamp"] == NOW_MS + 7 * DAY_MS
        short = await ann.create(lifetime_ms=HOUR_MS)
        assert short["expiry_timestamp"] == short["max_timestamp"] == NOW_MS + HOUR_MS
        assert await ann.renew(short["hmac"], DAY_MS) == (NONE, NOW_MS + HOUR_MS)
        assert await ann.expire(short["hmac"], DAY_MS) == (NONE, NOW_MS + HOUR_MS)


@pytest.mark.parametrize(
    ("user", "listener", "token"),
    [("ann", "PLAINTEXT", None), ("ANONYMOUS", "SSL", None), ("ann", "SSL", "a token")],
)
async def test_only_clients_with_credentials_of_their_own_may_ask(
    tmp_path: Path, user: str, listener: str, token: str | None
) -> None:
    """kio's readers refuse the time -1 of these answers, so the answers are not decoded here."""
    async with open_node(tmp_path, KEY) as node:
        node.peer = Client(node, user, listener=listener, token=token).peer
        created = await node.ask(create_delegation_token.CREATE_DELEGATION_TOKEN_API, 3, create_for(None))
        assert created.error_code is NOT_ALLOWED
        assert (created.issue_timestamp, created.max_timestamp, created.hmac) == (NO_TIME, NO_TIME, b"")
        period = dt.timedelta(milliseconds=-1)
        renewed = await node.ask(
            renew_delegation_token.RENEW_DELEGATION_TOKEN_API,
            2,
            lambda _: {"hmac": b"x", "renew_period": period},
        )
        assert (renewed.error_code, renewed.expiry_timestamp) == (NOT_ALLOWED, NO_TIME)
        expired = await node.ask(
            expire_delegation_token.EXPIRE_DELEGATION_TOKEN_API,
            2,
            lambda _: {"hmac": b"x", "expiry_time_period": period},
        )
        assert (expired.error_code, expired.expiry_timestamp) == (NOT_ALLOWED, NO_TIME)
        described = await node.ask(
            describe_delegation_token.DESCRIBE_DELEGATION_TOKEN_API, 3, lambda _: {"owners": None}
        )
        assert (described.error_code, described.tokens) == (NOT_ALLOWED, ())


async def test_without_a_key_there_are_no_tokens(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        ann = Client(node)
        disabled = ErrorCode.delegation_token_auth_disabled.value
        assert (await ann.create())["error_code"] == disabled
        assert await ann.renew(b"x") == (disabled, 0)
        assert await ann.expire(b"x") == (disabled, 0)
        assert (await ann.described())["error_code"] == disabled


async def test_the_old_name_of_the_key(tmp_path: Path) -> None:
    async with open_node(tmp_path, "delegation.token.master.key=a secret of the gateway") as node:
        token = await Client(node).create()
    async with open_node(tmp_path, KEY, "delegation.token.master.key=another") as node:
        (described,) = (await Client(node).described())["tokens"]
        assert described["hmac"] == token["hmac"]


async def test_what_is_refused(tmp_path: Path) -> None:
    async with open_node(tmp_path, KEY, "seqgate.delegation.tokens.max=1") as node:
        ann, eve = Client(node), Client(node, "eve")
        wrong_type = await ann.create(renewers=["bob"], renewer_type="Group")
        assert wrong_type["error_code"] == ErrorCode.invalid_principal_type.value
        assert [wrong_type[name] for name in ("issue_timestamp", "expiry_timestamp", "max_timestamp")] == [
            -1
        ] * 3
        many = await ann.create(renewers=["bob"] * (MAX_RENEWERS + 1))
        assert many["error_code"] == ErrorCode.invalid_request.value
        token = await ann.create()
        assert (await ann.create())["error_code"] == ErrorCode.policy_violation.value
        mismatch = ErrorCode.delegation_token_owner_mismatch.value
        assert await eve.renew(token["hmac"]) == (mismatch, 0)
        assert await eve.expire(token["hmac"]) == (mismatch, 0)
        assert await ann.renew(b"another") == (ErrorCode.delegation_token_not_found.value, 0)


async def test_tokens_of_others_need_rights(tmp_path: Path) -> None:
    async with open_node(tmp_path, KEY) as node:
        ann, bob = Client(node), Client(node, "bob")
        rights = Rights()
        node.services.node.access = rights
        node.peer = bob.peer
        refused = await node.ask(create_delegation_token.CREATE_DELEGATION_TOKEN_API, 3, create_for("ann"))
        assert refused.error_code is ErrorCode.delegation_token_authorization_failed
        assert (refused.principal_name, refused.token_requester_principal_name) == ("ann", "bob")
        rights.allow(Operation.CREATE_TOKENS, ResourceType.USER, "User:ann")
        token = await bob.create(owner="ann")
        assert (token["principal_name"], token["token_requester_principal_name"]) == ("ann", "bob")
        own = await ann.create()
        assert own["error_code"] == NONE
        assert {each["token_id"] for each in (await ann.described())["tokens"]} == {
            token["token_id"],
            own["token_id"],
        }
        assert [each["token_id"] for each in (await bob.described())["tokens"]] == [token["token_id"]]
        assert (await bob.described("carl"))["tokens"] == []
        rights.allow(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, own["token_id"])
        assert len((await bob.described("ann"))["tokens"]) == 2
        rights.deny(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, own["token_id"])
        rights.allow(Operation.DESCRIBE_TOKENS, ResourceType.USER, "User:ann")
        assert len((await bob.described("ann"))["tokens"]) == 2


async def log_in(node: Node, token_id: str, password: bytes, hashing: ScramHash) -> LoggedIn | None:
    tokens = node.services.security.tokens
    login = scram_mechanism(hashing, lambda *_: None, tokens.find, lambda: b"server").begin()
    client = ScramClient(
        hashing, token_id, base64.b64encode(password).decode(), extensions=b",tokenauth=true"
    )
    challenge = await login.step(client.first())
    return (await login.step(client.final(challenge.token))).logged_in


@pytest.mark.parametrize("hashing", ScramHash)
async def test_a_token_logs_its_owner_in_until_it_expires(tmp_path: Path, hashing: ScramHash) -> None:
    async with open_node(tmp_path, KEY) as node:
        token = await Client(node).create(lifetime_ms=HOUR_MS)
        token_id, password = token["token_id"], token["hmac"]
        expected = LoggedIn("User:ann", NOW_MS + HOUR_MS, token_id)
        assert await log_in(node, token_id, password, hashing) == expected
        assert await log_in(node, token_id, password, hashing) == expected
        with pytest.raises(LoginRefused):
            await log_in(node, token_id, b"wrong", hashing)
        with pytest.raises(LoginRefused):
            await log_in(node, "unknown", password, hashing)
        node.clock.time_ms += HOUR_MS + 1
        with pytest.raises(LoginRefused):
            await log_in(node, token_id, password, hashing)


async def test_a_login_that_fails_in_the_gateway_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    async with open_node(tmp_path, KEY) as node:
        token = await Client(node).create()
        with monkeypatch.context() as short:
            short.setattr(delegation_tokens, "_derived", fail)
            with pytest.raises(MemoryError):
                await log_in(node, token["token_id"], token["hmac"], ScramHash.SHA_256)
        assert await log_in(node, token["token_id"], token["hmac"], ScramHash.SHA_256)


async def test_expired_tokens_are_removed_for_good(tmp_path: Path) -> None:
    async with open_node(tmp_path, KEY) as node:
        ann = Client(node)
        short, long = await ann.create(lifetime_ms=HOUR_MS), await ann.create()
        await log_in(node, short["token_id"], short["hmac"], ScramHash.SHA_256)
        assert await ann.renew(short["hmac"]) == (NONE, NOW_MS + HOUR_MS)
        await node.services.security.tokens.remove_expired()
        assert len((await ann.described())["tokens"]) == 2
        node.clock.time_ms += HOUR_MS + 1
        await node.services.security.tokens.remove_expired()
        assert [token["token_id"] for token in (await ann.described())["tokens"]] == [long["token_id"]]
        assert await ann.renew(short["hmac"]) == (ErrorCode.delegation_token_not_found.value, 0)
    async with open_node(tmp_path, KEY) as node:
        (described,) = (await Client(node).described())["tokens"]
        assert (described["token_id"], described["hmac"]) == (long["token_id"], long["hmac"])


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_older_versions(tmp_path: Path, version: int) -> None:
    async with open_node(tmp_path, KEY) as node:
        ann = Client(node)
        owner: dict[str, Any] = {"owner_principal_type": None, "owner_principal_name": None}
        fields = owner if version == 3 else {}
        token: Any = await ann.ask("create_delegation_token", version, renewers=[], max_lifetime=-1, **fields)
        assert (token["error_code"], token["principal_name"]) == (NONE, "ann")
        assert len((await ann.described(version=version))["tokens"]) == 1


async def test_no_log_line_has_a_password(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with open_node(tmp_path, KEY) as node:
        token = await Client(node).create()
        await Client(node).renew(token["hmac"])
    assert f"created delegation token {token['token_id']} of User:ann" in caplog.text
    assert token["hmac"].hex() not in caplog.text
    assert base64.b64encode(token["hmac"]).decode() not in caplog.text
    assert str(token["hmac"]) not in caplog.text
