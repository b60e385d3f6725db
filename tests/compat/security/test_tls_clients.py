"""Unmodified clients over TLS with certificates of both sides: they produce, consume, and are refused without
a certificate.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from tests.support.certificates import Authority
from tests.support.gateway_process import GatewayProcess, free_port
from tests.support.kafka_tools import run_tool

TIMEOUT_S = 60.0
RECORDS = 500
VALUES = [f"value {number}".encode() + b"x" * 1000 for number in range(RECORDS)]


@dataclass(frozen=True)
class Endpoint:
    """A listener that requires certificates, and the files of one client."""

    gateway: GatewayProcess
    bootstrap: str
    authorities: Path
    shown: Path
    authority: Authority

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.authorities)
        context.load_cert_chain(self.shown)
        return context


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    folder = tmp_path_factory.mktemp("tls")
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
    }
    with GatewayProcess(
        folder / "data", settings=settings, also_listen=[f"SECURED://127.0.0.1:{port}"]
    ) as gateway:
        shown = authority.client("writer").write_pem(folder / "writer.pem")
        yield Endpoint(gateway, f"127.0.0.1:{port}", authorities, shown, authority)


def test_kafka_python(endpoint: Endpoint) -> None:
    files = {"ssl_cafile": str(endpoint.authorities), "security_protocol": "SSL"}
    own = {"ssl_certfile": str(endpoint.shown), "ssl_keyfile": str(endpoint.shown)}
    producer = KafkaProducer(bootstrap_servers=endpoint.bootstrap, **files, **own)
    for value in VALUES:
        producer.send("kafka-python", value, partition=0)
    producer.flush(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer(
        "kafka-python", bootstrap_servers=endpoint.bootstrap, auto_offset_reset="earliest", **files, **own
    )
    found: list[bytes] = []
    while len(found) < RECORDS:
        for rows in consumer.poll(1000).values():
            found += [row.value for row in rows]
    consumer.close()
    assert found == VALUES
    with pytest.raises(KafkaError):
        KafkaProducer(bootstrap_servers=endpoint.bootstrap, bootstrap_timeout_ms=3000, **files)


def test_aiokafka(endpoint: Endpoint) -> None:
    async def run() -> list[bytes]:
        secured = {"security_protocol": "SSL", "ssl_context": endpoint.context()}
        async with AIOKafkaProducer(
            bootstrap_servers=endpoint.bootstrap, enable_idempotence=True, **secured
        ) as producer:
            for value in VALUES:
                await producer.send("aiokafka", value, partition=0)
        consumer = AIOKafkaConsumer(
            "aiokafka", bootstrap_servers=endpoint.bootstrap, auto_offset_reset="earliest", **secured
        )
        async with consumer:
            return [(await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value for _ in VALUES]

    assert asyncio.run(run()) == VALUES

    async def without() -> None:
        context = ssl.create_default_context(cafile=endpoint.authorities)
        await AIOKafkaProducer(
            bootstrap_servers=endpoint.bootstrap, security_protocol="SSL", ssl_context=context
        ).start()

    with pytest.raises(KafkaConnectionError):
        asyncio.run(without())


def test_librdkafka(endpoint: Endpoint) -> None:
    secured = {
        "bootstrap.servers": endpoint.bootstrap,
        "security.protocol": "ssl",
        "ssl.ca.location": str(endpoint.authorities),
    }
    own = {"ssl.certificate.location": str(endpoint.shown), "ssl.key.location": str(endpoint.shown)}
    producer = Producer({**secured, **own, "enable.idempotence": True})
    for value in VALUES:
        producer.produce("librdkafka", value, partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer({**secured, **own, "group.id": "tls", "auto.offset.reset": "earliest"})
    consumer.subscribe(["librdkafka"])
    found: list[bytes] = []
    while len(found) < RECORDS:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None, message.error()
        found.append(message.value() or b"")
    consumer.close()
    assert found == VALUES
    errors: list[str] = []
    refused = AdminClient({**secured, "error_cb": lambda error: errors.append(str(error)), "log_level": 0})
    while not any("certificate required" in error for error in errors):
        with pytest.raises(KafkaException):
            refused.list_topics(timeout=5)
        refused.poll(1)


def properties(folder: Path, endpoint: Endpoint, **more: str) -> Path:
    store = endpoint.authority.client("jvm").write_pkcs12(folder / "jvm.p12", "secret")
    lines = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(endpoint.authorities),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": "secret",
        "ssl.key.password": "secret",
    }
    path = folder / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in {**lines, **more}.items()))
    return path


def test_jvm_tools(endpoint: Endpoint, tmp_path: Path) -> None:
    config = properties(tmp_path, endpoint)
    at = ("--bootstrap-server", endpoint.bootstrap)
    run_tool("kafka-topics", *at, "--command-config", config, "--create", "--topic", "jvm").expect_success()
    assert "created topic jvm (1 partition), by User:CN=jvm,O=Example at" in endpoint.gateway.stderr_text()
    text = "\n".join(value.decode() for value in VALUES)
    run_tool(
        "kafka-console-producer", *at, "--topic", "jvm", "--command-config", config, stdin=text
    ).expect_success()
    read = run_tool(
        *("kafka-console-consumer", *at, "--topic", "jvm", "--from-beginning", "--command-config", config),
        *("--max-messages", str(RECORDS)),
    ).expect_success()
    assert read.stdout.splitlines() == text.splitlines()


def test_a_jvm_client_without_a_certificate_gets_an_authentication_error(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    config = tmp_path / "bare.properties"
    config.write_text(
        f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={endpoint.authorities}\n"
    )
    done = run_tool(
        "kafka-topics", "--bootstrap-server", endpoint.bootstrap, "--command-config", config, "--list"
    )
    assert done.exit_code != 0
    assert "SSL handshake failed" in done.stdout + done.stderr or "SslAuthenticationException" in done.stderr
