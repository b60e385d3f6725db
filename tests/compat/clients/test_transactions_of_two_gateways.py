"""Transactions of clients over the partitions of two gateways, with the coordinator on either, and the group
on either.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as Place
from kafka.structs import OffsetAndMetadata

from seqgate.gateway.runtime.topics.topic_lifecycle import java_hash
from tests.compat.clients.test_two_gateways import DEADLINE_S, NODES, PARTITIONS, TwoGateways, started
from tests.compat.transactions.clients import Jvm

ROUNDS = 6
"""Transactions of one producer: every third is aborted."""
GROUP = "committing"
Run = Callable[[str, str], None]


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[TwoGateways]:
    async with AsyncExitStack() as running:
        gateways = [
            await running.enter_async_context(started(tmp_path / str(node_id), node_id)) for node_id in NODES
        ]
        both = TwoGateways(gateways)
        await both.begin()
        yield both


def coordinated_by(node_id: int) -> str:
    """Return a transactional id whose state a gateway stores."""
    names = (f"payments-{number}" for number in range(100))
    return next(name for name in names if NODES[java_hash(name) % PARTITIONS % 2] == node_id)


def values(number: int) -> list[tuple[int, bytes]]:
    return [(partition, b"%d-%d" % (number, partition)) for partition in range(PARTITIONS)]


def is_aborted(number: int) -> bool:
    return number % 3 == 2


def expected() -> list[tuple[int, bytes]]:
    return sorted(row for number in range(ROUNDS) if not is_aborted(number) for row in values(number))


def with_librdkafka(bootstrap: str, transactional_id: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    producer.init_transactions(DEADLINE_S)
    for number in range(ROUNDS):
        producer.begin_transaction()
        for partition, value in values(number):
            producer.produce("lines", value, partition=partition)
        offsets = [TopicPartition("lines", 0, number + 1)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), DEADLINE_S)
        if is_aborted(number):
            producer.abort_transaction(DEADLINE_S)
        else:
            producer.commit_transaction(DEADLINE_S)
    consumer.close()


def with_kafka_python(bootstrap: str, transactional_id: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
    producer.init_transactions()
    for number in range(ROUNDS):
        producer.begin_transaction()
        sent = [producer.send("lines", value, partition=partition) for partition, value in values(number)]
        producer.send_offsets_to_transaction(
            {Place("lines", 0): OffsetAndMetadata(number + 1, "", -1)}, GROUP
        )
        if is_aborted(number):
            producer.abort_transaction()
        else:
            producer.commit_transaction()
            for future in sent:
                future.get(DEADLINE_S)
    producer.close()


def with_jvm(bootstrap: str, transactional_id: str) -> None:
    producer = Jvm(bootstrap, transactional_id, 60_000)
    producer.init()
    for number in range(ROUNDS):
        producer.begin()
        for partition, value in values(number):
            producer.send("lines", partition, value.decode())
        producer.hold_offset(GROUP, "lines", number + 1)
        if is_aborted(number):
            producer.abort()
        else:
            producer.commit()
    producer.close()


def committed(bootstrap: str) -> list[tuple[int, bytes]]:
    """Return the committed records, read until the end of each partition."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    places = [Place("lines", partition) for partition in range(PARTITIONS)]
    consumer.assign(places)
    ends = consumer.end_offsets(places)
    found = []
    while any(consumer.position(place) < ends[place] for place in places):
        for rows in consumer.poll(500).values():
            found += [(row.partition, row.value) for row in rows]
    consumer.close()
    return sorted(found)


def committed_offset(bootstrap: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    (place,) = consumer.committed([TopicPartition("lines", 0)], DEADLINE_S)
    consumer.close()
    return int(place.offset)


@pytest.mark.parametrize("run", [with_librdkafka, with_kafka_python, with_jvm])
@pytest.mark.parametrize("node_id", NODES)
async def test_a_transaction_is_whole_on_both_gateways(two: TwoGateways, run: Run, node_id: int) -> None:
    async with asyncio.timeout(2 * DEADLINE_S):
        await asyncio.to_thread(run, two.bootstraps[0], coordinated_by(node_id))
        assert await asyncio.to_thread(committed, two.bootstraps[1]) == expected()
        assert await asyncio.to_thread(committed_offset, two.bootstraps[1]) == ROUNDS - 1


async def test_a_fenced_producer_commits_nothing_on_either_gateway(two: TwoGateways) -> None:
    def fence(bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "transactional.id": coordinated_by(NODES[0])}
        old, new = Producer(settings), Producer(settings)
        old.init_transactions(DEADLINE_S)
        old.begin_transaction()
        for partition, value in values(0):
            old.produce("lines", value, partition=partition)
        assert old.flush(DEADLINE_S) == 0
        new.init_transactions(DEADLINE_S)
        new.begin_transaction()
        for partition, value in values(1):
            new.produce("lines", value, partition=partition)
        new.commit_transaction(DEADLINE_S)
        with pytest.raises(KafkaException):
            old.commit_transaction(DEADLINE_S)

    async with asyncio.timeout(2 * DEADLINE_S):
        await asyncio.to_thread(fence, two.bootstraps[0])
        assert await asyncio.to_thread(committed, two.bootstraps[1]) == values(1)
