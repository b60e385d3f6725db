"""Apache Kafka's kafka-delegation-tokens on a gateway whose clients show certificates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.gateway_process import GatewayProcess, free_port
from tests.support.kafka_tools import run_tool

CREATED = re.compile(
    r"^(?P<id>[0-9A-Za-z_-]{22})\s+(?P<hmac>[0-9A-Za-z+/=]{88})\s+(?P<owner>\S+)", re.MULTILINE
)


@dataclass(frozen=True)
class Client:
    bootstrap: str
    properties: Path

    def tokens(self, *arguments: str) -> str:
        options = ("--bootstrap-server", self.bootstrap, "--command-config", str(self.properties))
        return run_tool("kafka-delegation-tokens", *options, *arguments).expect_success().stdout


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("tokens")
    authority = Authority()
    authorities = authority.write(folder / "ca.pem")
    port = free_port()
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURED:SSL",
        "listener.name.secured.ssl.keystore.location": str(
            authority.listener().write_pem(folder / "own.pem")
        ),
        "listener.name.secured.ssl.truststore.location": str(authorities),
        "listener.name.secured.ssl.client.auth": "required",
        "delegation.token.secret.key": "a secret of the gateway",
    }
    shown = authority.client("ann").write_pem(folder / "ann.pem")
    properties = folder / "client.properties"
    properties.write_text(
        "security.protocol=SSL\nssl.truststore.type=PEM\nssl.keystore.type=PEM\n"
        f"ssl.truststore.location={authorities}\nssl.keystore.location={shown}\n"
    )
    with GatewayProcess(folder / "data", settings=settings, also_listen=[f"SECURED://127.0.0.1:{port}"]):
        yield Client(f"127.0.0.1:{port}", properties)


def test_kafka_delegation_tokens_creates_renews_describes_and_expires(client: Client) -> None:
    shown = client.tokens("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:carl")
    created = CREATED.search(shown)
    assert created is not None, shown
    assert created["owner"] == "User:CN=ann,O=Example"
    owner = ("--owner-principal", created["owner"])
    described = client.tokens("--describe", *owner)
    assert created["id"] in described
    assert "User:carl" in described
    password = ("--hmac", created["hmac"])
    assert "Completed renew" in client.tokens("--renew", "--renew-time-period", "-1", *password)
    client.tokens("--expire", "--expiry-time-period", "-1", *password)
    assert created["id"] not in client.tokens("--describe", *owner)


def test_a_client_that_showed_nothing_gets_no_token(client: Client, shared_gateway: GatewayProcess) -> None:
    assert client.bootstrap != shared_gateway.bootstrap
    run = run_tool(
        "kafka-delegation-tokens",
        *("--bootstrap-server", shared_gateway.bootstrap, "--command-config", "/dev/null"),
        *("--create", "--max-life-time-period", "-1"),
    )
    assert run.exit_code != 0
    assert (
        "DelegationTokenRequestNotAllowed" in run.stdout + run.stderr
        or "not allowed" in run.stdout + run.stderr
    )
