from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seqgate.gateway.cluster.bucket_reads import NotConfirmed
from seqgate.gateway.cluster.parts.manifest import PartitionKey
from seqgate.gateway.metadata.records import BrokerRegistrationChangeRecord
from seqgate.gateway.peer.peers import PeerUnavailable
from seqgate.gateway.runtime.topics.read_replicas import LeaderStarts
from tests.gateway.handlers.support import Node
from tests.gateway.handlers.two_brokers import OTHER, TOPIC_ID, commit, node_of_two, partition

LED_HERE, LED_THERE = PartitionKey(TOPIC_ID, 0), PartitionKey(TOPIC_ID, 1)


class Leader:
    """The other gateway; it answers while the gate is open."""

    def __init__(self) -> None:
        self.requests: list[list[tuple[int, int, int]]] = []
        self.errors: dict[int, int] = {}
        self.is_away = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def ask(self, node_id: int, request: Any, *, timeout_s: float = 30.0) -> Any:
        assert node_id == OTHER
        assert timeout_s < 5
        [topic] = request.topics
        rows = [
            (int(row.partition_index), int(row.current_leader_epoch), int(row.timestamp))
            for row in topic.partitions
        ]
        self.requests.append(rows)
        await self.gate.wait()
        if self.is_away:
            raise PeerUnavailable("it is away")
        told = [
            SimpleNamespace(partition_index=index, error_code=self.errors.get(index, 0), offset=100 + index)
            for index, _, _ in rows
        ]
        return SimpleNamespace(topics=[SimpleNamespace(name=topic.name, partitions=told)])


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with node_of_two(tmp_path) as node:
        await commit(node, partition(TOPIC_ID, 2, OTHER, 4))
        yield node


def starts(node: Node, leader: Leader) -> LeaderStarts:
    services = node.services
    return LeaderStarts(services.topics.metadata_log.image, services.node.brokers, leader)


async def test_the_leader_tells_in_its_epoch(node: Node) -> None:
    leader = Leader()
    assert await starts(node, leader).ask(LED_THERE) == 101
    assert leader.requests == [[(1, 7, -2)]]


async def test_what_is_asked_meanwhile_goes_together(node: Node) -> None:
    leader = Leader()
    asked = starts(node, leader)
    leader.gate.clear()
    first = asyncio.ensure_future(asked.ask(LED_THERE))
    while not leader.requests:
        await asyncio.sleep(0)
    more = [asyncio.ensure_future(asked.ask(PartitionKey(TOPIC_ID, index))) for index in (1, 2, 1)]
    await asyncio.sleep(0)
    leader.gate.set()
    assert await first == 101
    assert await asyncio.gather(*more) == [101, 102, 101]
    assert leader.requests[1:] == [[(1, 7, -2), (2, 4, -2)]]


async def test_an_error_and_silence_confirm_nothing(node: Node) -> None:
    leader = Leader()
    asked = starts(node, leader)
    leader.errors[1] = 6
    with pytest.raises(NotConfirmed):
        await asked.ask(LED_THERE)
    leader.is_away = True
    with pytest.raises(NotConfirmed, match="it is away"):
        await asked.ask(LED_THERE)
    leader.is_away = False
    leader.errors.clear()
    assert await asked.ask(LED_THERE) == 101


async def test_nobody_is_asked_where_no_other_gateway_leads(node: Node) -> None:
    leader = Leader()
    asked = starts(node, leader)
    for key in (LED_HERE, PartitionKey(TOPIC_ID, 9), PartitionKey(uuid.UUID(int=1), 0)):
        with pytest.raises(NotConfirmed):
            await asked.ask(key)
    await commit(node, BrokerRegistrationChangeRecord(OTHER, 1, fenced=1))
    with pytest.raises(NotConfirmed):
        await asked.ask(LED_THERE)
    assert not leader.requests
