"""Real clients over their quotas: answers report the throttle time, the clients wait, and no record is lost
or stored twice.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer, KafkaProducer, TopicPartition  # type: ignore[import-untyped]

from tests.compat.topics import expect_unbroken, fresh_topic, stored_batches
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_tools import run_tool
from tests.support.wire import Wire

RECORDS = 60
RECORD_BYTES = 1000
DEADLINE_S = 60.0


@contextmanager
def quota(gateway: GatewayProcess, key: str, value: float) -> Iterator[str]:
    """Limit a client id that nobody else uses, and yield it."""
    client_id = f"quota-{uuid.uuid4().hex[:8]}"

    def alter(*, remove: bool) -> None:
        entity = [{"entity_type": "client-id", "entity_name": client_id}]
        ops = [{"key": key, "value": value, "remove": remove}]
        with Wire(gateway.bootstrap) as wire:
            answer = wire.call(
                "alter_client_quotas", 1, entries=[{"entity": entity, "ops": ops}], validate_only=False
            )
        assert answer.fields["entries"][0]["error_code"] == 0

    alter(remove=False)
    try:
        yield client_id
    finally:
        alter(remove=True)


def test_kafka_producer_perf_test_is_throttled(shared_gateway: GatewayProcess) -> None:
    topic = fresh_topic(shared_gateway.bootstrap, "quota-perf")
    with quota(shared_gateway, "producer_byte_rate", 5000.0) as client_id:
        run = run_tool(
            "kafka-producer-perf-test",
            *("--topic", topic),
            *("--num-records", str(RECORDS)),
            *("--record-size", str(RECORD_BYTES)),
            *("--throughput", "-1"),
            "--print-metrics",
            "--producer-props",
            f"bootstrap.servers={shared_gateway.bootstrap}",
            f"client.id={client_id}",
            "batch.size=4000",
        ).expect_success()
    found = re.search(r"produce-throttle-time-max:\S+\s*:\s*([0-9.]+)", run.stdout)
    assert found is not None, run.stdout
    assert float(found[1]) > 0
    expect_unbroken(stored_batches(shared_gateway.bootstrap, topic), RECORDS)


def _written(gateway: GatewayProcess) -> str:
    """Return a topic with RECORDS records."""
    topic = fresh_topic(gateway.bootstrap, "quota-fetch")
    producer = KafkaProducer(bootstrap_servers=gateway.bootstrap, batch_size=4000)
    for number in range(RECORDS):
        producer.send(topic, b"%06d" % number + b"." * RECORD_BYTES)
    producer.close()
    return topic


def test_kafkas_consumer_reads_everything_though_it_is_throttled(shared_gateway: GatewayProcess) -> None:
    topic = _written(shared_gateway)
    with quota(shared_gateway, "consumer_byte_rate", 6000.0) as client_id:
        run = run_tool(
            "kafka-console-consumer",
            *("--bootstrap-server", shared_gateway.bootstrap, "--topic", topic, "--from-beginning"),
            *("--max-messages", str(RECORDS)),
            *("--command-property", f"client.id={client_id}"),
        ).expect_success()
    assert [line[:6] for line in run.stdout.splitlines()] == [f"{number:06d}" for number in range(RECORDS)]


def test_librdkafka_reads_everything_though_it_is_throttled(shared_gateway: GatewayProcess) -> None:
    topic = _written(shared_gateway)
    throttled_ms: list[float] = []
    with quota(shared_gateway, "consumer_byte_rate", 6000.0) as client_id:
        consumer = Consumer(
            {
                "bootstrap.servers": shared_gateway.bootstrap,
                "client.id": client_id,
                "group.id": client_id,
                "auto.offset.reset": "earliest",
                "throttle_cb": lambda event: throttled_ms.append(event.throttle_time),
            }
        )
        consumer.assign([ConfluentPartition(topic, 0, 0)])
        found = []
        end_s = time.monotonic() + DEADLINE_S
        while len(found) < RECORDS and time.monotonic() < end_s:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found.append(message.value()[:6])
        consumer.close()
    assert found == [b"%06d" % number for number in range(RECORDS)]
    assert max(throttled_ms) > 0


def test_kafka_python_reads_everything_though_it_is_throttled(
    shared_gateway: GatewayProcess, caplog: pytest.LogCaptureFixture
) -> None:
    topic = _written(shared_gateway)
    # the commands of seqgate, which other tests import, silence the loggers of kafka-python
    caplog.set_level(logging.WARNING, "kafka")
    with quota(shared_gateway, "consumer_byte_rate", 6000.0) as client_id:
        consumer = KafkaConsumer(bootstrap_servers=shared_gateway.bootstrap, client_id=client_id)
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        values = [next(consumer).value[:6] for _ in range(RECORDS)]
        consumer.close()
    assert values == [b"%06d" % number for number in range(RECORDS)]
    assert "FetchResponse throttled by broker" in caplog.text
