"""Consume, transform, produce in a process of its own: `python -m tests.compat.transactions.copier LIBRARY
JSON`.

Each transaction holds some transformed records of the input and their offsets; now and then the process
aborts one on purpose and reads its records again. It reports the number of copied records after each commit,
and stops when stdin ends. If the library can't continue, the process exits with a status other than 0, and
the next process takes over with the same transactional id.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sys
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.support.child_process import ended_by_failures, follow_stdin, leaving
from tests.support.group_members import know_topic

TIMEOUT_S = 10.0
POLL_S = 0.1
KAFKA_PYTHON_POLL_MS = 1_000
"""kafka-python 3.0.12 forgets a join whose answer arrives just as a poll times out: it reads and heartbeats
no more. Polls this long make that rare."""
POLLS_TO_JOIN = 10
"""Polls after which a kafka-python consumer without partitions is taken to have forgotten its join."""
MOST_RECORDS = 25
ABORTED_SHARE = 0.2
SESSION_TIMEOUT_MS = 10_000


class Work(NamedTuple):
    """The input, the output and the settings of a copier."""

    bootstrap: str
    input: str
    output: str
    partitions: int
    group: str
    name: str
    seed: int


def transformed(value: bytes | None) -> bytes:
    return b"copy of " + (value or b"")


def told_committed(count: int) -> None:
    sys.stdout.write(f"{count}\n")
    sys.stdout.flush()


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """End the process if a transaction in this block does not end in time.

    librdkafka's calls may wait for a dead connection beyond their own timeouts (its issues 5456 and 5511).
    """

    def end() -> None:
        sys.stderr.write("a transaction has not ended in time\n")
        os._exit(1)

    timer = threading.Timer(TIMEOUT_S, end)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def python_settings(work: Work) -> dict[str, Any]:
    """Return the settings that the consumers of kafka-python and aiokafka have under the same names."""
    return {
        "bootstrap_servers": work.bootstrap,
        "group_id": work.group,
        "client_id": work.name,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "isolation_level": "read_committed",
        "max_poll_records": MOST_RECORDS,
    }


def confluent(work: Work) -> None:
    """Copy with librdkafka as a static member of the group. Each transaction names the member (KIP-447)."""
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

    chance = random.Random(work.seed)
    shared = {"bootstrap.servers": work.bootstrap, "reconnect.backoff.max.ms": 200, "log_level": 0}
    producer = Producer({**shared, "transactional.id": work.name, "linger.ms": 0})
    with bounded():
        producer.init_transactions(TIMEOUT_S)
    consumer = Consumer(
        {
            **shared,
            "group.id": work.group,
            "group.instance.id": work.name,
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": 300,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([work.input])
    while not leaving.is_set():
        messages = consumer.consume(chance.randint(1, MOST_RECORDS), POLL_S)
        for message in messages:
            error = message.error()
            if error is not None and not error.retriable():
                raise KafkaException(error)
        messages = [message for message in messages if message.error() is None]
        if not messages:
            continue
        with bounded():
            producer.begin_transaction()
            offsets: dict[int, int] = {}
            for message in messages:
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                producer.produce(work.output, transformed(message.value()), partition=partition)
                offsets[partition] = offset + 1
            ends = [TopicPartition(work.input, partition, offset) for partition, offset in offsets.items()]
            producer.send_offsets_to_transaction(ends, consumer.consumer_group_metadata(), TIMEOUT_S)
            if chance.random() < ABORTED_SHARE:
                producer.flush(TIMEOUT_S)  # aborting records whose answer was lost takes the library long
                producer.abort_transaction(TIMEOUT_S)
                for place in consumer.committed(consumer.assignment(), TIMEOUT_S):
                    consumer.seek(TopicPartition(work.input, place.partition, max(place.offset, 0)))
            else:
                producer.commit_transaction(TIMEOUT_S)
                told_committed(len(messages))
    consumer.close()


def kafka_python(work: Work) -> None:
    """Copy with kafka-python as a static member of the group. Each transaction names the member (KIP-447)."""
    from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

    chance = random.Random(work.seed)
    producer = KafkaProducer(
        bootstrap_servers=work.bootstrap,
        transactional_id=work.name,
        max_block_ms=int(TIMEOUT_S * 1000),
        reconnect_backoff_max_ms=200,
    )
    producer.init_transactions()
    consumer = KafkaConsumer(
        work.input,
        **python_settings(work),
        group_instance_id=work.name,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=300,
        reconnect_backoff_max_ms=200,
    )
    know_topic(consumer, work.input)
    polls_to_join = POLLS_TO_JOIN
    while not leaving.is_set():
        polled = consumer.poll(KAFKA_PYTHON_POLL_MS, max_records=chance.randint(1, MOST_RECORDS))
        polls_to_join = POLLS_TO_JOIN if consumer.assignment() else polls_to_join - 1
        if not polls_to_join:
            raise RuntimeError("the consumer has no partitions")
        if not polled:
            continue
        with bounded():
            producer.begin_transaction()
            for place, found in polled.items():
                for record in found:
                    producer.send(work.output, transformed(record.value), partition=place.partition)
            ends = {place: OffsetAndMetadata(found[-1].offset + 1, "", -1) for place, found in polled.items()}
            producer.send_offsets_to_transaction(ends, consumer.group_metadata())
            if chance.random() < ABORTED_SHARE:
                producer.abort_transaction()
                for partition in range(work.partitions):
                    place = TopicPartition(work.input, partition)
                    consumer.seek(place, consumer.committed(place) or 0)
            else:
                producer.commit_transaction()
                told_committed(sum(len(found) for found in polled.values()))
    consumer.close()
    producer.close()


async def copy_with_aiokafka(work: Work) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition  # type: ignore[import-untyped]

    chance = random.Random(work.seed)
    producer = AIOKafkaProducer(bootstrap_servers=work.bootstrap, transactional_id=work.name)
    consumer = AIOKafkaConsumer(**python_settings(work))
    await asyncio.wait_for(producer.start(), TIMEOUT_S)
    await asyncio.wait_for(consumer.start(), TIMEOUT_S)
    places = [TopicPartition(work.input, partition) for partition in range(work.partitions)]
    consumer.assign(places)
    while not leaving.is_set():
        polled = await consumer.getmany(
            timeout_ms=int(POLL_S * 1000), max_records=chance.randint(1, MOST_RECORDS)
        )
        if not polled:
            continue
        with bounded():
            await producer.begin_transaction()
            for place, found in polled.items():
                for record in found:
                    await producer.send(work.output, transformed(record.value), partition=place.partition)
            ends = {place: found[-1].offset + 1 for place, found in polled.items()}
            await producer.send_offsets_to_transaction(ends, work.group)
            if chance.random() < ABORTED_SHARE:
                await producer.abort_transaction()
                for place in places:
                    consumer.seek(place, await consumer.committed(place) or 0)
            else:
                await producer.commit_transaction()
                told_committed(sum(len(found) for found in polled.values()))
    await consumer.stop()
    await producer.stop()


def aiokafka(work: Work) -> None:
    """Copy with aiokafka, which can't name a member: the copier assigns all partitions to itself."""
    asyncio.run(copy_with_aiokafka(work))


COPIERS = {"confluent-kafka": confluent, "kafka-python": kafka_python, "aiokafka": aiokafka}


if __name__ == "__main__":
    follow_stdin()
    with ended_by_failures():
        COPIERS[sys.argv[1]](Work(**json.loads(sys.argv[2])))
