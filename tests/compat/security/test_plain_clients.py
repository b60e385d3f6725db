"""Unmodified clients that log in with PLAIN without TLS: they produce and consume, and learn of a wrong
password.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from tests.support.gateway_process import GatewayProcess, free_port
from tests.support.kafka_tools import run_tool

TIMEOUT_S = 60.0
RECORDS = 300
VALUES = [f"value {number}".encode() + b"x" * 1000 for number in range(RECORDS)]
USER, PASSWORD = "writer", 'se"cr et;='
PROTOCOL = "SASL_PLAINTEXT"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
LIFETIME_MS = 1_500


def jaas(**options: str) -> str:
    quoted = [f'{name}="{escaped(value)}"' for name, value in options.items()]
    return f"{MODULE} required {' '.join(quoted)};"


def escaped(value: str) -> str:
    return value.replace('"', '\\"')


@dataclass(frozen=True)
class Endpoint:
    """Listeners on which clients log in, by their names."""

    gateway: GatewayProcess
    bootstraps: dict[str, str]


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    folder = tmp_path_factory.mktemp("plain")
    bootstraps = {protocol: f"127.0.0.1:{free_port()}" for protocol in (PROTOCOL, "AGAIN")}
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,AGAIN:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.again.plain.connections.max.reauth.ms": str(LIFETIME_MS),
    }
    for name in bootstraps:
        settings[f"listener.name.{name.lower()}.plain.sasl.jaas.config"] = jaas(**{f"user_{USER}": PASSWORD})
    with GatewayProcess(
        folder / "data",
        settings=settings,
        also_listen=[f"{name}://{address}" for name, address in bootstraps.items()],
    ) as gateway:
        yield Endpoint(gateway, bootstraps)


def test_kafka_python(endpoint: Endpoint) -> None:
    own = {
        "bootstrap_servers": endpoint.bootstraps[PROTOCOL],
        "security_protocol": PROTOCOL,
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": USER,
    }
    topic = "kafka-python"
    producer = KafkaProducer(**own, sasl_plain_password=PASSWORD)
    for value in VALUES:
        producer.send(topic, value, partition=0)
    producer.flush(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", **own, sasl_plain_password=PASSWORD)
    found: list[bytes] = []
    while len(found) < RECORDS:
        for rows in consumer.poll(1000).values():
            found += [row.value for row in rows]
    consumer.close()
    assert found == VALUES
    with pytest.raises(KafkaError):
        KafkaProducer(**own, sasl_plain_password="wrong", bootstrap_timeout_ms=5000)


def test_aiokafka(endpoint: Endpoint) -> None:
    own = {
        "bootstrap_servers": endpoint.bootstraps[PROTOCOL],
        "security_protocol": PROTOCOL,
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": USER,
    }
    topic = "aiokafka"

    async def run() -> list[bytes]:
        async with AIOKafkaProducer(**own, sasl_plain_password=PASSWORD) as producer:
            for value in VALUES:
                await producer.send(topic, value, partition=0)
        consumer = AIOKafkaConsumer(topic, auto_offset_reset="earliest", **own, sasl_plain_password=PASSWORD)
        async with consumer:
            return [(await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value for _ in VALUES]

    assert asyncio.run(run()) == VALUES

    async def refused() -> None:
        producer = AIOKafkaProducer(**own, sasl_plain_password="wrong")
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(AiokafkaError):
        asyncio.run(refused())


def test_librdkafka(endpoint: Endpoint) -> None:
    own = {
        "bootstrap.servers": endpoint.bootstraps[PROTOCOL],
        "security.protocol": PROTOCOL,
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    topic = "librdkafka"
    producer = Producer({**own, "enable.idempotence": True})
    for value in VALUES:
        producer.produce(topic, value, partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer({**own, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []
    while len(found) < RECORDS:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None, message.error()
        found.append(message.value() or b"")
    consumer.close()
    assert found == VALUES
    errors: list[str] = []
    wrong = {"sasl.password": "wrong", "error_cb": lambda error: errors.append(str(error)), "log_level": 0}
    refused = AdminClient({**own, **wrong})
    while not any("Invalid username or password" in error for error in errors):
        with pytest.raises(KafkaException):
            refused.list_topics(timeout=5)
        refused.poll(1)


def properties(folder: Path, password: str = PASSWORD) -> Path:
    lines = {
        "security.protocol": PROTOCOL,
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas(username=USER, password=password).replace("\\", "\\\\"),
    }
    path = folder / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    return path


def test_jvm_tools(endpoint: Endpoint, tmp_path: Path) -> None:
    config = properties(tmp_path)
    topic = "jvm"
    at = ("--bootstrap-server", endpoint.bootstraps[PROTOCOL], "--command-config", config, "--topic", topic)
    text = "\n".join(value.decode() for value in VALUES)
    run_tool("kafka-console-producer", *at, stdin=text).expect_success()
    read = run_tool(
        *("kafka-console-consumer", *at, "--from-beginning", "--max-messages", str(RECORDS))
    ).expect_success()
    assert read.stdout.splitlines() == text.splitlines()


def test_a_jvm_client_with_a_wrong_password_gets_an_authentication_error(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    config = properties(tmp_path, "wrong")
    done = run_tool(
        *("kafka-topics", "--bootstrap-server", endpoint.bootstraps[PROTOCOL]),
        *("--command-config", config, "--list"),
    )
    assert done.exit_code != 0
    assert "Invalid username or password" in done.stdout + done.stderr


def test_jvm_clients_log_in_again_over_several_lifetimes_and_lose_nothing(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    config = properties(tmp_path)
    at = ("--bootstrap-server", endpoint.bootstraps["AGAIN"], "--command-config", config)
    sent = 600
    run_tool("kafka-topics", *at, "--create", "--topic", "again").expect_success()
    run_tool(
        *("kafka-producer-perf-test", "--topic", "again", "--num-records", str(sent), "--record-size", "100"),
        *("--throughput", "75", "--command-config", config),
        *("--command-property", f"bootstrap.servers={endpoint.bootstraps['AGAIN']}"),
    ).expect_success()
    read = run_tool(
        *("kafka-console-consumer", *at, "--topic", "again", "--from-beginning", "--max-messages", str(sent)),
        *("--timeout-ms", "30000"),
    ).expect_success()
    assert len(read.stdout.splitlines()) == sent
    assert "its session is over" not in endpoint.gateway.stderr_text()
