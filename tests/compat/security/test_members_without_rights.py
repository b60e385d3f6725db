"""Unmodified clients without rights on a group or a transactional id get their authorization error without
hanging.

The clients continue as soon as they have the right.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import GroupAuthorizationFailedError as AioGroupDenied
from aiokafka.errors import TransactionalIdAuthorizationFailed as AioIdDenied
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from kafka import KafkaConsumer
from kafka.errors import GroupAuthorizationFailedError as PythonGroupDenied

from seqgate.gateway.security.acls.access import Operation, ResourceType
from tests.compat.security.guarded import Guarded, User, guarded_gateway
from tests.support.group_members import know_topic
from tests.support.kafka_tools import run_tool

TIMEOUT_S = 60.0
GROUP_DENIED = KafkaError.GROUP_AUTHORIZATION_FAILED
ID_DENIED = KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_gateway(tmp_path_factory.mktemp("rights")) as running:
        yield running


@pytest.fixture
def user(guarded: Guarded) -> User:
    """A user who may read and write its topic, and nothing else."""
    user = guarded.user()
    user.allow(Operation.READ, Operation.WRITE)
    return user


def write(user: User) -> None:
    """Write one record to the user's topic."""
    producer = Producer(user.librdkafka)
    producer.produce(user.topic, b"value")
    assert producer.flush(TIMEOUT_S) == 0


def group_of(user: User) -> str:
    return f"group-{user.topic}"


def allow_group(user: User) -> None:
    user.allow(Operation.READ, kind=ResourceType.GROUP, name=group_of(user))


def first(poll: Callable[[], Any]) -> Any:
    """Poll until a record arrives, and return it."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s:
        found = poll()
        if found:
            return found
    raise TimeoutError


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_librdkafka_may_not_join(user: User, protocol: str) -> None:
    write(user)
    settings = {
        **user.librdkafka,
        "group.id": group_of(user),
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
    }

    def read() -> Any:
        consumer = Consumer(settings)
        consumer.subscribe([user.topic])
        try:
            return first(lambda: consumer.poll(1.0))
        finally:
            consumer.close()

    assert read().error().code() == GROUP_DENIED
    allow_group(user)
    assert read().value() == b"value"


def test_kafka_python_may_not_join(user: User) -> None:
    write(user)
    settings = {**user.python, "group_id": group_of(user), "auto_offset_reset": "earliest"}
    consumer = KafkaConsumer(user.topic, **settings)
    with pytest.raises(PythonGroupDenied):
        consumer.poll(TIMEOUT_S * 1000)
    consumer.close(autocommit=False)
    allow_group(user)
    consumer = KafkaConsumer(user.topic, **settings)
    know_topic(consumer, user.topic)
    assert first(lambda: consumer.poll(1000))
    consumer.close()


def test_aiokafka_may_not_join(user: User) -> None:
    write(user)

    async def read() -> bytes:
        settings = {**user.aio, "group_id": group_of(user), "auto_offset_reset": "earliest"}
        async with asyncio.timeout(TIMEOUT_S), AIOKafkaConsumer(user.topic, **settings) as consumer:
            return bytes((await consumer.getone()).value)

    with pytest.raises(AioGroupDenied):
        asyncio.run(read())
    allow_group(user)
    assert asyncio.run(read()) == b"value"


def test_librdkafka_may_not_begin_transactions(user: User) -> None:
    settings = {**user.librdkafka, "transactional.id": f"id-{user.topic}"}
    with pytest.raises(KafkaException) as refused:
        Producer(settings).init_transactions(TIMEOUT_S)
    assert refused.value.args[0].code() == ID_DENIED
    user.allow(Operation.WRITE, kind=ResourceType.TRANSACTIONAL_ID, name=f"id-{user.topic}")
    producer = Producer(settings)
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(user.topic, b"value")
    producer.commit_transaction(TIMEOUT_S)


def test_aiokafka_may_not_begin_transactions(user: User) -> None:
    name = f"id-{user.topic}"

    async def run() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            producer = AIOKafkaProducer(**user.aio, transactional_id=name)
            with pytest.raises(AioIdDenied):
                await producer.start()
            await producer.stop()
            user.allow(Operation.WRITE, kind=ResourceType.TRANSACTIONAL_ID, name=name)
            async with AIOKafkaProducer(**user.aio, transactional_id=name) as allowed, allowed.transaction():
                await allowed.send_and_wait(user.topic, b"value")

    asyncio.run(run())


def test_a_share_consumer_may_not_join(user: User, tmp_path: Path) -> None:
    """Apache Kafka's own share consumer."""
    files = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": user.librdkafka["ssl.ca.location"],
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": user.librdkafka["ssl.key.location"],
    }
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in files.items()))
    tool = run_tool(
        "kafka-console-share-consumer", "--bootstrap-server", user.librdkafka["bootstrap.servers"],
        "--topic", user.topic, "--group", group_of(user), "--command-config", str(config),
        "--timeout-ms", "20000",
    )  # fmt: skip
    assert f"Not authorized to access group: {group_of(user)}" in tool.stdout + tool.stderr
