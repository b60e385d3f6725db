"""The requests that tests of commands send over the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.support.batches import Batch, records
from tests.support.wire import Wire

ACCEPT, RELEASE, REJECT = 1, 2, 3
"""The types of acknowledgements of a share group."""
MEMBER_ID = "desk-1"
WAIT_MS = 10_000


def next_producer_id(bootstrap: str) -> int:
    """Send InitProducerId; return the producer id."""
    with Wire(bootstrap) as wire:
        answer = wire.call("init_producer_id", 4, transactional_id=None, transaction_timeout=60_000).fields
    assert answer["error_code"] == 0
    return int(answer["producer_id"])


def create_topic(
    bootstrap: str, name: str, partitions: int, configs: Mapping[str, str] | None = None
) -> None:
    """Send CreateTopics for one topic."""
    with Wire(bootstrap) as wire:
        topic: dict[str, Any] = {"name": name, "num_partitions": partitions, "replication_factor": 1}
        if configs:
            topic["configs"] = [{"name": name, "value": value} for name, value in configs.items()]
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


class Reader:
    """A consumer of the share group `desk` that reads one partition of `orders`."""

    def __init__(self, wire: Wire, partition: int = 0) -> None:
        self._wire = wire
        self._partition = partition
        topics = wire.call("metadata", 12, topics=[{"name": "orders"}]).fields["topics"]
        self._topic_id = topics[0]["topic_id"]
        self._session_epoch = 0
        self.heartbeat(0)

    def heartbeat(self, member_epoch: int) -> None:
        answer = self._wire.call(
            "share_group_heartbeat",
            1,
            group_id="desk",
            member_id=MEMBER_ID,
            member_epoch=member_epoch,
            subscribed_topic_names=["orders"] if member_epoch == 0 else None,
        ).fields
        assert answer["error_code"] == 0

    def fetch(self) -> list[tuple[int, int, int]]:
        """Return the acquired ranges: first offset, last offset and delivery count."""
        responses = self._call(
            "share_fetch", [], max_wait=WAIT_MS, min_bytes=1, max_bytes=2**20, max_records=100, batch_size=100
        )
        (row,) = responses[0]["partitions"]
        assert row["error_code"] == 0
        return [
            (one["first_offset"], one["last_offset"], one["delivery_count"])
            for one in row["acquired_records"]
        ]

    def acknowledge(self, *said: tuple[int, int, int]) -> None:
        """Acknowledge ranges: first offset, last offset and type."""
        batches = [
            {"first_offset": first_offset, "last_offset": last_offset, "acknowledge_types": [kind]}
            for first_offset, last_offset, kind in said
        ]
        (row,) = self._call("share_acknowledge", batches)[0]["partitions"]
        assert row["error_code"] == 0

    def _call(self, api: str, batches: list[dict[str, Any]], **more: Any) -> list[dict[str, Any]]:
        partition = {"partition_index": self._partition, "acknowledgement_batches": batches}
        answer = self._wire.call(
            api,
            1,
            group_id="desk",
            member_id=MEMBER_ID,
            share_session_epoch=self._session_epoch,
            topics=[{"topic_id": self._topic_id, "partitions": [partition]}],
            **more,
        ).fields
        assert answer["error_code"] == 0
        self._session_epoch += 1
        return list(answer["responses"])
