"""Batches of hundreds of kilobytes, which a gateway keeps in memory until the bucket has them, amid small
batches.

The disk is lost afterwards, so what consumers read is what the objects of the write-ahead log hold.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from seqgate.gateway.cluster.wal.wal_object import WalObject, decode
from seqgate.gateway.server.server import RECEIVE_BUFFER_BYTES
from tests.support.gateway_process import GatewayProcess

TOPIC = "large"
PARTITIONS = 3
ROUNDS = 12
LARGE_RECORDS = 30
RECORD_BYTES = 20_000
DEADLINE_S = 60.0


def values_of(partition: int) -> list[bytes]:
    """Return the values of a partition: in each round one batch of 600 kB, and a single small record."""
    chance = random.Random(partition)
    values = []
    for _ in range(ROUNDS):
        values += [chance.randbytes(RECORD_BYTES) for _ in range(LARGE_RECORDS)]
        values.append(chance.randbytes(10))
    return values


def produce(gateway: GatewayProcess, values: dict[int, list[bytes]]) -> None:
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    topic = NewTopic(TOPIC, PARTITIONS, config={"segment.bytes": "2000000"})
    admin.create_topics([topic])[TOPIC].result(DEADLINE_S)
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            errors.append(error)

    producer = Producer(
        {
            "bootstrap.servers": gateway.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 1000,
            "batch.size": 1_000_000,
        }
    )
    for begin in range(0, ROUNDS * (LARGE_RECORDS + 1), LARGE_RECORDS + 1):
        for end in (begin + LARGE_RECORDS, begin + LARGE_RECORDS + 1):
            for partition, all_values in values.items():
                for value in all_values[begin if end == begin + LARGE_RECORDS else end - 1 : end]:
                    producer.produce(TOPIC, value, partition=partition, on_delivery=delivered)
            assert producer.flush(DEADLINE_S) == 0
    assert not errors


def consume(gateway: GatewayProcess) -> dict[int, list[bytes]]:
    consumer = Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": "nobody's"})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    found: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    left = PARTITIONS * ROUNDS * (LARGE_RECORDS + 1)
    while left:
        messages = consumer.consume(left, DEADLINE_S)
        assert messages, f"{left} records are missing"
        for message in messages:
            value, partition = message.value(), message.partition()
            assert value is not None
            assert partition is not None
            found[partition].append(value)
        left -= len(messages)
    consumer.close()
    return found


def large_rows(bucket: Path) -> int:
    """Return how many rows of the write-ahead log are too large for the memory that small requests share."""
    found = [decode(path.read_bytes(), path.name) for path in bucket.glob("wal/*/*/*") if path.name.isdigit()]
    rows = [row for each in found if isinstance(each, WalObject) for row in each.rows]
    return sum(row.length > RECEIVE_BUFFER_BYTES for row in rows)


def test_large_and_small_batches_survive_the_loss_of_the_disk(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    settings = {
        "seqgate.cluster": f"file://{tmp_path / 'bucket'}",
        "seqgate.cluster.put.max.bytes": "1500000",
        "node.id": "1",
        "seqgate.cluster.lease.ms": "6000",
    }
    values = {partition: values_of(partition) for partition in range(PARTITIONS)}
    with GatewayProcess(tmp_path / "cache", settings=settings) as gateway:
        produce(gateway, values)
        gateway.kill()
        assert large_rows(tmp_path / "bucket") == PARTITIONS * ROUNDS
        shutil.rmtree(gateway.data_dir)
        gateway.start()
        assert consume(gateway) == values
