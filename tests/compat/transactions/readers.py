"""Consumers of four libraries, with either isolation level, that read a topic from its start to its last
record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition  # type: ignore[import-untyped]
from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from tests.support.kafka_tools import run_tool

TIMEOUT_S = 90.0
LAST_WORD = "the-last-word"
"""The last committed value of the topic's only partition: a reader that has read it has read every visible
record before it."""

Reader = Callable[[str, str, str, int], list[str]]
"""(bootstrap, topic, isolation level, expected count) → the values in order. If the count differs, all values
are returned."""


def confluent(bootstrap: str, topic: str, isolation: str, expected: int) -> list[str]:
    del expected
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "nobody's", "isolation.level": isolation, "log_level": 0}
    )
    consumer.assign([ConfluentPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[str] = []
    while LAST_WORD not in found:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, found
        found.append((message.value() or b"").decode())
    consumer.close()
    return found


def _python_settings(bootstrap: str, isolation: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": bootstrap,
        "auto_offset_reset": "earliest",
        "isolation_level": isolation,
        "group_id": None,
    }


def kafka_python(bootstrap: str, topic: str, isolation: str, expected: int) -> list[str]:
    del expected
    consumer = KafkaConsumer(**_python_settings(bootstrap, isolation))
    consumer.assign([KafkaPythonPartition(topic, 0)])
    found: list[str] = []
    while LAST_WORD not in found:
        polled = consumer.poll(int(TIMEOUT_S * 1000))
        assert polled, found
        found += [record.value.decode() for records in polled.values() for record in records]
    consumer.close()
    return found


async def _with_aiokafka(bootstrap: str, topic: str, isolation: str) -> list[str]:
    found: list[str] = []
    async with AIOKafkaConsumer(**_python_settings(bootstrap, isolation)) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while LAST_WORD not in found:
            record = await asyncio.wait_for(consumer.getone(), TIMEOUT_S)
            found.append(record.value.decode())
    return found


def aiokafka(bootstrap: str, topic: str, isolation: str, expected: int) -> list[str]:
    del expected
    return asyncio.run(_with_aiokafka(bootstrap, topic, isolation))


def jvm(bootstrap: str, topic: str, isolation: str, expected: int) -> list[str]:
    """Read the expected number of records with Apache Kafka's own consumer."""
    told = run_tool(
        "kafka-console-consumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"),
        *("--isolation-level", isolation),
        *("--max-messages", str(expected), "--timeout-ms", str(int(TIMEOUT_S * 1000))),
    ).expect_success()
    return told.stdout.splitlines()


READERS: tuple[Reader, ...] = (jvm, confluent, kafka_python, aiokafka)
