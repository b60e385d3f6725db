"""Scenarios of retention and DeleteRecords. They run separately, because both endpoints must delete old
segments at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from tests.compat.differential.peer import Peer, Topic
from tests.compat.differential.scenario import Scenario
from tests.compat.differential.settling import await_applied
from tests.support.batches import Batch, records
from tests.support.wire import Plain

CHECK_INTERVAL_MS = "50"
GATEWAY_SETTINGS = {"log.retention.check.interval.ms": CHECK_INTERVAL_MS}
KAFKA_PROPERTIES = {**GATEWAY_SETTINGS, "log.initial.task.delay.ms": "0"}

OLD_MS = 1_700_000_000_000
YOUNG_MS = time.time_ns() // 1_000_000
HOUR_MS = 3_600_000
RECORDS_PER_BATCH = 5
EACH_BATCH_A_SEGMENT = {"internal.segment.bytes": "200", "file.delete.delay.ms": "0", "retention.ms": "-1"}


def small_batch(timestamp: int, step_ms: int = 1) -> Batch:
    """Return a batch that fills more than half of a segment, so that each batch gets a segment of its own."""
    return Batch(records(RECORDS_PER_BATCH, 12, step_ms=step_ms), base_timestamp=timestamp)


def filled(peer: Peer, timestamps: Iterable[int], suffix: str = "t", **configs: object) -> Topic:
    """Create a topic with one segment per timestamp; retention deletes none until its configuration is
    altered."""
    named = {name.replace("_", "."): str(value) for name, value in configs.items()}
    topic = peer.topic(suffix, configs={**EACH_BATCH_A_SEGMENT, **named})
    for timestamp in timestamps:
        peer.produce(topic, small_batch(timestamp))
    return topic


def alter(peer: Peer, topic: Topic, **values: object) -> None:
    configs = [
        {"name": name.replace("_", "."), "config_operation": 0, "value": str(value)}
        for name, value in values.items()
    ]
    resources = [{"resource_type": 2, "resource_name": topic.name, "configs": configs}]
    peer.call("incremental_alter_configs", 0, resources=resources, validate_only=False)
    await_applied(peer)


def delete_records(peer: Peer, topic: Topic, offset: int) -> None:
    rows = [{"name": topic.name, "partitions": [{"partition_index": 0, "offset": offset}]}]
    peer.call("delete_records", 2, topics=rows, timeout=10_000)


def start_reaches(peer: Peer, topic: Topic, offset: int) -> None:
    asked = {"partition_index": 0, "timestamp": -2, "current_leader_epoch": -1}

    def reached(answer: Plain) -> bool:
        return bool(answer["topics"][0]["partitions"][0]["offset"] >= offset)

    topics = [{"name": topic.name, "partitions": [asked]}]
    peer.eventually("list_offsets", 7, reached, replica_id=-1, topics=topics)


def size_settles_at(peer: Peer, topic: Topic, batches: int) -> None:
    """Wait until DescribeLogDirs reports the size of this many batches, and record the answer."""
    size_bytes = batches * len(small_batch(OLD_MS).encode())

    def settled(answer: Plain) -> bool:
        found = [
            row for result in answer["results"] for named in result["topics"] for row in named["partitions"]
        ]
        return [row["partition_size"] for row in found] == [size_bytes]

    asked = [{"topic": topic.name, "partitions": [0]}]
    peer.eventually("describe_log_dirs", 4, settled, only_own=True, topics=asked)


def look_around(peer: Peer, topic: Topic, start: int, end: int) -> None:
    """Record every answer that depends on the log start: offsets, fetches around start and end, leader
    epochs."""
    peer.offsets(topic, -1, -2, -3, -4, -5)
    peer.offsets(topic, 0, OLD_MS, OLD_MS + 3, YOUNG_MS, YOUNG_MS + 3, YOUNG_MS + HOUR_MS)
    for offset in sorted({0, max(0, start - 1), start, start + 1, end - 1, end, end + 1}):
        for version in (4, 12):
            peer.fetch(topic, offset, version=version, max_wait=0)
    peer.fetch(topic, 0, last_fetched_epoch=0, max_wait=0)
    peer.fetch(topic, start, isolation_level=1, max_wait=0)
    for wanted in (0, 1, -1):
        rows = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": wanted}]
        peer.call(
            "offset_for_leader_epoch", 4, replica_id=-1, topics=[{"topic": topic.name, "partitions": rows}]
        )


def by_size(peer: Peer) -> None:
    """Delete whole segments beyond the size limit, and keep the segment that reaches into the limit."""
    topic = filled(peer, range(OLD_MS, OLD_MS + 80, 10))
    size_bytes = len(small_batch(OLD_MS).encode())
    alter(peer, topic, retention_bytes=4 * size_bytes - 1)
    start_reaches(peer, topic, 4 * RECORDS_PER_BATCH)
    look_around(peer, topic, 20, 40)
    size_settles_at(peer, topic, 4)
    alter(peer, topic, retention_bytes=0)
    start_reaches(peer, topic, 8 * RECORDS_PER_BATCH)
    look_around(peer, topic, 40, 40)
    size_settles_at(peer, topic, 0)
    alter(peer, topic, retention_bytes=-1)
    peer.produce(topic, small_batch(YOUNG_MS))
    look_around(peer, topic, 40, 45)


def by_time(peer: Peer) -> None:
    """Delete the old segments before the first young one; then all segments, the active one included."""
    topic = filled(peer, (OLD_MS, OLD_MS + 10, YOUNG_MS, OLD_MS + 20, OLD_MS + 30))
    alter(peer, topic, retention_ms=2 * HOUR_MS)
    start_reaches(peer, topic, 10)
    look_around(peer, topic, 10, 25)
    size_settles_at(peer, topic, 3)
    alter(peer, topic, retention_ms=0)
    start_reaches(peer, topic, 25)
    look_around(peer, topic, 25, 25)
    size_settles_at(peer, topic, 0)
    alter(peer, topic, retention_ms=-1)
    peer.produce(topic, small_batch(OLD_MS))
    look_around(peer, topic, 25, 30)


def of_the_only_segment(peer: Peer) -> None:
    """Delete the only segment: both endpoints roll it first, and an empty segment remains."""
    topic = filled(peer, (OLD_MS,))
    alter(peer, topic, retention_ms=1)
    start_reaches(peer, topic, 5)
    size_settles_at(peer, topic, 0)
    look_around(peer, topic, 5, 5)
    alter(peer, topic, retention_ms=-1)
    producer = peer.call("init_producer_id", 4, transactional_id=None, transaction_timeout=60_000)
    peer.produce(topic, small_batch(YOUNG_MS).of(producer["producer_id"], producer["producer_epoch"], 0))


def of_producers(peer: Peer) -> None:
    """Delete all records of a producer: both endpoints still know the producer's sequence."""
    producer = peer.call("init_producer_id", 4, transactional_id=None, transaction_timeout=60_000)
    topic = filled(peer, ())
    for sequence in (0, 5, 10):
        peer.produce(
            topic, small_batch(OLD_MS).of(producer["producer_id"], producer["producer_epoch"], sequence)
        )
    alter(peer, topic, retention_ms=1)
    start_reaches(peer, topic, 15)
    alter(peer, topic, retention_ms=-1)
    for sequence in (5, 10, 20, 15):
        peer.produce(
            topic, small_batch(OLD_MS).of(producer["producer_id"], producer["producer_epoch"], sequence)
        )


def without_timestamps(peer: Peer) -> None:
    """Let retention use the modification time of a file whose records have no timestamps."""
    topic = filled(peer, ())
    for _ in range(3):
        peer.produce(topic, Batch(records(5, 12), base_timestamp=-1))
    alter(peer, topic, retention_ms=HOUR_MS)
    _another_loses_its_records(peer)
    peer.offsets(topic, -1, -2, -3)
    alter(peer, topic, retention_ms=1)
    start_reaches(peer, topic, 15)
    look_around(peer, topic, 15, 15)


def of_the_future(peer: Peer) -> None:
    """Keep a segment with a timestamp in the future, and all segments behind it."""
    topic = filled(peer, (OLD_MS,), message_timestamp_after_max_ms=2**62)
    peer.produce(topic, small_batch(YOUNG_MS + 24 * HOUR_MS))
    peer.produce(topic, small_batch(OLD_MS))
    alter(peer, topic, retention_ms=HOUR_MS)
    start_reaches(peer, topic, 5)
    _another_loses_its_records(peer)
    look_around(peer, topic, 5, 15)


def without_a_policy(peer: Peer) -> None:
    """Delete nothing by size or time when the topic has no cleanup policy."""
    topic = filled(peer, (OLD_MS, OLD_MS, OLD_MS), cleanup_policy="")
    alter(peer, topic, retention_ms=1, retention_bytes=1)
    _another_loses_its_records(peer)
    look_around(peer, topic, 0, 15)
    delete_records(peer, topic, 10)
    peer.offsets(topic, -2)


def of_deleted_records(peer: Peer) -> None:
    """Send DeleteRecords into the middle of a batch, backwards, beyond the log end, and for all records.

    While a segment with deleted records still exists, Kafka may find no offset for a timestamp
    (docs/retention.md).
    """
    topic = filled(peer, range(OLD_MS, OLD_MS + 50, 10))
    for offset in (12, 3, 26, -2):
        delete_records(peer, topic, offset)
    size_settles_at(peer, topic, 3)
    look_around(peer, topic, 12, 25)
    delete_records(peer, topic, -1)
    size_settles_at(peer, topic, 1)
    look_around(peer, topic, 25, 25)
    delete_records(peer, topic, -1)
    peer.produce(topic, small_batch(YOUNG_MS))
    size_settles_at(peer, topic, 1)
    look_around(peer, topic, 25, 30)


def in_a_fetch_session(peer: Peer) -> None:
    """Delete records under a fetch session: a reader below the new start gets an error, a later reader the
    new start."""
    topic = filled(peer, range(OLD_MS, OLD_MS + 40, 10))
    peer.fetch(topic, 0, version=7, session_epoch=0, max_bytes=1, max_wait=0)
    delete_records(peer, topic, 10)
    peer.fetch(topic, 0, version=7, max_wait=0)
    peer.fetch(topic, 10, version=7, log_start_offset=0, max_wait=0)
    peer.fetch(topic, 20, version=12, max_wait=0)


def _another_loses_its_records(peer: Peer) -> None:
    """Wait until two other topics lost their records, so that retention has also checked the topic of the
    scenario."""
    for round_number in range(2):
        other = filled(peer, (OLD_MS,), f"other{round_number}", retention_ms=1)
        start_reaches(peer, other, RECORDS_PER_BATCH)


RETENTION_SCENARIOS = {
    converse.__name__: Scenario(f"retention.{converse.__name__}", converse)
    for converse in (
        by_size,
        by_time,
        of_the_only_segment,
        of_producers,
        without_timestamps,
        of_the_future,
        without_a_policy,
        of_deleted_records,
        in_a_fetch_session,
    )
}
