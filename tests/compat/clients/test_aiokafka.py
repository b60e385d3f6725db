"""aiokafka with the gateway: all kinds of producers, and consumers with manually assigned partitions."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition  # type: ignore[import-untyped]

from tests.compat.topics import expect_unbroken, fresh_topic, stored_batches
from tests.support.batches import DEFAULT_TIMESTAMP
from tests.support.gateway_process import GatewayProcess

COUNT = 200


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_idempotent_producer(shared_gateway: GatewayProcess, codec: str | None) -> None:
    topic = fresh_topic(shared_gateway.bootstrap, "aiokafka")
    async with AIOKafkaProducer(
        bootstrap_servers=shared_gateway.bootstrap, enable_idempotence=True, compression_type=codec
    ) as producer:
        sent = [await producer.send(topic, f"value {number}".encode(), key=b"k") for number in range(COUNT)]
        assert [row.offset for row in await asyncio.gather(*sent)] == list(range(COUNT))
    batches = stored_batches(shared_gateway.bootstrap, topic)
    assert all(batch.producer_id >= 0 for batch in batches)
    expect_unbroken(batches, COUNT)


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_plain_producer(shared_gateway: GatewayProcess, acks: int | str) -> None:
    topic = fresh_topic(shared_gateway.bootstrap, "aiokafka-acks")
    async with AIOKafkaProducer(bootstrap_servers=shared_gateway.bootstrap, acks=acks) as producer:
        for number in range(COUNT):
            await producer.send(topic, f"value {number}".encode())
    assert len(await _consumed(shared_gateway, topic, 0, COUNT)) == COUNT


async def _consumed(gateway: GatewayProcess, topic: str, offset: int, count: int) -> list[tuple[int, bytes]]:
    partition = TopicPartition(topic, 0)
    found: list[tuple[int, bytes]] = []
    async with AIOKafkaConsumer(bootstrap_servers=gateway.bootstrap, group_id=None) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, offset)
        while len(found) < count:
            row = await asyncio.wait_for(consumer.getone(), 60)
            found.append((row.offset, row.value))
    return found


async def test_assigned_consumer(shared_gateway: GatewayProcess) -> None:
    topic = fresh_topic(shared_gateway.bootstrap, "aiokafka-assigned")
    async with AIOKafkaProducer(bootstrap_servers=shared_gateway.bootstrap) as producer:
        for number in range(COUNT):
            await producer.send(
                topic, f"value {number}".encode(), timestamp_ms=DEFAULT_TIMESTAMP + number * 10
            )
    assert (await _consumed(shared_gateway, topic, 150, 50))[0] == (150, b"value 150")
    partition = TopicPartition(topic, 0)
    async with AIOKafkaConsumer(bootstrap_servers=shared_gateway.bootstrap, group_id=None) as consumer:
        consumer.assign([partition])
        assert await consumer.beginning_offsets([partition]) == {partition: 0}
        assert await consumer.end_offsets([partition]) == {partition: COUNT}
        found = (await consumer.offsets_for_times({partition: DEFAULT_TIMESTAMP + 1_001}))[partition]
        assert (found.offset, found.timestamp) == (101, DEFAULT_TIMESTAMP + 1_010)
