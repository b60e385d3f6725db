"""No answer and no record of a transaction appears before its decision is durable: a held disk makes
everything wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from seqgate.gateway.metadata.image import TRANSACTION_STATE_TOPIC
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import Node, open_node
from tests.support.held_disk import HeldDisk
from tests.support.transactional_client import PARTITIONS, TOPIC, Client, Outcome, outcomes

SETTINGS = ("transaction.state.log.num.partitions=1",)
PATIENCE_S = 60.0
TURNS = 200
"""Turns of the event loop after which a request that does not wait for the disk is done."""


@pytest.fixture
def disk() -> HeldDisk:
    return HeldDisk()


async def eventually(is_met: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_met():
            await asyncio.sleep(0.001)


async def begun(node: Node) -> Client:
    """Return a client with a record in each partition."""
    await create(node, TOPIC, PARTITIONS)
    await node.services.coordinators.transactions.ensure_topic()
    client = Client(node, "payments")
    await client.begin()
    for partition in range(PARTITIONS):
        await client.write("first", partition)
    return client


def log_end_offsets(node: Node) -> list[int]:
    topic = node.services.partitions.registry.by_name[TOPIC]
    return [topic.get(index).log.log_end_offset for index in range(PARTITIONS)]  # type: ignore[union-attr]


@pytest.mark.parametrize("commit", [True, False])
async def test_an_end_is_answered_and_marked_when_its_decision_is_durable(
    tmp_path: Path, disk: HeldDisk, *, commit: bool
) -> None:
    async with open_node(tmp_path, *SETTINGS, storage=disk) as node:
        client = await begun(node)
        before = log_end_offsets(node)
        with disk.held(TRANSACTION_STATE_TOPIC):
            ending = asyncio.create_task(client.end(commit=commit))
            await eventually(lambda: disk.waiting > 0)
            for _ in range(TURNS):
                await asyncio.sleep(0)
            assert not ending.done()
            assert log_end_offsets(node) == before
        await ending
        await eventually(lambda: log_end_offsets(node) != before)
        expected = Outcome.COMMITTED if commit else Outcome.ABORTED
        await eventually(lambda: outcomes(node) == {"first": [expected] * PARTITIONS})


async def test_a_transaction_is_decided_for_readers_when_its_marker_is_durable(
    tmp_path: Path, disk: HeldDisk
) -> None:
    async with open_node(tmp_path, *SETTINGS, storage=disk) as node:
        client = await begun(node)
        partition = node.services.partitions.registry.get(TOPIC, 0)
        assert partition is not None
        before = partition.log.log_end_offset
        with disk.held(TOPIC):
            ending = asyncio.create_task(client.end(commit=True))
            await eventually(lambda: partition.log.log_end_offset > before)
            for _ in range(TURNS):
                await asyncio.sleep(0)
            assert partition.log.last_stable_offset == 0
        await ending
        await eventually(lambda: partition.log.last_stable_offset == partition.log.log_end_offset)
