"""kafka-python with the gateway: all kinds of producers, and consumers with manually assigned partitions."""

from __future__ import annotations

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition  # type: ignore[import-untyped]
from kafka.admin import KafkaAdminClient, NewTopic  # type: ignore[import-untyped]

from tests.compat.topics import expect_unbroken, fresh_topic, stored_batches
from tests.support.batches import DEFAULT_TIMESTAMP
from tests.support.gateway_process import GatewayProcess

COUNT = 200


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_idempotent_producer(shared_gateway: GatewayProcess, codec: str | None) -> None:
    topic = fresh_topic(shared_gateway.bootstrap, "kafka-python")
    producer = KafkaProducer(
        bootstrap_servers=shared_gateway.bootstrap,
        enable_idempotence=True,
        acks="all",
        compression_type=codec,
    )
    sent = [producer.send(topic, f"value {number}".encode(), key=b"k") for number in range(COUNT)]
    producer.flush()
    producer.close()
    assert [future.get(10).offset for future in sent] == list(range(COUNT))
    batches = stored_batches(shared_gateway.bootstrap, topic)
    assert all(batch.producer_id >= 0 for batch in batches)
    expect_unbroken(batches, COUNT)


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_plain_producer(shared_gateway: GatewayProcess, acks: int | str) -> None:
    topic = fresh_topic(shared_gateway.bootstrap, "kafka-python-acks")
    producer = KafkaProducer(bootstrap_servers=shared_gateway.bootstrap, enable_idempotence=False, acks=acks)
    for number in range(COUNT):
        producer.send(topic, f"value {number}".encode())
    producer.flush()
    producer.close()
    assert len(_consumed(shared_gateway, topic, 0, COUNT)) == COUNT


@pytest.mark.parametrize("acks", [1, "all"])
def test_what_is_acknowledged_is_below_the_latest_offset(gateway: GatewayProcess, acks: int | str) -> None:
    """Runs with the default flush policy: an acknowledged record is already below the latest offset."""
    topic = fresh_topic(gateway.bootstrap, "kafka-python-visible")
    producer = KafkaProducer(bootstrap_servers=gateway.bootstrap, enable_idempotence=False, acks=acks)
    consumer = KafkaConsumer(bootstrap_servers=gateway.bootstrap, group_id=None)
    partition = TopicPartition(topic, 0)
    for number in range(COUNT):
        assert producer.send(topic, f"value {number}".encode()).get(10).offset == number
        assert consumer.end_offsets([partition]) == {partition: number + 1}
    producer.close()
    consumer.close()


def _consumed(gateway: GatewayProcess, topic: str, offset: int, count: int) -> list[tuple[int, bytes]]:
    consumer = KafkaConsumer(bootstrap_servers=gateway.bootstrap, group_id=None)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, offset)
    found: list[tuple[int, bytes]] = []
    for _ in range(100):
        for rows in consumer.poll(timeout_ms=200).values():
            found += [(row.offset, row.value) for row in rows]
        if len(found) >= count:
            break
    consumer.close()
    return found


def test_assigned_consumer(shared_gateway: GatewayProcess) -> None:
    topic = fresh_topic(shared_gateway.bootstrap, "kafka-python-assigned")
    producer = KafkaProducer(bootstrap_servers=shared_gateway.bootstrap)
    for number in range(COUNT):
        producer.send(topic, f"value {number}".encode(), timestamp_ms=DEFAULT_TIMESTAMP + number * 10)
    producer.flush()
    producer.close()
    assert _consumed(shared_gateway, topic, 150, 50)[0] == (150, b"value 150")
    consumer = KafkaConsumer(bootstrap_servers=shared_gateway.bootstrap, group_id=None)
    partition = TopicPartition(topic, 0)
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: COUNT}
    found = consumer.offsets_for_times({partition: DEFAULT_TIMESTAMP + 1_001})[partition]
    assert (found.offset, found.timestamp) == (101, DEFAULT_TIMESTAMP + 1_010)
    assert consumer.offsets_for_times({partition: DEFAULT_TIMESTAMP + 10**8})[partition] is None
    consumer.close()


def test_admin(shared_gateway: GatewayProcess) -> None:
    topic = fresh_topic(shared_gateway.bootstrap, "kafka-python-admin")
    admin = KafkaAdminClient(bootstrap_servers=shared_gateway.bootstrap)
    admin.create_topics([NewTopic(f"{topic}-more", 4, 1)])
    described = {
        row["name"]: len(row["partitions"]) for row in admin.describe_topics([topic, f"{topic}-more"])
    }
    assert described == {topic: 1, f"{topic}-more": 4}
    admin.delete_topics([f"{topic}-more"])
    admin.close()
