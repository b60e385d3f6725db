"""Reassignments, elections and the quorum tool where several gateways are live."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from tests.gateway.handlers.asking import Asking
from tests.gateway.handlers.support import Node
from tests.gateway.handlers.two_brokers import OTHER, THIS, TOPIC_ID, broker, commit, node_of_two, partition

TIMEOUT_MS = 30_000
PREFERRED, UNCLEAN = 0, 1


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with node_of_two(tmp_path) as node:
        yield node


async def reassign(node: Node, *wanted: tuple[int, list[int] | None]) -> list[int]:
    rows = [{"partition_index": index, "replicas": replicas} for index, replicas in wanted]
    answer = await Asking(node).ask(
        "alter_partition_reassignments", 0, timeout=TIMEOUT_MS, topics=[{"name": "t", "partitions": rows}]
    )
    return [row["error_code"] for row in answer["responses"][0]["partitions"]]


async def listed(node: Node, topics: Any = None) -> Any:
    answer = await Asking(node).ask("list_partition_reassignments", 0, timeout=TIMEOUT_MS, topics=topics)
    return answer["topics"]


async def election(
    node: Node, *indexes: int, kind: int = PREFERRED, timeout_ms: int = TIMEOUT_MS, every: bool = False
) -> dict[int, tuple[int, str | None]]:
    asked = None if every else [{"topic": "t", "partitions": list(indexes)}]
    answer = await Asking(node).ask(
        "elect_leaders", 2, election_type=kind, topic_partitions=asked, timeout=timeout_ms
    )
    assert answer["error_code"] == 0
    return {
        row["partition_id"]: (row["error_code"], row["error_message"])
        for topic in answer["replica_election_results"]
        for row in topic["partition_result"]
    }


async def elect(
    node: Node, *indexes: int, timeout_ms: int = TIMEOUT_MS, every: bool = False
) -> dict[int, int]:
    rows = await election(node, *indexes, timeout_ms=timeout_ms, every=every)
    return {index: code for index, (code, _) in rows.items()}


async def test_a_reassignment_is_in_progress_until_the_leader_hands_over(node: Node) -> None:
    assert await reassign(node, (0, [OTHER])) == [0]
    expected = [
        {
            "name": "t",
            "partitions": [
                {
                    "partition_index": 0,
                    "replicas": [OTHER, THIS],
                    "adding_replicas": [OTHER],
                    "removing_replicas": [THIS],
                }
            ],
        }
    ]
    assert await listed(node) == expected
    assert await listed(node, [{"name": "t", "partition_indexes": [0, 1]}]) == expected
    assert await listed(node, [{"name": "t", "partition_indexes": [1]}]) == []
    await commit(node, partition(TOPIC_ID, 0, OTHER, 4))
    assert await listed(node) == []


async def test_a_reassignment_is_cancelled(node: Node) -> None:
    assert await reassign(node, (0, [OTHER])) == [0]
    assert await reassign(node, (0, None), (1, None)) == [0, int(ErrorCode.no_reassignment_in_progress)]
    assert await listed(node) == []


async def test_only_live_gateways_are_replicas(node: Node) -> None:
    invalid = int(ErrorCode.invalid_replica_assignment)
    assert await reassign(node, (0, [7]), (0, []), (0, [THIS, OTHER])) == [invalid, invalid, 0]
    image = node.services.topics.metadata_log.image.topics_by_id[TOPIC_ID]
    assert image.partitions[0].replicas == (THIS, OTHER)


async def test_an_election_waits_until_the_preferred_replica_leads(node: Node) -> None:
    await reassign(node, (0, [OTHER, THIS]))
    electing = asyncio.create_task(elect(node, 0, 1))
    assert await node.services.topics.waiters.until(
        lambda image: image.topics_by_id[TOPIC_ID].partitions[0].next_leader == OTHER, 30.0
    )
    assert not electing.done()
    await commit(node, partition(TOPIC_ID, 0, OTHER, 4))
    assert await electing == {0: 0, 1: int(ErrorCode.election_not_needed)}


async def test_the_log_names_what_was_moved(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "seqgate.changes")
    await reassign(node, (0, [OTHER, THIS]), (1, [THIS]))
    await elect(node, 0, timeout_ms=50)
    assert [line.partition(", by ")[0] for line in caplog.messages] == [
        f"reassigned partition t-0 to [{OTHER}, {THIS}], t-1 to [{THIS}]",
        "elected the preferred leader of t-0",
    ]


@pytest.mark.parametrize(
    ("api", "version", "fields", "line"),
    [
        (
            "alter_partition_reassignments",
            0,
            {"topics": [{"name": "t", "partitions": [{"partition_index": 1, "replicas": [THIS]}]}]},
            f"reassigned partition t-1 to [{THIS}]",
        ),
        (
            "elect_leaders",
            2,
            {"election_type": PREFERRED, "topic_partitions": [{"topic": "t", "partitions": [0]}]},
            "elected the preferred leader of t-0",
        ),
    ],
)
async def test_the_log_names_what_was_moved_after_the_client_hung_up(
    node: Node, caplog: pytest.LogCaptureFixture, api: str, version: int, fields: dict[str, Any], line: str
) -> None:
    await reassign(node, (0, [OTHER, THIS]))
    caplog.set_level(logging.INFO, "seqgate.changes")
    client = Asking(node)
    async with node.services.topics.metadata_log._lock:  # the change before it takes its time
        answer = client.begin(api, version, timeout=TIMEOUT_MS, **fields)
        for _ in range(10):
            await asyncio.sleep(0)
        answer.abandon()
        while client.dispatcher.running:
            await asyncio.sleep(0)
        (change,) = node.services.node.tasks
    while change.ended_ms is None:
        await asyncio.sleep(0)
    assert [message.partition(", by ")[0] for message in caplog.messages] == [line]


async def test_an_election_that_takes_too_long_goes_on(node: Node) -> None:
    await reassign(node, (0, [OTHER, THIS]))
    assert await elect(node, 0, timeout_ms=50) == {0: int(ErrorCode.request_timed_out)}
    image = node.services.topics.metadata_log.image.topics_by_id[TOPIC_ID]
    assert image.partitions[0].next_leader == OTHER


async def test_an_election_that_was_not_decided_in_time_is_late_all_the_same(node: Node) -> None:
    await reassign(node, (0, [OTHER, THIS]))
    async with node.services.topics.metadata_log._lock:  # the change before it takes its time
        late = int(ErrorCode.request_timed_out)
        assert await elect(node, 0, timeout_ms=50) == {0: late}
        assert await elect(node, timeout_ms=50, every=True) == {0: late}


async def test_an_election_of_all_topics_names_only_what_was_elected(node: Node) -> None:
    assert await elect(node, every=True) == {}


async def test_an_election_says_which_gateway_is_not_live(node: Node) -> None:
    await reassign(node, (0, [OTHER, THIS]))
    await commit(node, replace(broker(OTHER, 2), fenced=True))
    is_gone = f"Broker {OTHER} is not live."
    no_preferred = int(ErrorCode.preferred_leader_not_available), is_gone
    assert await election(node, 0, 1) == {0: no_preferred, 1: no_preferred}
    assert await election(node, 0, 1, kind=UNCLEAN) == {
        0: (int(ErrorCode.election_not_needed), "Leader election not needed for topic partition."),
        1: (int(ErrorCode.eligible_leaders_not_available), is_gone),
    }


async def test_an_election_moves_nothing_onto_a_drained_gateway(node: Node) -> None:
    await reassign(node, (0, [OTHER, THIS]))
    await commit(node, replace(broker(OTHER, 2), in_controlled_shutdown=True))
    no_preferred = int(ErrorCode.preferred_leader_not_available)
    assert await elect(node, 0, 1) == {0: no_preferred, 1: int(ErrorCode.election_not_needed)}
    assert node.services.topics.metadata_log.image.topics_by_id[TOPIC_ID].partitions[0].next_leader == -1


async def test_the_quorum_has_all_live_gateways(node: Node) -> None:
    topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    answer = await Asking(node).ask("describe_quorum", 2, topics=topics)
    quorum = answer["topics"][0]["partitions"][0]
    assert quorum["leader_id"] == THIS
    assert [voter["replica_id"] for voter in quorum["current_voters"]] == [THIS, OTHER]
    assert {voter["log_end_offset"] for voter in quorum["current_voters"]} == {quorum["high_watermark"]}
    addresses = [(row["node_id"], row["listeners"][0]["host"]) for row in answer["nodes"]]
    assert addresses == [(THIS, "gateway.example"), (OTHER, "other.example")]
