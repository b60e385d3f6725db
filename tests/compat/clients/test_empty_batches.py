"""Consumers of all four libraries pass long runs of batches without records, and get every record up to the
log end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AiokafkaPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from tests.compat.empty_batches import FETCH_BYTES, SparseLog, sparse_log
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_tools import run_tool

TIMEOUT_S = 60.0
"""Time within which a consumer must reach the end."""
JVM_SOURCE = Path(__file__).with_name("ReadToEnd.java")


@pytest.fixture(scope="module")
def sparse(shared_gateway: GatewayProcess) -> SparseLog:
    return sparse_log(shared_gateway.bootstrap)


def test_kafka_python(shared_gateway: GatewayProcess, sparse: SparseLog) -> None:
    partition = KafkaPythonPartition(sparse.topic, 0)
    consumer = KafkaConsumer(
        bootstrap_servers=shared_gateway.bootstrap, group_id=None, max_partition_fetch_bytes=FETCH_BYTES
    )
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    found: list[tuple[int, bytes]] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    while consumer.position(partition) < sparse.log_end_offset and time.monotonic() < deadline_s:
        rows = consumer.poll(timeout_ms=1000).get(partition, ())
        found += [(row.offset, row.value) for row in rows]
    assert found == sparse.records
    assert consumer.position(partition) == sparse.log_end_offset
    consumer.close()


async def test_aiokafka(shared_gateway: GatewayProcess, sparse: SparseLog) -> None:
    partition = AiokafkaPartition(sparse.topic, 0)
    found: list[tuple[int, bytes]] = []
    async with AIOKafkaConsumer(
        bootstrap_servers=shared_gateway.bootstrap, group_id=None, max_partition_fetch_bytes=FETCH_BYTES
    ) as consumer:
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        deadline_s = time.monotonic() + TIMEOUT_S
        while await consumer.position(partition) < sparse.log_end_offset and time.monotonic() < deadline_s:
            rows = (await consumer.getmany(timeout_ms=1000)).get(partition, ())
            found += [(row.offset, row.value) for row in rows]
        assert found == sparse.records
        assert await consumer.position(partition) == sparse.log_end_offset


def test_confluent_kafka(shared_gateway: GatewayProcess, sparse: SparseLog) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": shared_gateway.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "max.partition.fetch.bytes": FETCH_BYTES,
        }
    )
    consumer.assign([ConfluentPartition(sparse.topic, 0, OFFSET_BEGINNING)])
    found: list[tuple[int | None, bytes | None]] = []
    end_offset = None
    deadline_s = time.monotonic() + TIMEOUT_S
    while end_offset is None and time.monotonic() < deadline_s:
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            end_offset = message.offset()
        else:
            found.append((message.offset(), message.value()))
    assert found == sparse.records
    assert end_offset == sparse.log_end_offset
    consumer.close()


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
def test_jvm(shared_gateway: GatewayProcess, sparse: SparseLog, isolation_level: str) -> None:
    read = run_tool(
        str(JVM_SOURCE),
        shared_gateway.bootstrap,
        sparse.topic,
        str(FETCH_BYTES),
        str(sparse.log_end_offset),
        isolation_level,
    ).expect_success()
    told = [f"{offset} {value.decode()}" for offset, value in sparse.records]
    assert read.stdout.splitlines() == [*told, f"at {sparse.log_end_offset}"]
