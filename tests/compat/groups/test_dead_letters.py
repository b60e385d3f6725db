"""Dead letters of share groups (KIP-1191) with Kafka's own share consumer, which knows nothing of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.compat.groups.members import await_that
from tests.compat.groups.share_members import share_readers
from tests.compat.topics import fresh_topic
from tests.support.gateway_process import GatewayProcess
from tests.support.group_configs import READ_FROM_THE_START, set_group_configs
from tests.support.wire import Wire

DELIVERY_LIMIT = 3
SETTINGS = {
    "group.share.min.record.lock.duration.ms": "2000",
    "group.share.record.lock.duration.ms": "2000",
    "group.share.min.heartbeat.interval.ms": "300",
    "group.share.heartbeat.interval.ms": "300",
    "group.share.delivery.count.limit": str(DELIVERY_LIMIT),
    "share.coordinator.state.topic.num.partitions": "4",
}
REJECTED = "Offset rejected by client."
TOO_OFTEN = "Offset delivery count exceeded the threshold."
KEY, VALUE = b"k", b"v"


def create_queue(bootstrap: str, topic: str) -> None:
    wanted = {
        "name": topic,
        "num_partitions": 1,
        "replication_factor": 1,
        "configs": [{"name": "errors.deadletterqueue.group.enable", "value": "true"}],
    }
    with Wire(bootstrap) as wire:
        (created,) = wire.call("create_topics", 7, topics=[wanted], timeout=10_000).fields["topics"]
    assert created["error_code"] == 0, created


def letters(bootstrap: str, topic: str) -> list[tuple[bytes | None, bytes | None, dict[str, str]]]:
    """Return key, value and headers of each letter."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "letters", "log_level": 0})
    try:
        _, end_offset = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = [message for message in consumer.consume(end_offset, 60) if not message.error()]
    finally:
        consumer.close()
    assert len(found) == end_offset
    return [
        (message.key(), message.value(), {name: text.decode() for name, text in message.headers() or []})
        for message in found
    ]


@pytest.mark.parametrize(
    ("how", "copies", "delivery_count", "message"),
    [("--reject", "true", 1, REJECTED), ("--release", "false", DELIVERY_LIMIT, TOO_OFTEN)],
)
def test_a_letter_says_what_kafka_says(
    tmp_path: Path, how: str, copies: str, delivery_count: int, message: str
) -> None:
    """The expected letters are those that Apache Kafka 4.4.0 wrote for the same input."""
    with GatewayProcess(tmp_path / "data", settings=SETTINGS) as gateway:
        topic = fresh_topic(gateway.bootstrap, "orders")
        with share_readers(gateway.bootstrap, topic, tmp_path) as readers:
            configs = {
                "errors.deadletterqueue.topic.name": f"dlq.{topic}",
                "errors.deadletterqueue.copy.record.enable": copies,
            }
            set_group_configs(gateway.bootstrap, readers.group, {**READ_FROM_THE_START, **configs})
            producer = Producer({"bootstrap.servers": gateway.bootstrap})
            producer.produce(topic, VALUE, KEY)
            assert producer.flush(60) == 0
            create_queue(gateway.bootstrap, f"dlq.{topic}")
            readers.start(how)
            await_that(lambda: letters(gateway.bootstrap, f"dlq.{topic}"), "the letter is written")
            content = (KEY, VALUE) if copies == "true" else (None, None)
            place = {
                "__dlq.errors.topic": topic,
                "__dlq.errors.partition": "0",
                "__dlq.errors.offset": "0",
                "__dlq.errors.group": readers.group,
                "__dlq.errors.delivery.count": str(delivery_count),
                "__dlq.errors.message": message,
            }
            assert letters(gateway.bootstrap, f"dlq.{topic}") == [(*content, place)]
        assert "Traceback" not in gateway.stderr_text()


@pytest.mark.tier("test")
def test_each_record_is_dead_once_however_often_the_gateway_is_killed(tmp_path: Path) -> None:
    sent = [f"v{number}" for number in range(400)]
    with GatewayProcess(tmp_path / "data", settings=SETTINGS) as gateway:
        topic = fresh_topic(gateway.bootstrap, "poison")
        queue = f"dlq.{topic}"
        with share_readers(gateway.bootstrap, topic, tmp_path) as readers:
            configs = {
                "errors.deadletterqueue.topic.name": queue,
                "errors.deadletterqueue.copy.record.enable": "true",
            }
            set_group_configs(gateway.bootstrap, readers.group, {**READ_FROM_THE_START, **configs})
            create_queue(gateway.bootstrap, queue)
            rejecting = readers.start("--reject")
            for first in range(0, len(sent), 100):
                some = sent[first : first + 100]
                readers.produce(some)
                await_that(lambda some=some: not {*some}.isdisjoint(rejecting.values), "some are rejected")  # type: ignore[misc]
                gateway.restart(kill=True)
            await_that(
                lambda: len(letters(gateway.bootstrap, queue)) >= len(sent), "each record has a letter"
            )
        found = [(value or b"").decode() for _, value, _ in letters(gateway.bootstrap, queue)]
        assert sorted(found) == sorted(sent)
        assert "Traceback" not in gateway.stderr_text()


def test_what_is_released_does_not_come_before_its_delay(tmp_path: Path) -> None:
    """Members get all other records meanwhile."""
    with GatewayProcess(tmp_path / "data", settings=SETTINGS) as gateway:
        topic = fresh_topic(gateway.bootstrap, "later")
        with share_readers(gateway.bootstrap, topic, tmp_path) as readers:
            hour = {"seqgate.share.retry.backoff.ms": "3600000"}
            set_group_configs(gateway.bootstrap, readers.group, {**READ_FROM_THE_START, **hour})
            first, second, third = ([f"{name}{number}" for number in range(20)] for name in "abc")
            readers.start("--release")
            readers.produce(first)
            readers.await_delivered(first)
            readers.produce(second)
            readers.await_delivered(second)
            gateway.restart(kill=True)
            readers.produce(third)
            readers.await_delivered(third)
            assert all(readers.delivered[value] == 1 for value in first)
        assert "Traceback" not in gateway.stderr_text()
