"""Connections to another gateway over TLS and with logins, to its real listener."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import uvloop
from kio.schema.write_txn_markers.v2.request import WriteTxnMarkersRequest

from seqgate.gateway.config import load_config
from seqgate.gateway.gateway import Gateway
from seqgate.gateway.metadata.decision import Decision
from seqgate.gateway.metadata.records import UserScramCredentialRecord
from seqgate.gateway.peer.one_peer import SESSION_SHARE
from seqgate.gateway.peer.peers import PeerAddress, Peers, PeerUnavailable
from seqgate.gateway.security.sasl.scram_credential import ScramHash
from tests.support.certificates import Authority
from tests.support.scram import credential

OTHER = 2
PASSWORD = "a, pass=word"
PLAIN_LINE = (
    'listener.name.inside.plain.sasl.jaas.config=PlainLoginModule required username="{user}" '
    'password="{password}" user_gateway="' + PASSWORD + '";'
)
SCRAM_LINE = (
    "listener.name.inside.scram-sha-{bits}.sasl.jaas.config=ScramLoginModule required "
    'username="{user}" password="{password}";'
)
HOST = "localhost"
NOTHING = WriteTxnMarkersRequest(markers=())


def on_uvloop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on the loop of real gateways, whose TLS is uvloop's."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        uvloop.run(test(*args, **kwargs))

    return run


@asynccontextmanager
async def listening(path: Path, protocol: str, *settings: str) -> AsyncIterator[Gateway]:
    """Start a gateway with a listener INSIDE of this protocol."""
    gateway = Gateway(
        load_config(
            overrides=[
                f"log.dirs={path}",
                "listeners=INSIDE://127.0.0.1:0",
                f"listener.security.protocol.map=INSIDE:{protocol}",
                *settings,
            ]
        )
    )
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.stop()


@asynccontextmanager
async def asking(gateway: Gateway, protocol: str, *settings: str) -> AsyncIterator[Peers]:
    """Yield what asks the gateway, as another gateway with these settings."""
    config = load_config(
        overrides=[
            "listeners=PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0",
            f"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INSIDE:{protocol}",
            "inter.broker.listener.name=INSIDE",
            *settings,
        ]
    )
    address = PeerAddress(HOST, gateway.services.node.bound["INSIDE"].port)
    peers = Peers(config, 1, {OTHER: address}.get)
    try:
        yield peers
    finally:
        await peers.close()


async def ask(gateway: Gateway, protocol: str, *settings: str) -> None:
    """Ask the gateway once, as another gateway with these settings. Raises PeerUnavailable."""
    async with asking(gateway, protocol, *settings) as peers:
        assert (await peers.ask(OTHER, NOTHING)).markers == ()


def stores(path: Path, authority: Authority, name: str) -> list[str]:
    """Return the settings of a gateway whose certificate and authority is `authority`."""
    own = authority.listener().write_pem(path / f"{name}.pem")
    trusted = authority.write(path / f"{name}-ca.pem")
    return [f"ssl.keystore.location={own}", f"ssl.truststore.location={trusted}", "ssl.client.auth=required"]


class TestTls:
    @on_uvloop
    async def test_both_sides_show_their_certificates(self, tmp_path: Path) -> None:
        settings = stores(tmp_path, Authority(), "a")
        async with listening(tmp_path / "data", "SSL", *settings) as gateway:
            await ask(gateway, "SSL", *settings)

    @on_uvloop
    async def test_a_gateway_with_a_certificate_of_another_authority_is_refused(self, tmp_path: Path) -> None:
        ours, theirs = Authority(), Authority("Others")
        async with listening(tmp_path / "data", "SSL", *stores(tmp_path, ours, "a")) as gateway:
            with pytest.raises(PeerUnavailable, match="its certificate is not accepted"):
                await ask(gateway, "SSL", *stores(tmp_path, theirs, "b"))
            stranger = stores(tmp_path, theirs, "c")
            stranger[1] = stores(tmp_path, ours, "d")[1]
            with pytest.raises(PeerUnavailable):
                await ask(gateway, "SSL", *stranger)

    @on_uvloop
    async def test_names_are_compared_unless_the_setting_is_empty(self, tmp_path: Path) -> None:
        authority = Authority()
        settings = stores(tmp_path, authority, "a")
        elsewhere = authority.listener(names=("elsewhere.example",)).write_pem(tmp_path / "b.pem")
        named = [f"ssl.keystore.location={elsewhere}", *settings[1:]]
        async with listening(tmp_path / "data", "SSL", *named) as gateway:
            with pytest.raises(PeerUnavailable, match="its certificate is not accepted"):
                await ask(gateway, "SSL", *settings)
            await ask(gateway, "SSL", *settings, "ssl.endpoint.identification.algorithm=")

    @on_uvloop
    async def test_a_store_that_is_gone_is_said(self, tmp_path: Path) -> None:
        settings = stores(tmp_path, Authority(), "a")
        async with listening(tmp_path / "data", "SSL", *settings) as gateway:
            with pytest.raises(PeerUnavailable, match=r"can't connect with TLS: .*can't be read"):
                await ask(gateway, "SSL", "ssl.keystore.location=/nowhere", *settings[1:])

    @on_uvloop
    async def test_plaintext_at_a_listener_with_tls_fails(self, tmp_path: Path) -> None:
        settings = stores(tmp_path, Authority(), "a")
        async with listening(tmp_path / "data", "PLAINTEXT") as gateway:
            with pytest.raises(PeerUnavailable, match=r"TLS handshake failed|no connection"):
                await ask(gateway, "SSL", *settings)


def login(mechanism: str, user: str = "gateway", password: str = PASSWORD) -> Sequence[str]:
    line = PLAIN_LINE if mechanism == "PLAIN" else SCRAM_LINE
    return [
        f"sasl.mechanism.inter.broker.protocol={mechanism}",
        f"sasl.enabled.mechanisms={mechanism}",
        line.format(user=user, password=password, bits=mechanism[-3:]),
    ]


async def add_user(gateway: Gateway, mechanism: str) -> None:
    hashing = next(each for each in ScramHash if each.mechanism == mechanism)
    made = credential(hashing, PASSWORD)
    record = UserScramCredentialRecord(
        "gateway", hashing, made.salt, made.stored_key, made.server_key, made.iterations
    )
    await gateway.services.topics.metadata_log.commit(lambda _: Decision((record,), None))


class TestLogins:
    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
    async def test_a_gateway_logs_in(self, tmp_path: Path, mechanism: str) -> None:
        settings = login(mechanism)
        async with listening(tmp_path, "SASL_PLAINTEXT", *settings) as gateway:
            if mechanism != "PLAIN":
                await add_user(gateway, mechanism)
            await ask(gateway, "SASL_PLAINTEXT", *settings)

    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
    async def test_a_gateway_logs_in_again_before_its_session_ends(
        self, tmp_path: Path, mechanism: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings = (*login(mechanism), "connections.max.reauth.ms=3600000")
        async with listening(tmp_path, "SASL_PLAINTEXT", *settings) as gateway:
            if mechanism != "PLAIN":
                await add_user(gateway, mechanism)
            async with asking(gateway, "SASL_PLAINTEXT", *settings) as peers:
                await peers.ask(OTHER, NOTHING)
                first = peers._by_id[OTHER]._line
                assert first is not None
                left_s = first.renew_s - asyncio.get_running_loop().time()
                assert 0 < left_s <= SESSION_SHARE * 3600
                monkeypatch.setattr(peers._by_id[OTHER], "_line", first._replace(renew_s=0.0))
                await peers.ask(OTHER, NOTHING)
                second = peers._by_id[OTHER]._line
                assert second is not None
                assert second.connection is not first.connection
                assert first.connection.closed_because == "the session of its login ends"
                await peers.ask(OTHER, NOTHING)
                assert peers._by_id[OTHER]._line is second

    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
    async def test_a_wrong_password_is_refused(self, tmp_path: Path, mechanism: str) -> None:
        settings = login(mechanism)
        async with listening(tmp_path, "SASL_PLAINTEXT", *settings) as gateway:
            if mechanism != "PLAIN":
                await add_user(gateway, mechanism)
            with pytest.raises(PeerUnavailable, match="refuses the login of gateway") as refused:
                await ask(gateway, "SASL_PLAINTEXT", *login(mechanism, password="wrong"))
            assert "wrong" not in str(refused.value)

    async def test_a_mechanism_that_the_other_lacks_is_said(self, tmp_path: Path) -> None:
        async with listening(tmp_path, "SASL_PLAINTEXT", *login("PLAIN")) as gateway:
            with pytest.raises(PeerUnavailable, match="nobody log in with SCRAM-SHA-256, but with PLAIN"):
                await ask(gateway, "SASL_PLAINTEXT", *login("SCRAM-SHA-256"))

    async def test_without_a_mechanism_the_setting_is_named(self, tmp_path: Path) -> None:
        settings = login("PLAIN")
        async with listening(tmp_path, "SASL_PLAINTEXT", *settings) as gateway:
            with pytest.raises(PeerUnavailable, match=r"set sasl\.mechanism\.inter\.broker\.protocol"):
                await ask(gateway, "SASL_PLAINTEXT", *settings[1:])
