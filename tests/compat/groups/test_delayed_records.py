"""Delayed records with Kafka's own share consumer: none is early, and neither retention nor a killed gateway
loses any."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.compat.groups.members import DEADLINE_S, await_that
from tests.compat.groups.share_members import ShareMember, ShareReaders, share_readers
from tests.compat.topics import fresh_topic
from tests.support.gateway_process import GatewayProcess
from tests.support.group_configs import READ_FROM_THE_START, set_group_configs

SETTINGS = {
    "log.retention.check.interval.ms": "200",
    "group.share.min.heartbeat.interval.ms": "300",
    "group.share.heartbeat.interval.ms": "300",
    "share.coordinator.state.topic.num.partitions": "4",
    "offsets.topic.num.partitions": "4",
}
SHORT_LIFE = {"retention.ms": "300"}
DELAYED = {"delivery.delay.header": "due", "delivery.delay.hold.ms": "60000", **SHORT_LIFE}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def send(readers: ShareReaders, *delays_ms: int) -> list[str]:
    """Send one record per delay; its value is its due time."""
    sent = [str(now_ms() + delay_ms) for delay_ms in delays_ms]
    for value in sent:
        readers.produce([value], {"due": value.encode()})
    return sent


def expect_none_early(member: ShareMember) -> None:
    for value, printed_at_ms in zip(member.values, member.printed_at_ms, strict=True):
        assert printed_at_ms >= int(value), member.values


def consumer_of(bootstrap: str, topic: str) -> Consumer:
    return Consumer({"bootstrap.servers": bootstrap, "group.id": f"of-{topic}", "log_level": 0})


def values_in_log(bootstrap: str, topic: str) -> list[str]:
    """Return all values from the log start to its end, read by a consumer with its own group."""
    consumer = consumer_of(bootstrap, topic)
    try:
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), DEADLINE_S)
        consumer.assign([TopicPartition(topic, 0, first)])
        found = []
        for message in consumer.consume(end - first, DEADLINE_S):
            assert message.error() is None
            value = message.value()
            assert value is not None
            found.append(value.decode())
        return found
    finally:
        consumer.close()


def await_retention(bootstrap: str, topic: str) -> None:
    """Wait until retention has removed a record from another topic, which has no delays."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    producer.produce(topic, b"old")
    assert producer.flush(DEADLINE_S) == 0
    consumer = consumer_of(bootstrap, topic)
    try:

        def is_empty() -> bool:
            first, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), DEADLINE_S)
            return bool(first == end)

        await_that(is_empty, "retention has worked")
    finally:
        consumer.close()


def test_a_share_consumer_gets_records_when_they_are_due(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "data", settings=SETTINGS) as gateway:
        topic = fresh_topic(gateway.bootstrap, "delayed", configs=DELAYED)
        plain = fresh_topic(gateway.bootstrap, "plain", configs=SHORT_LIFE)
        with share_readers(gateway.bootstrap, topic, tmp_path) as readers:
            set_group_configs(gateway.bootstrap, readers.group, READ_FROM_THE_START)
            far = send(readers, 7_000)
            at_once = send(readers, 0)
            member = readers.start()
            readers.await_delivered(at_once)

            soon = send(readers, 3_000, 2_000, 1_000)
            assert values_in_log(gateway.bootstrap, topic) == [*far, *at_once, *soon], (
                "all records must be in the log"
            )
            await_retention(gateway.bootstrap, plain)
            readers.await_delivered(soon)
            came = [value for value in member.values if value not in far]
            assert came == [*at_once, *sorted(soon)], "no record may arrive before it is due"
            readers.await_lag(len(far))

            over_the_kill = send(readers, 2_000, 2_500)
            gateway.restart(kill=True)
            await_retention(gateway.bootstrap, plain)
            readers.await_delivered([*over_the_kill, *far])
            expect_none_early(member)
            assert sorted(member.values) == sorted(itertools.chain(far, at_once, soon, over_the_kill)), (
                "each record must arrive once"
            )
        assert "Traceback" not in gateway.stderr_text()
