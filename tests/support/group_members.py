"""Members and offsets of groups of all kinds, for tests that look at groups."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer
from kafka import KafkaConsumer

from tests.support.wire import Wire

PATIENCE_S = 120.0
NO_GENERATION = -1
NOT_READY = frozenset((14, 15, 16))
"""Error codes of a coordinator that reads its groups, that is not there yet, or that has moved."""


def commit_offsets(bootstrap: str, group: str, topic: str, offsets: dict[int, int]) -> None:
    """Commit offsets as a consumer that chooses its partitions itself."""
    with Wire(bootstrap) as wire:
        await_coordinator(wire, group)
        deadline_s = time.monotonic() + PATIENCE_S
        while NOT_READY & set((committed := send_offsets(wire, group, topic, offsets)).values()):
            assert time.monotonic() < deadline_s, f"the coordinator of group {group} is not ready"
    assert committed == dict.fromkeys(offsets, 0), committed


def await_coordinator(wire: Wire, name: str, *, of_transactions: bool = False) -> None:
    """Ask for the coordinator of a group or a transactional id until it has one; the first question creates
    the internal topic.
    """
    asked = {"key_type": int(of_transactions), "coordinator_keys": [name]}
    deadline_s = time.monotonic() + PATIENCE_S
    while wire.call("find_coordinator", 4, asked).fields["coordinators"][0]["error_code"]:
        assert time.monotonic() < deadline_s, f"{name} has no coordinator"


def send_offsets(wire: Wire, group: str, topic: str, offsets: dict[int, int]) -> dict[int, int]:
    """Send OffsetCommit; return the error code of each partition."""
    rows = [
        {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
        for partition, offset in offsets.items()
    ]
    answer = wire.call(
        "offset_commit",
        8,
        group_id=group,
        generation_id_or_member_epoch=NO_GENERATION,
        member_id="",
        topics=[{"name": topic, "partitions": rows}],
    ).fields
    return {row["partition_index"]: row["error_code"] for row in answer["topics"][0]["partitions"]}


@contextmanager
def member(
    bootstrap: str, group: str, topic: str, *, protocol: str = "classic", client_id: str = "reader"
) -> Iterator[Consumer]:
    """Yield a member of a classic or consumer group that has its partitions."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": client_id,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    try:
        deadline_s = time.monotonic() + PATIENCE_S
        while not consumer.assignment():
            assert time.monotonic() < deadline_s, f"group {group} gave its member no partition"
            consumer.poll(0.1)
        yield consumer
    finally:
        consumer.close()


def know_topic(consumer: KafkaConsumer, topic: str) -> None:
    """Let a subscribed consumer of kafka-python learn its topic before it joins its group.

    kafka-python 3.0.12 that joins earlier assigns no partitions, and joins again when it has learned them. If
    a poll's time ends amid that join, its answer is never applied: the consumer polls for ever without any.
    """
    assert consumer.subscription() == {topic}
    assert consumer.partitions_for_topic(topic)


def hold_offset(wire: Wire, transactional_id: str, group: str, topic: str, offset: int) -> dict[str, int]:
    """Send an offset of partition 0 in a transaction that stays open; return its producer."""
    await_coordinator(wire, transactional_id, of_transactions=True)
    await_coordinator(wire, group)
    asked = {"transactional_id": transactional_id, "transaction_timeout": 60_000}
    given = wire.call("init_producer_id", 4, asked).fields
    assert given["error_code"] == 0, given
    producer = {name: given[name] for name in ("producer_id", "producer_epoch")}
    names = {"transactional_id": transactional_id, "group_id": group}
    added = wire.call("add_offsets_to_txn", 3, {**names, **producer}).fields
    assert added["error_code"] == 0, added
    row = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1}
    answer = wire.call(
        "txn_offset_commit",
        3,
        {**names, **producer, "generation_id": NO_GENERATION, "member_id": ""},
        topics=[{"name": topic, "partitions": [row]}],
    ).fields
    assert answer["topics"][0]["partitions"][0]["error_code"] == 0, answer
    return producer


def join_share_group(wire: Wire, group: str, topic: str, member_id: str) -> None:
    """Join a share group; the member stays until its session ends."""
    answer = wire.call(
        "share_group_heartbeat",
        1,
        group_id=group,
        member_id=member_id,
        member_epoch=0,
        subscribed_topic_names=[topic],
    ).fields
    assert answer["error_code"] == 0, answer


def join_streams_group(wire: Wire, group: str, topic: str, member_id: str) -> None:
    """Join a streams group with an application that reads one topic."""
    subtopology = {
        "subtopology_id": "0",
        "source_topics": [topic],
        "source_topic_regex": [],
        "state_changelog_topics": [],
        "repartition_sink_topics": [],
        "repartition_source_topics": [],
        "copartition_groups": [],
    }
    answer = wire.call(
        "streams_group_heartbeat",
        0,
        group_id=group,
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout=1_000,
        topology={"epoch": 0, "subtopologies": [subtopology]},
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="process",
        client_tags=[],
    ).fields
    assert answer["error_code"] == 0, answer


def describe_topology(wire: Wire, group: str, topic: str, member_id: str) -> None:
    """Push the description of a topology that reads one topic and counts into the store `counts`."""
    reads = {"name": "READS", "node_type": 1, "source_topics": [topic], "successors": ["COUNTS"]}
    counts = {"name": "COUNTS", "node_type": 2, "stores": ["counts"]}
    answer = wire.call(
        "streams_group_topology_description_update",
        0,
        group_id=group,
        member_id=member_id,
        topology_epoch=0,
        topology_description={"subtopologies": [{"subtopology_id": "0", "nodes": [reads, counts]}]},
    ).fields
    assert answer["error_code"] == 0, answer
