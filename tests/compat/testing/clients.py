"""The same few things with three client libraries: produce with an idempotent producer, read all of a topic,
read with a group.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import confluent_kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # type: ignore[import-untyped]
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import RebalanceInProgressError

from tests.support.group_members import know_topic

LIMIT_S = 240.0
REQUEST_TIMEOUT_MS = 2_000
Produce = Callable[[str, str, Sequence[bytes]], None]
Read = Callable[[str, str, int], list[bytes]]


def produce_with_kafka_python(bootstrap: str, topic: str, values: Sequence[bytes]) -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        enable_idempotence=True,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        linger_ms=5,
    )
    sent = [producer.send(topic, value) for value in values]
    for each in sent:
        each.get(timeout=LIMIT_S)
    producer.close()


def produce_with_confluent_kafka(bootstrap: str, topic: str, values: Sequence[bytes]) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "socket.timeout.ms": REQUEST_TIMEOUT_MS,
            "request.timeout.ms": REQUEST_TIMEOUT_MS,
        }
    )
    errors: list[object] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error) if error else None)
    assert producer.flush(LIMIT_S) == 0
    assert errors == []


def produce_with_aiokafka(bootstrap: str, topic: str, values: Sequence[bytes]) -> None:
    async def produce() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, request_timeout_ms=REQUEST_TIMEOUT_MS
        ) as producer:
            await asyncio.gather(*[await producer.send(topic, value) for value in values])

    asyncio.run(asyncio.wait_for(produce(), LIMIT_S))


def read_with_kafka_python(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id="kafka-python"
    )
    consumer.subscribe([topic])
    know_topic(consumer, topic)
    found: list[bytes] = []
    deadline = time.monotonic() + LIMIT_S
    while len(found) < count and time.monotonic() < deadline:
        found += [row.value for rows in consumer.poll(timeout_ms=100).values() for row in rows]
    _commit_between_rebalances(consumer, TopicPartition(topic, 0), len(found))
    consumer.close()
    return found


def _commit_between_rebalances(consumer: KafkaConsumer, partition: TopicPartition, end_offset: int) -> None:
    """Commit what was read. A member that lost its coordinator must poll until it has joined again, and may
    get records again.
    """
    offsets = {partition: OffsetAndMetadata(end_offset, "", -1)}
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            return consumer.commit(offsets)
        except RebalanceInProgressError:
            if time.monotonic() > deadline:
                raise
            consumer.poll(timeout_ms=100)


def read_with_confluent_kafka(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "confluent-kafka",
            "auto.offset.reset": "earliest",
            "check.crcs": True,
        }
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    deadline = time.monotonic() + LIMIT_S
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            value = message.value()
            assert isinstance(value, bytes)
            found.append(value)
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def read_with_aiokafka(bootstrap: str, topic: str, count: int) -> list[bytes]:
    async def read() -> list[bytes]:
        async with AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id="aiokafka"
        ) as consumer:
            found = [(await consumer.getone()).value for _ in range(count)]
            await consumer.commit()
            return found

    return asyncio.run(asyncio.wait_for(read(), LIMIT_S))


PRODUCERS: dict[str, Produce] = {
    "kafka-python": produce_with_kafka_python,
    "confluent-kafka": produce_with_confluent_kafka,
    "aiokafka": produce_with_aiokafka,
}
CONSUMERS: dict[str, Read] = {
    "kafka-python": read_with_kafka_python,
    "confluent-kafka": read_with_confluent_kafka,
    "aiokafka": read_with_aiokafka,
}
