"""Asks the gateway for the last sequence ids of a producer name, through each library's call for committed
offsets.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any

from tests.faults.deduplication.task import Task
from tests.faults.kill.sessions import FOREVER_MS, QUICK_BACKOFF_MS, one_line

ANSWER_TIMEOUT_S = 120.0
PAUSE_S = QUICK_BACKOFF_MS / 1000


def with_kafka_python(task: Task) -> dict[int, int]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=task.bootstrap,
        group_id=task.group,
        enable_auto_commit=False,
        bootstrap_timeout_ms=FOREVER_MS,
        reconnect_backoff_ms=QUICK_BACKOFF_MS,
        reconnect_backoff_max_ms=QUICK_BACKOFF_MS,
    )
    told = {
        partition: consumer.committed(TopicPartition(task.topic, partition))
        for partition in range(task.partitions)
    }
    consumer.close()
    return _known(told)


def with_aiokafka(task: Task) -> dict[int, int]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def ask() -> dict[int, int | None]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=task.bootstrap, group_id=task.group, enable_auto_commit=False
        )
        try:
            await consumer.start()
            return {
                partition: await consumer.committed(TopicPartition(task.topic, partition))
                for partition in range(task.partitions)
            }
        finally:
            await consumer.stop()

    return _known(asyncio.run(ask()))


def with_confluent_kafka(task: Task) -> dict[int, int]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": task.bootstrap,
            "group.id": task.group,
            "enable.auto.commit": False,
            "reconnect.backoff.ms": QUICK_BACKOFF_MS,
            "reconnect.backoff.max.ms": QUICK_BACKOFF_MS,
            "log_level": 0,
        }
    )
    try:
        asked = [TopicPartition(task.topic, partition) for partition in range(task.partitions)]
        told = consumer.committed(asked, timeout=ANSWER_TIMEOUT_S)
        for row in told:
            if row.error is not None:
                raise RuntimeError(row.error)
    finally:
        consumer.close()
    return _known({row.partition: row.offset for row in told})


def _known(told: dict[int, Any]) -> dict[int, int]:
    """Return the existing offsets. For the others libraries return None or a negative offset."""
    return {partition: offset for partition, offset in told.items() if offset is not None and offset >= 0}


WAYS: dict[str, Callable[[Task], dict[int, int]]] = {
    "kafka-python": with_kafka_python,
    "aiokafka": with_aiokafka,
    "confluent-kafka": with_confluent_kafka,
}


def persisted_sequences(task: Task) -> dict[int, int]:
    """Return the last persisted sequence id by partition, where there is one; retry until an answer comes."""
    while True:
        try:
            return WAYS[task.library](task)
        except Exception as error:
            print(f"asking again: {one_line(error)}", file=sys.stderr)
            # A gateway that is starting refuses connections for a while; two of the libraries give up at
            # once.
            time.sleep(PAUSE_S)
