"""A leader that changes: what a gateway gives up, and what it continues in a new epoch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.metadata.records import TopicRecord
from tests.gateway.handlers.asking import Asking, answer_to
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.gateway.handlers.two_brokers import (
    FENCED_EPOCH,
    NOT_LEADER,
    OFFSETS_ID,
    OTHER,
    PATIENCE_S,
    THIS,
    TOPIC_ID,
    broker,
    commit,
    fetch,
    node_of_two,
    partition,
    produce,
)
from tests.support.batches import Batch, records
from tests.support.held_disk import HeldDisk


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with node_of_two(tmp_path) as node:
        yield node


async def test_a_partition_that_is_given_away_takes_no_more_records(node: Node) -> None:
    assert (await produce(node, 12, 0))[1]["error_code"] == 0
    await commit(node, partition(TOPIC_ID, 0, OTHER, 4))
    _, row = await produce(node, 12, 0)
    assert (row["error_code"], row["current_leader"]) == (NOT_LEADER, {"leader_id": OTHER, "leader_epoch": 4})
    assert (await fetch(node, 16, 0))[1]["error_code"] == NOT_LEADER


async def test_a_repeated_request_is_not_appended_either(node: Node) -> None:
    asking = Asking(node)
    topic_data = [
        {
            "name": "t",
            "partition_data": [{"index": 0, "records": Batch(records(1), base_timestamp=NOW_MS).encode()}],
        }
    ]
    codes = []
    for given in (False, False, True):
        if given:
            await commit(node, partition(TOPIC_ID, 0, OTHER, 4))
        answer = await asking.ask(
            "produce", 9, transactional_id=None, acks=-1, timeout=1000, topic_data=topic_data
        )
        codes.append(answer["responses"][0]["partition_responses"][0]["error_code"])
    assert codes == [0, 0, NOT_LEADER]


async def test_a_fetch_that_waits_is_answered_with_the_new_leader(node: Node) -> None:
    await produce(node, 12, 0)
    partition_fields = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 1,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1000,
    }
    waiting = Asking(node).begin(
        "fetch",
        16,
        max_wait=600_000,
        min_bytes=1,
        max_bytes=1000,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[{"topic_id": str(TOPIC_ID), "partitions": [partition_fields]}],
        forgotten_topics_data=[],
        rack_id="",
    )
    assert waiting.answer is None
    await commit(node, partition(TOPIC_ID, 0, OTHER, 4))
    answer = await answer_to("fetch", 16, waiting)
    row = answer["responses"][0]["partitions"][0]
    assert (row["error_code"], row["current_leader"]["leader_id"]) == (NOT_LEADER, OTHER)


async def test_records_that_wait_for_their_flush_are_acknowledged(tmp_path: Path) -> None:
    disk = HeldDisk()
    async with open_node(tmp_path / "held", storage=disk) as node:
        await commit(
            node, broker(THIS), broker(OTHER), TopicRecord("t", TOPIC_ID), partition(TOPIC_ID, 0, THIS)
        )
        await produce(node, 12, 0)
        with disk.held("t"):
            produced = asyncio.create_task(produce(node, 12, 0))
            async with asyncio.timeout(PATIENCE_S):
                while not disk.waiting:
                    await asyncio.sleep(0)
            # The metadata log would wait for the same round of flushes.
            moved = partition(TOPIC_ID, 0, OTHER, 1)
            node.services.topics.metadata_log.image.replay(moved)
            await node.services.topics.lifecycle.changed([moved])
            assert not produced.done()
        async with asyncio.timeout(PATIENCE_S):
            _, row = await produced
        assert (row["error_code"], row["base_offset"]) == (0, 1)


async def test_a_partition_that_comes_back_continues_in_its_new_epoch(node: Node) -> None:
    await produce(node, 12, 0)
    await commit(node, partition(TOPIC_ID, 0, OTHER, 4))
    await commit(node, partition(TOPIC_ID, 0, THIS, 5))
    _, row = await produce(node, 12, 0)
    assert (row["error_code"], row["base_offset"]) == (0, 1)
    assert (await fetch(node, 16, 0, epoch=3))[1]["error_code"] == FENCED_EPOCH
    assert (await fetch(node, 16, 0, epoch=5))[1]["error_code"] == 0


async def test_a_leader_that_stays_begins_the_new_epoch_at_once(node: Node) -> None:
    await produce(node, 12, 0)
    await commit(node, partition(TOPIC_ID, 0, THIS, 8))
    assert (await fetch(node, 16, 0, epoch=3))[1]["error_code"] == FENCED_EPOCH
    await produce(node, 12, 0)
    found = node.services.partitions.registry.get("t", 0)
    assert found is not None
    assert [found.log.epochs.end_offset(epoch, 2) for epoch in (3, 8)] == [(3, 1), (8, 2)]


async def test_the_first_registration_ends_the_time_alone(tmp_path: Path) -> None:
    async with open_node(tmp_path / "alone") as node:
        await commit(
            node, TopicRecord("t", TOPIC_ID), partition(TOPIC_ID, 0, OTHER), partition(TOPIC_ID, 1, THIS)
        )
        assert [(await produce(node, 12, index))[1]["error_code"] for index in (0, 1)] == [0, 0]
        await commit(node, broker(THIS), broker(OTHER))
        assert [(await produce(node, 12, index))[1]["error_code"] for index in (0, 1)] == [NOT_LEADER, 0]


async def test_a_coordinator_whose_partition_is_given_away_refuses(node: Node) -> None:
    await commit(node, TopicRecord("__consumer_offsets", OFFSETS_ID), partition(OFFSETS_ID, 0, THIS))

    async def beat() -> int:
        answer = await Asking(node).ask(
            "heartbeat", 4, group_id="g", generation_id=1, member_id="m", group_instance_id=None
        )
        return int(answer["error_code"])

    assert await beat() == int(ErrorCode.unknown_member_id)
    await commit(node, partition(OFFSETS_ID, 0, OTHER, 1))
    assert await beat() == int(ErrorCode.not_coordinator)


async def test_groups_of_a_partition_that_was_given_away_are_listed_nowhere_but_there(node: Node) -> None:
    await commit(node, TopicRecord("__consumer_offsets", OFFSETS_ID), partition(OFFSETS_ID, 0, THIS))
    asking = Asking(node)
    listed = {"states_filter": [], "types_filter": []}
    await commit_offset(node, "simple")
    assert [row["group_id"] for row in (await asking.ask("list_groups", 5, **listed))["groups"]] == ["simple"]
    await commit(node, partition(OFFSETS_ID, 0, OTHER, 1))
    assert (await asking.ask("list_groups", 5, **listed))["groups"] == []


async def commit_offset(node: Node, group_id: str) -> None:
    """Commit offset 0 of partition 0 for a group without members."""
    entry = {
        "partition_index": 0,
        "committed_offset": 0,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    answer = await Asking(node).ask(
        "offset_commit",
        8,
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[{"name": "t", "partitions": [entry]}],
    )
    assert answer["topics"][0]["partitions"][0]["error_code"] == 0


async def test_log_directories_have_only_partitions_that_are_led_here(node: Node) -> None:
    answer = await Asking(node).ask("describe_log_dirs", 4, topics=None)
    rows = {row["name"]: row["partitions"] for row in answer["results"][0]["topics"]}
    assert [row["partition_index"] for row in rows["t"]] == [0]
    asked = [{"topic": "t", "partitions": [0, 1]}]
    answer = await Asking(node).ask("describe_log_dirs", 4, topics=asked)
    (topic,) = answer["results"][0]["topics"]
    assert [row["partition_index"] for row in topic["partitions"]] == [0]
    path = answer["results"][0]["log_dir"]
    dirs = [{"path": path, "topics": [{"name": "t", "partitions": [0, 1, 2]}]}]
    moved = await Asking(node).ask("alter_replica_log_dirs", 2, dirs=dirs)
    codes = [row["error_code"] for row in moved["results"][0]["partitions"]]
    assert codes == [0, NOT_LEADER, int(ErrorCode.unknown_topic_or_partition)]
