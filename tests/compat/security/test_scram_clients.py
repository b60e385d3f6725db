"""Unmodified clients log in with SCRAM: they produce and consume, with passwords and with a delegation token."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from tests.compat.security.test_delegation_token_tools import CREATED
from tests.support.gateway_process import GatewayProcess, free_port
from tests.support.kafka_tools import ToolRun, run_tool
from tests.system.commands.conftest import seqgate

PASSWORD = "pencil, with a comma = päss"
USER = "ann"
TIMEOUT_S = 60.0
VALUES = [b"one", b"two", b"three"]
MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


@dataclass(frozen=True)
class Endpoint:
    """A listener with SCRAM whose user was added before the first start."""

    bootstrap: str
    folder: Path

    def tool(
        self,
        name: str,
        mechanism: str,
        *arguments: str,
        user: str = USER,
        password: str = PASSWORD,
        more: str = "",
        stdin: str | None = None,
    ) -> ToolRun:
        properties = self.folder / f"{mechanism}-{user}.properties"
        shown = password.replace("ä", r"\u00e4")  # Java reads properties as Latin-1
        properties.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{user}" password="{shown}"{more};\n',
            encoding="utf-8",
        )
        where = ("--bootstrap-server", self.bootstrap, "--command-config", str(properties))
        return run_tool(name, *where, *arguments, stdin=stdin)


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    folder = tmp_path_factory.mktemp("scram")
    port = free_port()
    seqgate(
        *("users", "add", USER, "--data-dir", folder / "data", "--password-file", "-"),
        stdin=f"{PASSWORD}\n".encode(),
    )
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "delegation.token.secret.key": "a secret of the gateway",
    }
    with GatewayProcess(folder / "data", settings=settings, also_listen=[f"USERS://127.0.0.1:{port}"]):
        yield Endpoint(f"127.0.0.1:{port}", folder)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(endpoint: Endpoint, mechanism: str) -> None:
    topic = f"kafka-python-{mechanism}"
    login: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
        "bootstrap_servers": endpoint.bootstrap,
    }
    producer = KafkaProducer(**login)
    for value in VALUES:
        producer.send(topic, value, partition=0)
    producer.flush(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", **login)
    found: list[bytes] = []
    while len(found) < len(VALUES):
        for rows in consumer.poll(1000).values():
            found += [row.value for row in rows]
    consumer.close()
    assert found == VALUES
    with pytest.raises(KafkaError):
        KafkaProducer(**{**login, "sasl_plain_password": "wrong", "bootstrap_timeout_ms": 3000})


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(endpoint: Endpoint, mechanism: str) -> None:
    login: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
        "bootstrap_servers": endpoint.bootstrap,
    }
    topic = f"aiokafka-{mechanism}"

    async def run() -> list[bytes]:
        async with AIOKafkaProducer(enable_idempotence=True, **login) as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value, partition=0)
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **login) as consumer:
            return [(await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value for _ in VALUES]

    assert asyncio.run(run()) == VALUES


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka(endpoint: Endpoint, mechanism: str) -> None:
    login = {
        "bootstrap.servers": endpoint.bootstrap,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    topic = f"confluent-{mechanism}"
    producer = Producer({**login, "enable.idempotence": True})
    for value in VALUES:
        producer.produce(topic, value, partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer({**login, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []
    while len(found) < len(VALUES):
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        if message.error() is None:
            found.append(message.value())
    consumer.close()
    assert found == VALUES


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_jvm_tools(endpoint: Endpoint, mechanism: str) -> None:
    topic = f"jvm-{mechanism}"
    endpoint.tool("kafka-topics", mechanism, "--create", "--topic", topic).expect_success()
    refused = endpoint.tool("kafka-topics", mechanism, "--list", password="wrong")
    assert refused.exit_code != 0
    assert "Authentication failed" in refused.stdout + refused.stderr


@pytest.mark.tier("test")
def test_a_delegation_token_logs_in(endpoint: Endpoint) -> None:
    mechanism = MECHANISMS[1]
    create = ("--create", "--max-life-time-period", "-1")
    shown = endpoint.tool("kafka-delegation-tokens", mechanism, *create).expect_success().stdout
    token = CREATED.search(shown)
    assert token is not None, shown
    assert token["owner"] == "User:ann"
    login: dict[str, Any] = {"user": token["id"], "password": token["hmac"], "more": ' tokenauth="true"'}
    endpoint.tool("kafka-topics", mechanism, "--create", "--topic", "of-the-token", **login).expect_success()
    again = endpoint.tool("kafka-delegation-tokens", mechanism, *create, **login)
    assert again.exit_code != 0
    without = endpoint.tool("kafka-topics", mechanism, "--list", **{**login, "more": ""})
    assert without.exit_code != 0
