"""Reading splits of a topic from a running gateway, without Spark."""

from __future__ import annotations

from confluent_kafka import Producer

from seqgate.spark_kafka_compat.batch_reader import plan_splits, read_split
from tests.compat.topics import fresh_topic
from tests.support.gateway_process import GatewayProcess


def test_splits_meet_without_overlap(shared_gateway: GatewayProcess) -> None:
    bootstrap = shared_gateway.bootstrap
    topic = fresh_topic(bootstrap, "splits", partitions=2)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "batch.num.messages": 7})
    for number in range(100):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(30) == 0

    splits = plan_splits(bootstrap, [topic], records_per_split=10)
    rows = [row for split in splits for row in read_split(split)]

    assert [(split.start_offset, split.end_offset) for split in splits] == [
        (first, first + 10) for first in range(0, 100, 10)
    ]
    assert rows[0].base_offset == 0
    assert [row.base_offset for row in rows[1:]] == [row.last_offset + 1 for row in rows[:-1]]
    assert rows[-1].last_offset == 99
