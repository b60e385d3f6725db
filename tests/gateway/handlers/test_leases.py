"""A gateway whose lease is over answers nothing as the latest, until an object of its session is confirmed
again.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.cluster.silence import Lease
from seqgate.gateway.metadata.records import TopicRecord
from tests.gateway.handlers.asking import Asking
from tests.gateway.handlers.support import NOW_MS, Node
from tests.gateway.handlers.two_brokers import (
    NOT_LEADER,
    OFFSETS_ID,
    THIS,
    commit,
    fetch,
    node_of_two,
    partition,
)
from tests.support.batches import Batch, records

NOT_COORDINATOR = int(ErrorCode.not_coordinator)
STATE_ID = UUID(int=77)
NOBODY = {"producer_id": -1, "producer_epoch": -1}


class Log:
    last_confirmed_sent_s = 0.0


def give_lease(node: Node) -> Log:
    """Give the node a lease of one second; return the log that begins it anew."""
    log = Log()
    registry = node.services.partitions.registry
    registry.lease = Lease(log, 1.0, lambda: 0.5)
    return log


def end_lease(log: Log) -> None:
    log.last_confirmed_sent_s = -10.0


async def answers(node: Node) -> dict[str, int]:
    """Return the error of each request that reads the latest state."""
    asking = Asking(node)
    _, fetched = await fetch(node, 12, 0)
    listed = await asking.ask(
        "list_offsets",
        7,
        replica_id=-1,
        isolation_level=0,
        topics=[
            {"name": "t", "partitions": [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]}
        ],
    )
    ended = await asking.ask(
        "offset_for_leader_epoch",
        4,
        replica_id=-1,
        topics=[
            {"topic": "t", "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 3}]}
        ],
    )
    offsets = await asking.ask(
        "offset_fetch",
        8,
        groups=[{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}],
        require_stable=False,
    )
    beat = await asking.ask(
        "heartbeat", 4, group_id="g", generation_id=1, member_id="m", group_instance_id=None
    )
    return {
        "fetch": fetched["error_code"],
        "list_offsets": listed["topics"][0]["partitions"][0]["error_code"],
        "offset_for_leader_epoch": ended["topics"][0]["partitions"][0]["error_code"],
        "offset_fetch": offsets["groups"][0]["error_code"],
        "heartbeat": beat["error_code"],
    }


def test_a_gateway_whose_lease_is_over_answers_nothing_as_the_latest(tmp_path: Path) -> None:
    async def scene() -> None:
        async with node_of_two(tmp_path) as node:
            await commit(node, TopicRecord("__consumer_offsets", OFFSETS_ID), partition(OFFSETS_ID, 0, THIS))
            log = give_lease(node)
            before = await answers(node)
            assert NOT_LEADER not in before.values()
            assert NOT_COORDINATOR not in before.values()
            end_lease(log)
            assert await answers(node) == {
                "fetch": NOT_LEADER,
                "list_offsets": NOT_LEADER,
                "offset_for_leader_epoch": NOT_LEADER,
                "offset_fetch": NOT_COORDINATOR,
                "heartbeat": NOT_COORDINATOR,
            }
            log.last_confirmed_sent_s = 0.0
            assert await answers(node) == before

    asyncio.run(scene())


@pytest.mark.parametrize("version", [1, 3, 7])
def test_no_offset_is_told_as_uncommitted_by_who_may_not_know(tmp_path: Path, version: int) -> None:
    """aiokafka looks only at the errors of partitions, and would read the topic from its start."""

    async def scene() -> None:
        async with node_of_two(tmp_path) as node:
            await commit(node, TopicRecord("__consumer_offsets", OFFSETS_ID), partition(OFFSETS_ID, 0, THIS))
            end_lease(give_lease(node))
            answer = await Asking(node).ask(
                "offset_fetch",
                version,
                group_id="g",
                topics=[{"name": "t", "partition_indexes": [0]}],
                **({"require_stable": False} if version >= 7 else {}),
            )
            assert answer["topics"][0]["partitions"][0]["error_code"] == NOT_COORDINATOR
            assert answer.get("error_code", NOT_COORDINATOR) == NOT_COORDINATOR

    asyncio.run(scene())


def test_it_refuses_no_batch_for_good(tmp_path: Path) -> None:
    """Another gateway may have fenced the producer of the same id, or have the batches that are missing here."""

    async def scene() -> None:
        async with node_of_two(tmp_path) as node:
            log = give_lease(node)
            newer = Batch(records(1), base_timestamp=NOW_MS).of(7, 5, 0)
            assert await produced(node, newer) == 0
            older, gap = newer.of(7, 4, 0), newer.of(7, 5, 9)
            refusals = [int(ErrorCode.invalid_producer_epoch), int(ErrorCode.out_of_order_sequence_number)]
            assert [await produced(node, each) for each in (older, gap)] == refusals
            end_lease(log)
            assert [await produced(node, each) for each in (older, gap)] == [NOT_LEADER, NOT_LEADER]
            assert await produced(node, newer) == 0, "a repeat is stored, whoever leads the partition"

    asyncio.run(scene())


def test_it_coordinates_nothing(tmp_path: Path) -> None:
    async def scene() -> None:
        async with node_of_two(tmp_path) as node:
            await commit(node, TopicRecord("__transaction_state", STATE_ID), partition(STATE_ID, 0, THIS))
            log, asking = give_lease(node), Asking(node)

            async def begun() -> int:
                answer = await asking.ask(
                    "init_producer_id", 4, transactional_id="t", transaction_timeout=1000, **NOBODY
                )
                code: int = answer["error_code"]
                return code

            async def ended() -> int:
                answer = await asking.ask(
                    "end_txn", 4, transactional_id="t", producer_id=99, producer_epoch=0, committed=True
                )
                code: int = answer["error_code"]
                return code

            assert await begun() == 0
            assert await ended() == int(ErrorCode.invalid_producer_id_mapping)
            end_lease(log)
            assert [await begun(), await ended()] == [NOT_COORDINATOR, NOT_COORDINATOR]

    asyncio.run(scene())


async def produced(node: Node, batch: Batch) -> int:
    """Return the error of a batch."""
    rows = [{"index": 0, "records": batch.encode()}]
    answer = await Asking(node).ask(
        "produce", 9, acks=-1, timeout=1000, topic_data=[{"name": "t", "partition_data": rows}]
    )
    code: int = answer["responses"][0]["partition_responses"][0]["error_code"]
    return code


def test_a_gateway_without_a_cluster_has_no_lease(tmp_path: Path) -> None:
    async def scene() -> None:
        async with node_of_two(tmp_path) as node:
            assert node.services.partitions.registry.lease is None
            assert not node.services.partitions.registry.may_be_led_elsewhere

    asyncio.run(scene())
