"""Tokens that get nobody in (OAUTHBEARER), keys that change, and Kafka's tools with a token."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.support.certificates import Authority
from tests.support.gateway_process import GatewayProcess, free_port
from tests.support.kafka_tools import run_tool
from tests.support.tokens import Issuer, key_set, unsecured_token

TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Endpoint:
    """A listener with TLS and OAUTHBEARER, and the issuer that signs its tokens."""

    gateway: GatewayProcess
    bootstrap: str
    authorities: Path
    issuer: Issuer
    keys: Path

    def token(self, subject: str = "alice", *, lifetime_s: float = 600, **claims: Any) -> str:
        now_s = int(time.time())
        usual = {"iss": "idp", "aud": ["seqgate"], "sub": subject, "iat": now_s, "exp": now_s + lifetime_s}
        return self.issuer.token(**usual | claims)

    def settings(self, token: str | None = None) -> dict[str, Any]:
        """Return the settings of a client of librdkafka."""

        def refresh(_: str) -> tuple[str, float]:
            return token or self.token(), time.time() + 600

        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(self.authorities),
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": refresh,
            "log_level": 0,
        }


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    folder = tmp_path_factory.mktemp("oauthbearer")
    authority = Authority()
    authorities = authority.write(folder / "ca.pem")
    issuer = Issuer("first", "RS256")
    keys = folder / "keys.json"
    keys.write_bytes(key_set(issuer.jwk(alg="RS256", use="sig")))
    port = free_port()
    settings = {
        "ssl.keystore.location": str(authority.listener().write_pem(folder / "own.pem")),
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": "seqgate",
        "listener.name.sasl_ssl.sasl.oauthbearer.expected.issuer": "idp",
    }
    with GatewayProcess(
        folder / "data", settings=settings, also_listen=[f"SASL_SSL://127.0.0.1:{port}"]
    ) as gateway:
        yield Endpoint(gateway, f"127.0.0.1:{port}", authorities, issuer, keys)


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (lambda endpoint: endpoint.token(lifetime_s=-120), "the token has expired"),
        (lambda endpoint: endpoint.token(aud="others"), "the token's audience"),
        (lambda endpoint: endpoint.token(iss="others"), "the token's issuer"),
        (
            lambda endpoint: Issuer("first", "RS256").token(sub="mallory", exp=2**40, iat=1),
            "the token's signature is wrong",
        ),
        (
            lambda endpoint: Issuer("other", "RS256").token(sub="mallory", exp=2**40, iat=1),
            "its key (kid) is unknown",
        ),
        (
            lambda endpoint: unsecured_token(sub="mallory", exp=2**40, iat=1) + "AA",
            "the token has no signature",
        ),
    ],
    ids=["expired", "audience", "issuer", "signature", "kid", "none"],
)
def test_a_bad_token_gets_nobody_in(endpoint: Endpoint, token: Any, reason: str) -> None:
    bad = token(endpoint)
    errors: list[str] = []
    client = AdminClient({**endpoint.settings(bad), "error_cb": lambda error: errors.append(str(error))})
    while not any(f"the token is refused: {reason}" in error for error in errors):
        with pytest.raises(KafkaException):
            client.list_topics(timeout=5)
        client.poll(1)
    lines = endpoint.gateway.stderr_text()
    assert "the token is refused" in lines
    assert bad not in lines
    assert bad.split(".")[1] not in lines


def test_a_key_that_is_added_counts_at_once(endpoint: Endpoint) -> None:
    added = Issuer("added", "ES256")
    rows = [endpoint.issuer.jwk(alg="RS256", use="sig"), added.jwk()]
    endpoint.keys.with_suffix(".new").write_bytes(key_set(*rows))
    endpoint.keys.with_suffix(".new").replace(endpoint.keys)
    now_s = int(time.time())
    token = added.token(iss="idp", aud="seqgate", sub="bob", iat=now_s, exp=now_s + 600)
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        client = AdminClient(endpoint.settings(token))
        try:
            assert client.list_topics(timeout=5).brokers
            break
        except KafkaException:
            # An earlier test may have made the gateway read the keys less than 10 s ago, and then it does not
            # read them again yet.
            assert time.monotonic() < deadline_s


def test_the_jvm_tools(endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "token.jwt"
    token.write_text(endpoint.token("jvm"))
    file = tmp_path / "client.properties"
    file.write_text(
        "\n".join(
            [
                "security.protocol=SASL_SSL",
                "ssl.truststore.type=PEM",
                f"ssl.truststore.location={endpoint.authorities}",
                "sasl.mechanism=OAUTHBEARER",
                f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}",
                "sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
                (
                    "sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule "
                    "required;"
                ),
            ]
        )
    )
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={token.as_uri()}"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", allowed)
    at = ("--bootstrap-server", endpoint.bootstrap, "--command-config", file)
    run_tool("kafka-topics", *at, "--create", "--topic", "by-jvm").expect_success()
    assert "created topic by-jvm (1 partition), by User:jvm at" in endpoint.gateway.stderr_text()
