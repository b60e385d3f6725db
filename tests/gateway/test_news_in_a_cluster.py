"""Gateways whose next look at the metadata is a minute away learn of each other's changes at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from seqgate.gateway.config import load_config
from seqgate.gateway.gateway import Gateway
from tests.support.wire import Wire

PATIENCE_S = 120.0
NEXT_LOOK_MS = 60_000
TOPIC = "orders"
PARTITIONS = 4


async def started(path: Path, node_id: int) -> Gateway:
    (path / "bucket").mkdir(exist_ok=True)
    gateway = Gateway(
        load_config(
            overrides=[
                f"log.dirs={path / f'cache-{node_id}'}",
                f"node.id={node_id}",
                f"seqgate.cluster=file://{path / 'bucket'}",
                f"seqgate.cluster.metadata.poll.ms={NEXT_LOOK_MS}",
                "listeners=PLAINTEXT://127.0.0.1:0",
            ]
        )
    )
    await gateway.start()
    return gateway


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.01)


@pytest.fixture
async def gateways(tmp_path: Path) -> AsyncIterator[list[Gateway]]:
    """Two gateways; a test takes those out of the list that it stops."""
    running = [await started(tmp_path, 1), await started(tmp_path, 2)]
    try:
        yield running
    finally:
        for gateway in running:
            await gateway.stop()


def leaders_at(bootstrap: str) -> list[int]:
    with Wire(bootstrap, timeout_s=PATIENCE_S) as wire:
        fields = {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": False}
        topic = wire.call("metadata", 9, **fields).fields["topics"][0]
    return [row["leader_id"] for row in topic["partitions"]]


def create(bootstrap: str) -> None:
    with Wire(bootstrap, timeout_s=PATIENCE_S) as wire:
        topic = {"name": TOPIC, "num_partitions": PARTITIONS, "replication_factor": 1}
        wire.call("create_topics", 7, topics=[topic], timeout=10_000)


def served(gateway: Gateway) -> list[int]:
    registry = gateway.services.partitions.registry
    return [index for index in range(PARTITIONS) if registry.get(TOPIC, index) is not None]


async def test_a_topic_is_usable_everywhere_and_a_stop_hands_over_at_once(gateways: list[Gateway]) -> None:
    first, second = gateways
    at_first, at_second = (gateway.services.node.bound["PLAINTEXT"].shown for gateway in gateways)
    await until(lambda: first.services.node.brokers.live_ids == [1, 2])
    await asyncio.to_thread(create, at_first)
    assert sorted(await asyncio.to_thread(leaders_at, at_second)) == [1, 1, 2, 2]
    assert sorted(served(first) + served(second)) == list(range(PARTITIONS))
    gateways.remove(first)
    await first.stop()
    await until(lambda: served(second) == list(range(PARTITIONS)))
    assert await asyncio.to_thread(leaders_at, at_second) == [2] * PARTITIONS
