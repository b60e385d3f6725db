"""Real clients produce in every codec to topics of every codec, and read back what they sent, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition

from tests.compat.topics import expect_unbroken, fresh_topic, stored_batches
from tests.support.batches import CODECS
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_tools import run_tool

COUNT = 300
STORED = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
VALUES = [b"value %d " % number * (1 + number % 40) for number in range(COUNT)]


def confluent_kafka(bootstrap: str, topic: str, codec: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": codec,
            "batch.num.messages": 20,
            "max.in.flight": 5,
        }
    )
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def kafka_python(bootstrap: str, topic: str, codec: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        enable_idempotence=True,
        acks="all",
        batch_size=2_000,
        compression_type=None if codec == "none" else codec,
    )
    sent = [producer.send(topic, value) for value in VALUES]
    producer.flush()
    producer.close()
    assert [future.get(10).offset for future in sent] == list(range(COUNT))


def aiokafka(bootstrap: str, topic: str, codec: str) -> None:
    async def produce() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            max_batch_size=2_000,
            compression_type=None if codec == "none" else codec,
        ) as producer:
            sent = [await producer.send(topic, value) for value in VALUES]
            assert [row.offset for row in await asyncio.gather(*sent)] == list(range(COUNT))

    asyncio.run(produce())


def console_producer(bootstrap: str, topic: str, codec: str) -> None:
    lines = b"".join(value + b"\n" for value in VALUES).decode()
    properties = ("--command-property", "batch.size=2000", "--command-property", "linger.ms=0")
    run_tool(
        "kafka-console-producer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--compression-codec", codec, *properties),
        stdin=lines,
    ).expect_success()


PRODUCERS: dict[str, Callable[[str, str, str], None]] = {
    "confluent-kafka": confluent_kafka,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}
SOME_PAIRS = (
    ("none", "zstd"),
    ("zstd", "lz4"),
    ("lz4", "snappy"),
    ("snappy", "gzip"),
    ("gzip", "uncompressed"),
)


def _consumed_by_librdkafka(bootstrap: str, topic: str) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "check.crcs": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    for _ in range(100):
        messages = consumer.consume(COUNT, timeout=0.5)
        found += [message.value() for message in messages if message.error() is None]
        if len(found) >= COUNT:
            break
    consumer.close()
    return found


def _consumed_by_kafka_python(bootstrap: str, topic: str) -> list[bytes]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, check_crcs=True)
    consumer.assign([KafkaPythonPartition(topic, 0)])
    consumer.seek(KafkaPythonPartition(topic, 0), 0)
    found: list[bytes] = []
    for _ in range(100):
        for rows in consumer.poll(timeout_ms=200).values():
            found += [row.value for row in rows]
        if len(found) >= COUNT:
            break
    consumer.close()
    return found


def _expect_stored(bootstrap: str, topic: str, codec: int) -> None:
    batches = stored_batches(bootstrap, topic)
    expect_unbroken(batches, COUNT)
    assert {batch.attributes & 7 for batch in batches} == {codec}
    assert len(batches) > 1


@pytest.mark.parametrize("client", PRODUCERS)
@pytest.mark.parametrize(("sent_in", "stored_in"), list(product(CODECS, STORED)))
def test_every_codec_to_every_codec(
    shared_gateway: GatewayProcess, client: str, sent_in: str, stored_in: str
) -> None:
    bootstrap = shared_gateway.bootstrap
    topic = fresh_topic(bootstrap, "codecs", configs={"compression.type": stored_in})
    PRODUCERS[client](bootstrap, topic, sent_in)
    _expect_stored(bootstrap, topic, STORED[stored_in])
    reads: Any = _consumed_by_librdkafka if client == "confluent-kafka" else _consumed_by_kafka_python
    assert reads(bootstrap, topic) == VALUES


@pytest.mark.parametrize(("sent_in", "stored_in"), SOME_PAIRS)
def test_the_console_tools(shared_gateway: GatewayProcess, sent_in: str, stored_in: str) -> None:
    bootstrap = shared_gateway.bootstrap
    topic = fresh_topic(bootstrap, "codecs-console", configs={"compression.type": stored_in})
    console_producer(bootstrap, topic, sent_in)
    _expect_stored(bootstrap, topic, STORED[stored_in])
    read = run_tool(
        "kafka-console-consumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"),
        *("--max-messages", str(COUNT), "--timeout-ms", "20000"),
    ).expect_success()
    assert read.stdout.encode().split(b"\n")[:COUNT] == VALUES


@pytest.mark.parametrize(("sent_in", "stored_in"), SOME_PAIRS)
def test_transactions(shared_gateway: GatewayProcess, sent_in: str, stored_in: str) -> None:
    bootstrap = shared_gateway.bootstrap
    topic = fresh_topic(bootstrap, "codecs-transactions", configs={"compression.type": stored_in})
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": topic,
            "compression.type": sent_in,
            "batch.num.messages": 20,
        }
    )
    producer.init_transactions(30)
    for is_kept in (False, True):
        producer.begin_transaction()
        for value in VALUES:
            producer.produce(topic, value)
        assert producer.flush(30) == 0  # an abort drops what was not sent
        (producer.commit_transaction if is_kept else producer.abort_transaction)(30)
    assert _consumed_by_librdkafka(bootstrap, topic) == VALUES
    data = [batch for batch in stored_batches(bootstrap, topic) if not batch.attributes & 0x20]
    assert {batch.attributes & 7 for batch in data} == {STORED[stored_in]}
    markers = [batch for batch in stored_batches(bootstrap, topic) if batch.attributes & 0x20]
    assert [batch.attributes & 7 for batch in markers] == [0, 0]


def test_an_admin_client_creates_and_alters(shared_gateway: GatewayProcess) -> None:
    """librdkafka's own test of its admin client creates a topic with a compression type."""
    bootstrap = shared_gateway.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = f"codecs-admin-{id(admin)}"
    configs = {"compression.type": "lz4", "compression.lz4.level": "12"}
    admin.create_topics([NewTopic(topic, 1, 1, config=configs)])[topic].result(10)
    named = ConfigResource(ResourceType.TOPIC, topic)
    (described,) = admin.describe_configs([named]).values()
    values = described.result(10)
    assert {name: values[name].value for name in configs} == configs
    entry = ConfigEntry("compression.type", "snappy", incremental_operation=AlterConfigOpType.SET)
    (altered,) = admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])]
    ).values()
    altered.result(10)
    confluent_kafka(bootstrap, topic, "none")
    _expect_stored(bootstrap, topic, STORED["snappy"])
