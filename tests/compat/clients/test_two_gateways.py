"""Clients of two gateways whose metadata names both: each goes to the leaders, and to the coordinator of its
group.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # type: ignore[import-untyped]
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

from seqgate.gateway.config import load_config
from seqgate.gateway.gateway import Gateway
from seqgate.gateway.metadata.decision import Decision
from seqgate.gateway.metadata.records import (
    BrokerEndpoint,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from seqgate.log import LocalDurability, Storage
from seqgate.log.directory.identity import DirectoryIdentity, write_identity
from tests.support.group_members import know_topic

NODES = (1, 2)
PARTITIONS = 4
COUNT = 40
DEADLINE_S = 120.0
SETTINGS = ("group.initial.rebalance.delay.ms=0", "group.min.session.timeout.ms=500")
Sent = list[tuple[int, bytes]]
"""The partition and the value of each record."""


class TwoGateways:
    """Two gateways, each with a log of its own; the same records tell both who leads what."""

    def __init__(self, gateways: list[Gateway]) -> None:
        self._gateways = gateways
        places = [gateway.services.node.brokers.advertised["PLAINTEXT"] for gateway in gateways]
        self.bootstraps = [place.shown for place in places]
        self._brokers = [
            RegisterBrokerRecord(
                node_id, uuid.UUID(int=node_id), 1, (BrokerEndpoint("PLAINTEXT", place.host, place.port),)
            )
            for node_id, place in zip(NODES, places, strict=True)
        ]

    async def begin(self) -> None:
        """Register both brokers, and give every second partition of `lines` and of the coordinators' state to
        each.
        """
        records: list[Any] = [*self._brokers]
        for name in ("lines", "__consumer_offsets", "__transaction_state"):
            topic_id = uuid.uuid5(uuid.NAMESPACE_OID, name)
            records.append(TopicRecord(name, topic_id))
            for index in range(PARTITIONS):
                leader = NODES[index % 2]
                records.append(PartitionRecord(index, topic_id, (leader,), (leader,), leader, 0))
        for gateway in self._gateways:
            await gateway.services.topics.metadata_log.commit(lambda _: Decision(records, None))

    def led(self) -> list[set[int]]:
        """Return the partitions of `lines` that have records, for each gateway."""
        return [
            {
                partition.index
                for partition in gateway.services.partitions.registry.by_name["lines"].with_records()
                if partition.log.log_end_offset
            }
            for gateway in self._gateways
        ]

    def committing(self, group: str) -> list[int]:
        """Return the node ids of the gateways that have offsets of the group."""
        return [
            node_id
            for node_id, gateway in zip(NODES, self._gateways, strict=True)
            if any(shard.offsets.of(group) for shard in gateway.services.coordinators.groups.loaded_shards())
        ]


@asynccontextmanager
async def started(path: Path, node_id: int) -> AsyncIterator[Gateway]:
    listeners = "listeners=PLAINTEXT://127.0.0.1:0"
    path.mkdir(exist_ok=True)
    identity = DirectoryIdentity("one-cluster-of-both-gw", f"directory-of-gateway-{node_id}")
    write_identity(LocalDurability(Storage()), str(path), node_id, identity)
    gateway = Gateway(load_config(overrides=[f"log.dirs={path}", listeners, f"node.id={node_id}", *SETTINGS]))
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.stop()


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[TwoGateways]:
    async with AsyncExitStack() as running:
        gateways = [
            await running.enter_async_context(started(tmp_path / str(node_id), node_id)) for node_id in NODES
        ]
        both = TwoGateways(gateways)
        await both.begin()
        yield both


def lines() -> Sent:
    return [(number % PARTITIONS, b"line %d" % number) for number in range(COUNT)]


def with_kafka_python(bootstrap: str, group: str) -> Sent:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for partition, value in lines():
        producer.send("lines", value, partition=partition)
    producer.flush(DEADLINE_S)
    producer.close()
    consumer = KafkaConsumer(
        "lines", bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
    )
    know_topic(consumer, "lines")
    found: Sent = []
    while len(found) < COUNT:
        for rows in consumer.poll(1000).values():
            found += [(row.partition, row.value) for row in rows]
    consumer.commit()
    consumer.close()
    return found


def with_librdkafka(bootstrap: str, group: str) -> Sent:
    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for partition, value in lines():
        producer.produce(
            "lines",
            value,
            partition=partition,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(DEADLINE_S) == 0
    assert failed == []
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe(["lines"])
    found: Sent = []
    while len(found) < COUNT:
        for row in consumer.consume(COUNT, 1.0):
            assert row.error() is None
            found.append((row.partition(), row.value()))
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


async def with_aiokafka(bootstrap: str, group: str) -> Sent:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
        for partition, value in lines():
            await producer.send_and_wait("lines", value, partition=partition)
    found: Sent = []
    async with AIOKafkaConsumer(
        "lines", bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
    ) as consumer:
        while len(found) < COUNT:
            row = await consumer.getone()
            found.append((row.partition, row.value))
        await consumer.commit()
    return found


async def expect_all_lines(two: TwoGateways, found: Sent) -> None:
    for partition in range(PARTITIONS):
        expected = [value for place, value in lines() if place == partition]
        assert [value for place, value in found if place == partition] == expected
    assert two.led() == [{0, 2}, {1, 3}]


@pytest.mark.parametrize("client", [with_kafka_python, with_librdkafka])
@pytest.mark.parametrize("first", [0, 1], ids=["bootstrap 1", "bootstrap 2"])
async def test_clients_find_leaders_and_coordinator(
    two: TwoGateways, client: Callable[[str, str], Sent], first: int
) -> None:
    async with asyncio.timeout(DEADLINE_S):
        found = await asyncio.to_thread(client, two.bootstraps[first], "readers")
    await expect_all_lines(two, found)
    assert len(two.committing("readers")) == 1


async def test_groups_are_spread_over_both_gateways(two: TwoGateways) -> None:
    committing = []
    async with asyncio.timeout(DEADLINE_S):
        for number in range(6):
            await with_aiokafka_group(two, f"readers-{number}")
            committing += two.committing(f"readers-{number}")
    assert len(committing) == 6
    assert set(committing) == set(NODES)


async def with_aiokafka_group(two: TwoGateways, group: str) -> None:
    if group == "readers-0":
        await expect_all_lines(two, await with_aiokafka(two.bootstraps[0], group))
        return
    async with AIOKafkaConsumer(
        "lines", bootstrap_servers=two.bootstraps[1], group_id=group, auto_offset_reset="earliest"
    ) as consumer:
        await consumer.getone()
        await consumer.commit()
