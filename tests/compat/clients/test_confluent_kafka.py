"""confluent-kafka (librdkafka) with the gateway: all kinds of producers, and consumers with manually assigned
partitions."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.compat.topics import expect_unbroken, fresh_topic, stored_batches
from tests.support.batches import DEFAULT_TIMESTAMP
from tests.support.gateway_process import GatewayProcess

COUNT = 200


def _produce(gateway: GatewayProcess, topic: str, **settings: Any) -> list[int]:
    offsets: list[int] = []

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        offsets.append(message.offset())

    producer = Producer({"bootstrap.servers": gateway.bootstrap, **settings})
    for number in range(COUNT):
        moment = DEFAULT_TIMESTAMP + number * 10
        producer.produce(topic, f"value {number}".encode(), b"k", 0, delivered, timestamp=moment)
    assert producer.flush(20) == 0
    return offsets


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_idempotent_producer(shared_gateway: GatewayProcess, codec: str) -> None:
    topic = fresh_topic(shared_gateway.bootstrap, "confluent")
    settings = {"enable.idempotence": True, "compression.type": codec}
    assert _produce(shared_gateway, topic, **settings) == list(range(COUNT))
    batches = stored_batches(shared_gateway.bootstrap, topic)
    assert all(batch.producer_id >= 0 for batch in batches)
    expect_unbroken(batches, COUNT)


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_plain_producer(shared_gateway: GatewayProcess, acks: int) -> None:
    topic = fresh_topic(shared_gateway.bootstrap, "confluent-acks")
    _produce(shared_gateway, topic, acks=acks)
    assert len(_consumed(shared_gateway, topic, OFFSET_BEGINNING, COUNT)) == COUNT


@pytest.mark.parametrize("acks", [1, -1])
def test_what_is_acknowledged_is_below_the_latest_offset(gateway: GatewayProcess, acks: int) -> None:
    """Runs with the default flush policy: an acknowledged record is already below the latest offset."""
    topic = fresh_topic(gateway.bootstrap, "confluent-visible")
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "acks": acks, "linger.ms": 0})
    consumer = _consumer(gateway)
    offsets: list[int] = []

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        offsets.append(message.offset())

    for number in range(COUNT):
        producer.produce(topic, f"value {number}".encode(), b"k", 0, delivered)
        assert producer.flush(20) == 0
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (0, number + 1)
    assert offsets == list(range(COUNT))
    consumer.close()


def _consumer(gateway: GatewayProcess) -> Consumer:
    # librdkafka requires a group id, but does not use it for assigned partitions without commits
    return Consumer(
        {"bootstrap.servers": gateway.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )


def _consumed(
    gateway: GatewayProcess, topic: str, offset: int, count: int
) -> list[tuple[int | None, bytes | None]]:
    consumer = _consumer(gateway)
    consumer.assign([TopicPartition(topic, 0, offset)])
    found: list[tuple[int | None, bytes | None]] = []
    for _ in range(20):
        for message in consumer.consume(count - len(found), 1.0):
            assert message.error() is None, message.error()
            found.append((message.offset(), message.value()))
        if len(found) == count:
            break
    consumer.close()
    return found


def test_assigned_consumer(shared_gateway: GatewayProcess) -> None:
    topic = fresh_topic(shared_gateway.bootstrap, "confluent-assigned")
    _produce(shared_gateway, topic)
    assert _consumed(shared_gateway, topic, 150, 50)[0] == (150, b"value 150")
    consumer = _consumer(shared_gateway)
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (0, COUNT)
    (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, DEFAULT_TIMESTAMP + 1_001)], timeout=10)
    assert found.offset == 101
    consumer.close()


def test_admin(shared_gateway: GatewayProcess) -> None:
    topic = fresh_topic(shared_gateway.bootstrap, "confluent-admin")
    admin = AdminClient({"bootstrap.servers": shared_gateway.bootstrap})
    more = f"{topic}-more"
    admin.create_topics([NewTopic(more, 2, 1)])[more].result(10)
    admin.create_partitions([NewPartitions(more, 4)])[more].result(10)
    assert len(admin.list_topics(more, timeout=10).topics[more].partitions) == 4
    admin.delete_topics([more])[more].result(10)
