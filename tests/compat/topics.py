"""New topics for tests that share one endpoint, and a reader of all batches of a topic."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from tests.support.batches import BatchView, read_batches
from tests.support.wire import Wire


def fresh_topic(
    bootstrap: str, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> str:
    """Create a topic under a name that no other test uses, and return the name."""
    topic = f"{name}-{uuid.uuid4().hex[:8]}"
    settings = [{"name": key, "value": value} for key, value in (configs or {}).items()]
    wanted = {"name": topic, "num_partitions": partitions, "replication_factor": 1, "configs": settings}
    with Wire(bootstrap) as wire:
        created = wire.call("create_topics", 7, topics=[wanted], timeout=10_000).fields["topics"][0]
        assert created["error_code"] == 0, created
        while _leaderless(wire, topic, partitions):
            pass
    return topic


def _leaderless(wire: Wire, topic: str, partitions: int) -> bool:
    asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    found = wire.call("metadata", 12, asked).fields["topics"][0]["partitions"]
    return len(found) < partitions or any(partition["error_code"] for partition in found)


def stored_batches(bootstrap: str, topic: str, partition: int = 0) -> list[BatchView]:
    """Return every batch of a partition from its start to its end, read by Fetch."""
    found: list[BatchView] = []
    with Wire(bootstrap) as wire:
        asked = {"partition_index": partition, "timestamp": -1, "current_leader_epoch": -1}
        topics = [{"name": topic, "partitions": [asked]}]
        answer = wire.call("list_offsets", 7, replica_id=-1, topics=topics).fields
        end_offset = answer["topics"][0]["partitions"][0]["offset"]
        offset = 0
        while offset < end_offset:
            wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 4 << 20}
            wanted |= {"current_leader_epoch": -1, "last_fetched_epoch": -1, "log_start_offset": -1}
            topics = [{"topic": topic, "partitions": [wanted]}]
            limits = {"replica_id": -1, "max_wait": 1_000, "min_bytes": 1, "max_bytes": 4 << 20}
            answer = wire.call("fetch", 12, limits, topics=topics, session_epoch=-1).fields
            fetched = answer["responses"][0]["partitions"][0]
            assert fetched["error_code"] == 0, fetched["error_code"]
            batches, _ = read_batches(fetched["records"])
            assert batches, f"nothing at offset {offset} of {end_offset}"
            found += batches
            offset = batches[-1].base_offset + batches[-1].last_offset_delta + 1
    return found


def expect_unbroken(batches: list[BatchView], count: int) -> None:
    """Check that neither the offsets nor any producer's sequences have gaps, and that there are `count`
    records in total."""
    next_offset = 0
    next_sequence: dict[int, int] = {}
    for batch in batches:
        assert batch.crc_is_right
        assert batch.base_offset == next_offset
        next_offset += batch.last_offset_delta + 1
        if batch.producer_id >= 0:
            assert batch.base_sequence == next_sequence.get(batch.producer_id, 0)
            next_sequence[batch.producer_id] = batch.base_sequence + batch.record_count
    assert sum(batch.record_count for batch in batches) == count
