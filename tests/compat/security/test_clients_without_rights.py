"""Unmodified clients without rights get the authorization error without hanging, and continue when they get
the right.

kafka-python and librdkafka wait for a hidden topic that they were assigned, on Apache Kafka as well; so their
consumers may describe the topic here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.errors import TopicAuthorizationFailedError as AioDenied
from confluent_kafka import Consumer, ElectionType, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonTopicPartition
from kafka.errors import TopicAuthorizationFailedError as PythonDenied

from seqgate.gateway.security.acls.access import Operation, ResourceType
from tests.compat.security.guarded import Guarded, User, guarded_gateway

TIMEOUT_S = 60.0
CLUSTER_DENIED, TOPIC_DENIED = (
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_gateway(tmp_path_factory.mktemp("rights")) as running:
        yield running


@pytest.fixture
def user(guarded: Guarded) -> User:
    return guarded.user()


@pytest.mark.parametrize("described", [False, True], ids=["hidden", "described"])
def test_kafka_python_may_not_write(user: User, described: bool) -> None:
    if described:
        user.allow(Operation.DESCRIBE)
    user.allow(Operation.IDEMPOTENT_WRITE, kind=ResourceType.CLUSTER, name="kafka-cluster")
    producer = KafkaProducer(**user.python, max_block_ms=TIMEOUT_S * 1000)
    with pytest.raises(PythonDenied):
        producer.send(user.topic, b"value").get(TIMEOUT_S)
    producer.close(TIMEOUT_S)
    user.allow(Operation.WRITE)
    producer = KafkaProducer(**user.python)
    assert producer.send(user.topic, b"value").get(TIMEOUT_S).offset == 0
    producer.close(TIMEOUT_S)


@pytest.mark.tier("test")
def test_kafka_python_may_not_read(user: User) -> None:
    user.allow(Operation.DESCRIBE)
    consumer = KafkaConsumer(**user.python, auto_offset_reset="earliest", group_id=None)
    consumer.assign([PythonTopicPartition(user.topic, 0)])
    with pytest.raises(PythonDenied):
        consumer.poll(TIMEOUT_S * 1000)
    consumer.close()


@pytest.mark.parametrize("described", [False, True], ids=["hidden", "described"])
def test_aiokafka_may_not_write(user: User, described: bool) -> None:
    if described:
        user.allow(Operation.DESCRIBE)

    async def run() -> None:
        async with AIOKafkaProducer(**user.aio) as producer:
            with pytest.raises(AioDenied):
                await asyncio.wait_for(producer.send_and_wait(user.topic, b"value"), TIMEOUT_S)
            user.allow(Operation.WRITE)
            sent = await asyncio.wait_for(producer.send_and_wait(user.topic, b"value"), TIMEOUT_S)
            assert sent.offset == 0

    asyncio.run(run())


@pytest.mark.parametrize("described", [False, True], ids=["hidden", "described"])
def test_aiokafka_may_not_read(user: User, described: bool) -> None:
    if described:
        user.allow(Operation.DESCRIBE)

    async def run() -> None:
        consumer = AIOKafkaConsumer(**user.aio, auto_offset_reset="earliest", group_id=None)
        consumer.assign([AioTopicPartition(user.topic, 0)])
        with pytest.raises(AioDenied):
            async with consumer:
                await asyncio.wait_for(consumer.getone(), TIMEOUT_S)

    asyncio.run(run())


@pytest.mark.parametrize("described", [False, True], ids=["hidden", "described"])
def test_librdkafka_may_not_write(user: User, described: bool) -> None:
    if described:
        user.allow(Operation.DESCRIBE)
    reports: list[Any] = []

    def produce() -> Any:
        producer = Producer(user.librdkafka)
        producer.produce(user.topic, b"value", on_delivery=lambda *report: reports.append(report))
        assert producer.flush(TIMEOUT_S) == 0
        return reports.pop()

    error, _ = produce()
    assert error.code() == TOPIC_DENIED
    user.allow(Operation.WRITE)
    error, message = produce()
    assert error is None
    assert message.offset() == 0


@pytest.mark.tier("test")
def test_librdkafka_may_not_read(user: User) -> None:
    user.allow(Operation.READ, kind=ResourceType.GROUP, name="readers")
    consumer = Consumer({**user.librdkafka, "group.id": "readers", "auto.offset.reset": "earliest"})
    listed = consumer.list_topics(user.topic, timeout=TIMEOUT_S).topics[user.topic]
    assert listed.error is not None
    assert listed.error.code() == TOPIC_DENIED
    user.allow(Operation.DESCRIBE)
    consumer.assign([TopicPartition(user.topic, 0, 0)])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.error() is not None
    assert message.error().code() == TOPIC_DENIED
    consumer.close()


def test_an_administrator_without_rights_is_refused(user: User) -> None:
    admin = AdminClient(user.librdkafka)
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic("new", 1, 1)])["new"].result(TIMEOUT_S)
    assert refused.value.args[0].code() == TOPIC_DENIED
    with pytest.raises(KafkaException) as refused:
        admin.delete_topics([user.topic])[user.topic].result(TIMEOUT_S)
    assert refused.value.args[0].code() == TOPIC_DENIED
    with pytest.raises(KafkaException) as refused:
        admin.elect_leaders(ElectionType.PREFERRED).result(TIMEOUT_S)
    assert refused.value.args[0].code() == CLUSTER_DENIED
    assert user.topic not in admin.list_topics(timeout=TIMEOUT_S).topics
    user.allow(Operation.DELETE)
    assert user.topic in admin.list_topics(timeout=TIMEOUT_S).topics
    assert admin.delete_topics([user.topic])[user.topic].result(TIMEOUT_S) is None
