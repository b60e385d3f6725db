"""The requests that tests of commands send over the wire."""

from __future__ import annotations

from tests.support.batches import Batch, records
from tests.support.wire import Wire


def next_producer_id(bootstrap: str) -> int:
    """Send InitProducerId; return the producer id."""
    with Wire(bootstrap) as wire:
        answer = wire.call("init_producer_id", 4, transactional_id=None, transaction_timeout=60_000).fields
    assert answer["error_code"] == 0
    return int(answer["producer_id"])


def create_topic(bootstrap: str, name: str, partitions: int) -> None:
    """Send CreateTopics for one topic."""
    with Wire(bootstrap) as wire:
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
        (created,) = wire.call("create_topics", 7, topics=[topic], timeout=10_000).fields["topics"]
    assert created["error_code"] == 0


def produce(
    bootstrap: str, topic: str, partition: int, producer_id: int, base_sequence: int, count: int
) -> tuple[int, int]:
    """Produce one batch of an idempotent producer; return the error code and base offset of the answer."""
    batch = Batch(records(count)).of(producer_id, 0, base_sequence).encode()
    with Wire(bootstrap) as wire:
        answer = wire.call(
            "produce",
            9,
            acks=-1,
            timeout=10_000,
            topic_data=[{"name": topic, "partition_data": [{"index": partition, "records": batch}]}],
        ).fields
    (row,) = answer["responses"][0]["partition_responses"]
    return row["error_code"], row["base_offset"]


def described_producers(bootstrap: str, topic: str, partition: int) -> list[dict[str, int]]:
    """Send DescribeProducers for one partition; return the producers by id."""
    with Wire(bootstrap) as wire:
        answer = wire.call(
            "describe_producers", 0, topics=[{"name": topic, "partition_indexes": [partition]}]
        ).fields
    (row,) = answer["topics"][0]["partitions"]
    assert row["error_code"] == 0
    return sorted(row["active_producers"], key=lambda producer: int(producer["producer_id"]))
