"""A topic that is larger than the local disk may be: the bucket has its history, and readers get it from there."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.gateway_process import GatewayProcess

MIB = 1 << 20
CACHE_BYTES = 4 * MIB
RECORD_BYTES = 10_000
COUNT = 10 * CACHE_BYTES // RECORD_BYTES
DEADLINE_S = 60.0


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    (tmp_path / "bucket").mkdir()
    process = GatewayProcess(
        tmp_path / "cache",
        settings={
            "seqgate.cluster": f"file://{tmp_path / 'bucket'}",
            "seqgate.cluster.cache.bytes": str(CACHE_BYTES),
            "seqgate.cluster.upload.interval.ms": "300",
        },
    )
    process.start()
    yield process
    process.kill()


def records() -> list[bytes]:
    chance = random.Random(7)
    return [number.to_bytes(4, "big") + chance.randbytes(RECORD_BYTES) for number in range(COUNT)]


def produce(gateway: GatewayProcess, values: list[bytes]) -> None:
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    topic = NewTopic("history", 1, config={"segment.bytes": str(MIB)})
    admin.create_topics([topic])["history"].result(DEADLINE_S)
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
    """Check each record; say which are wrong, and not how."""
    wrong = [number for number, value in enumerate(expected) if found[number] != value]
    zeros = [number for number in wrong if not found[number].strip(b"\0")]
    assert (wrong, zeros) == ([], [])


def local_bytes(gateway: GatewayProcess) -> int:
    """Return the bytes that segments take on the local disk."""
    return sum(path.stat().st_blocks * 512 for path in gateway.data_dir.glob("history-0/*.log"))


def wait_for_eviction(gateway: GatewayProcess) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while local_bytes(gateway) > CACHE_BYTES + MIB:
        assert time.monotonic() < deadline, f"{local_bytes(gateway)} bytes are on the disk"
        time.sleep(0.05)


def test_a_topic_ten_times_the_cache_is_read_from_the_start(gateway: GatewayProcess) -> None:
    values = records()
    produce(gateway, values)
    wait_for_eviction(gateway)
    check(read_all(gateway), values)
    wait_for_eviction(gateway)

    # the holes are known after a clean stop
    gateway.stop()
    assert local_bytes(gateway) <= CACHE_BYTES + MIB
    gateway.start()
    assert gateway.stderr_text().count("rebuilt from") == 1, "the first start, of an empty bucket"
    check(read_all(gateway), values)

    # an empty disk gets no more than it needs
    gateway.kill()
    shutil.rmtree(gateway.data_dir)
    gateway.start()
    assert local_bytes(gateway) <= 2 * MIB
    check(read_all(gateway), values)
    wait_for_eviction(gateway)
