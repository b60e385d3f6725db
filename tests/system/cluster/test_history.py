"""A topic that is larger than the local disk may be: the bucket has its history, and readers get it from
there.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition

from tests.support.gateway_process import GatewayProcess
from tests.support.object_stores import ACCESS_KEY, BUCKET, SECRET_KEY, MotoServer, Versitygw
from tests.support.setup_peers import versitygw_program

MIB = 1 << 20
SEGMENT_BYTES = 5 * MIB // 2
CACHE_BYTES = 4 * MIB
RECORD_BYTES = 10_000
COUNT = 10 * CACHE_BYTES // RECORD_BYTES
DEADLINE_S = 60.0


SETTINGS = {
    "seqgate.cluster.cache.bytes": str(CACHE_BYTES),
    "seqgate.cluster.upload.interval.ms": "300",
    "seqgate.cluster.puts.per.second": "1000",
    "log.cleaner.backoff.ms": "200",
    "node.id": "1",
    "seqgate.cluster.lease.ms": "6000",
}


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    (tmp_path / "bucket").mkdir()
    process = GatewayProcess(
        tmp_path / "cache", settings={"seqgate.cluster": f"file://{tmp_path / 'bucket'}", **SETTINGS}
    )
    process.start()
    yield process
    process.kill()


@pytest.fixture
def gateway_on_s3(tmp_path: Path) -> Iterator[GatewayProcess]:
    with (Versitygw if versitygw_program() else MotoServer)() as store:
        process = GatewayProcess(
            tmp_path / "cache",
            settings={
                "seqgate.cluster": f"s3://{BUCKET}/prefix",
                "seqgate.cluster.endpoint": store.endpoint,
                **SETTINGS,
            },
            environment={"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY},
        )
        process.start()
        yield process
        process.kill()


def records() -> list[bytes]:
    chance = random.Random(7)
    return [number.to_bytes(4, "big") + chance.randbytes(RECORD_BYTES) for number in range(COUNT)]


def create(gateway: GatewayProcess, **config: str) -> None:
    """Create the topic. Its segments have three blocks, of which the last is smaller."""
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    topic = NewTopic("history", 1, config={"segment.bytes": str(SEGMENT_BYTES), **config})
    admin.create_topics([topic])["history"].result(DEADLINE_S)


def produce(gateway: GatewayProcess, values: list[bytes]) -> None:
    create(gateway)
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            errors.append(error)

    producer = Producer({"bootstrap.servers": gateway.bootstrap, "enable.idempotence": True, "linger.ms": 20})
    for value in values:
        producer.produce("history", value, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0
    assert errors == []


def read_all(gateway: GatewayProcess) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition("history", 0, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < COUNT:
        assert time.monotonic() < deadline, f"{len(found)} of {COUNT} records came"
        for message in consumer.consume(500, 1.0):
            assert message.error() is None, message.error()
            assert message.offset() == len(found)
            found.append(message.value())
    consumer.close()
    return found


def check(found: list[bytes], expected: list[bytes]) -> None:
    """Check each record. The failure names the wrong records by number, and those that are all zeros, but not
    their long values.
    """
    wrong = [number for number, value in enumerate(expected) if found[number] != value]
    zeros = [number for number in wrong if not found[number].strip(b"\0")]
    assert (wrong, zeros) == ([], [])


def local_bytes(gateway: GatewayProcess) -> int:
    """Return the bytes that segments take on the local disk."""
    return sum(path.stat().st_blocks * 512 for path in gateway.data_dir.glob("history-0/*.log"))


def wait_for_eviction(gateway: GatewayProcess) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while local_bytes(gateway) > CACHE_BYTES + SEGMENT_BYTES:
        assert time.monotonic() < deadline, f"{local_bytes(gateway)} bytes are on the disk"
        time.sleep(0.05)


def test_a_topic_ten_times_the_cache_is_read_from_the_start(gateway: GatewayProcess) -> None:
    check_three_lives(gateway)


def test_a_topic_ten_times_the_cache_is_read_from_the_s3_bucket(gateway_on_s3: GatewayProcess) -> None:
    check_three_lives(gateway_on_s3)


def check_three_lives(gateway: GatewayProcess) -> None:
    values = records()
    produce(gateway, values)
    wait_for_eviction(gateway)
    check(read_all(gateway), values)
    wait_for_eviction(gateway)

    # the holes are known after a clean stop
    gateway.stop()
    assert local_bytes(gateway) <= CACHE_BYTES + SEGMENT_BYTES
    gateway.start()
    assert gateway.stderr_text().count("rebuilt from") == 1, "the first start, of an empty bucket"
    check(read_all(gateway), values)

    # an empty disk gets no more than it needs
    gateway.kill()
    shutil.rmtree(gateway.data_dir)
    gateway.start()
    assert local_bytes(gateway) <= SEGMENT_BYTES
    check(read_all(gateway), values)
    wait_for_eviction(gateway)


def write_transactions(gateway: GatewayProcess, count: int) -> list[bytes]:
    """Write transactions of ten records, and abort every other one; return the committed values."""
    chance = random.Random(3)
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "transactional.id": "writer"})
    producer.init_transactions(DEADLINE_S)
    committed = []
    for number in range(count):
        producer.begin_transaction()
        values = [number.to_bytes(4, "big") + chance.randbytes(RECORD_BYTES) for _ in range(10)]
        for value in values:
            producer.produce("history", value, partition=0)
        producer.flush(DEADLINE_S)
        if number % 2:
            producer.abort_transaction(DEADLINE_S)
        else:
            producer.commit_transaction(DEADLINE_S)
            committed += values
    return committed


def test_aborted_records_of_the_history_stay_hidden(gateway: GatewayProcess) -> None:
    create(gateway)
    committed = write_transactions(gateway, 100)
    wait_for_eviction(gateway)
    gateway.kill()
    shutil.rmtree(gateway.data_dir)
    gateway.start()
    consumer = KafkaConsumer(
        bootstrap_servers=gateway.bootstrap, isolation_level="read_committed", consumer_timeout_ms=5_000
    )
    partition = KafkaTopicPartition("history", 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    found = []
    for record in consumer:
        found.append(record.value)
        if len(found) == len(committed):
            break
    consumer.close()
    assert [value[:4] for value in found] == [value[:4] for value in committed]
    assert found == committed


def test_segments_are_compacted_that_only_the_bucket_has(gateway: GatewayProcess) -> None:
    create(gateway, **{"min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"})
    chance = random.Random(5)
    newest: dict[bytes, bytes] = {}
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "enable.idempotence": True})
    for number in range(1_500):
        key, value = f"{number % 700}".encode(), chance.randbytes(RECORD_BYTES)
        newest[key] = value
        producer.produce("history", value, key=key, partition=0)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0
    wait_for_eviction(gateway)
    policy = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "history", incremental_configs=[policy])
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)
    deadline = time.monotonic() + DEADLINE_S
    while "was compacted" not in gateway.stderr_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    wait_for_eviction(gateway)
    assert newest_values(gateway) == newest
    gateway.kill()
    shutil.rmtree(gateway.data_dir)
    gateway.start()
    assert newest_values(gateway) == newest


def newest_values(gateway: GatewayProcess) -> dict[bytes, bytes]:
    consumer = Consumer(
        {"bootstrap.servers": gateway.bootstrap, "group.id": "reader", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition("history", 0, 0)])
    found: dict[bytes, bytes] = {}
    while True:
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            break
        found[message.key()] = message.value()
    consumer.close()
    return found
