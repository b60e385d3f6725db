from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seqgate.gateway.cluster.parts.manifest import Manifest, PartitionKey, PartRef, SegmentRef
from seqgate.gateway.config.cluster import LEADER_SELECTOR, RACK_SELECTOR, SPREADING_SELECTOR
from seqgate.gateway.metadata.records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.topics import read_replicas
from seqgate.gateway.runtime.topics.read_replicas import (
    LEAST_BYTES,
    ReadReplicas,
    Replica,
    ReplicaReader,
    candidates_of,
)
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.gateway.handlers.two_brokers import commit
from tests.support.batches import Batch, records

TOPIC_ID = uuid.UUID(int=9)
KEY = PartitionKey(TOPIC_ID, 0)
RECORDS = 100
REPLICAS = [Replica(1, "a"), Replica(2, "b"), Replica(3, "b"), Replica(4, None)]


@pytest.mark.parametrize(
    ("selector", "rack", "candidates"),
    [
        (LEADER_SELECTOR, "b", []),
        (RACK_SELECTOR, "", []),
        (RACK_SELECTOR, "c", []),
        (RACK_SELECTOR, "a", []),
        (RACK_SELECTOR, "b", [2, 3]),
        (SPREADING_SELECTOR, "", [1, 2, 3, 4]),
        (SPREADING_SELECTOR, "b", [2, 3]),
        (SPREADING_SELECTOR, "c", [1, 2, 3, 4]),
    ],
)
def test_the_candidates(selector: str, rack: str, candidates: list[int]) -> None:
    assert candidates_of(selector, REPLICAS, 1, rack) == candidates


class Scene:
    """Node 1 of three leads a partition, of which a manifest has some records."""

    def __init__(self, node: Node, partition: Partition) -> None:
        self.node = node
        self.partition = partition
        self.now_s = 0.0
        self.manifest: Manifest | None = manifest(end_offset=80, stable_offset=60)

    def replicas(self, selector: str) -> ReadReplicas:
        services = self.node.services
        return ReadReplicas(
            selector,
            1,
            services.topics.metadata_log.image,
            services.node.brokers,
            lambda key: self.manifest if key == KEY else None,
            lambda: self.now_s,
        )


def manifest(*, end_offset: int, stable_offset: int, length: int = LEAST_BYTES) -> Manifest:
    parts = (PartRef("a", 0, length, stable_offset, 0), PartRef("b", length, length, end_offset, 0))
    return Manifest(*KEY, "t", 1, 1, 0, end_offset, (SegmentRef(0, parts),), (), stable_offset=stable_offset)


def reader(host: str = "h", rack: str = "b", *, committed_only: bool = False) -> ReplicaReader:
    return ReplicaReader(host, "client", rack, "PLAINTEXT", committed_only)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with open_node(tmp_path) as node:
        brokers = [
            RegisterBrokerRecord(
                node_id,
                uuid.UUID(int=node_id),
                1,
                (BrokerEndpoint("PLAINTEXT", f"g{node_id}", 9092),),
                rack=rack,
            )
            for node_id, rack in ((1, "a"), (2, "b"), (3, "b"))
        ]
        await commit(
            node,
            *brokers,
            TopicRecord("t", TOPIC_ID),
            PartitionRecord(0, TOPIC_ID, (1, 2, 3), (1, 2, 3), 1, 0),
        )
        partition = node.services.partitions.registry.get("t", 0)
        assert partition is not None
        partition.append(Batch(records(RECORDS), base_timestamp=NOW_MS).encode(), NOW_MS)
        assert await partition.persisted(RECORDS - 1)
        yield Scene(node, partition)


async def test_history_is_read_in_the_rack_and_the_newest_records_at_the_leader(scene: Scene) -> None:
    replicas = scene.replicas(RACK_SELECTOR)
    for offset in (RECORDS, RECORDS - 1, 80, RECORDS + 1):
        assert replicas.instead(scene.partition, offset, reader()) is None
    assert replicas.instead(scene.partition, 0, reader(rack="a")) is None
    assert replicas.instead(scene.partition, 0, reader(rack="")) is None
    assert replicas.instead(scene.partition, 0, reader()) == 2
    assert replicas.instead(scene.partition, 79, reader("h2")) == 3


async def test_little_history_is_read_at_the_leader(scene: Scene) -> None:
    scene.manifest = manifest(end_offset=80, stable_offset=60, length=LEAST_BYTES // 2 - 1)
    assert scene.replicas(RACK_SELECTOR).instead(scene.partition, 0, reader()) is None
    scene.manifest = None
    assert scene.replicas(RACK_SELECTOR).instead(scene.partition, 0, reader()) is None


async def test_committed_records_are_those_below_the_stable_offset(scene: Scene) -> None:
    replicas = scene.replicas(RACK_SELECTOR)
    assert replicas.instead(scene.partition, 60, reader(committed_only=True)) is None
    assert replicas.instead(scene.partition, 59, reader(committed_only=True)) == 2
    scene.manifest = manifest(end_offset=80, stable_offset=-1)
    assert replicas.instead(scene.partition, 0, reader("h2", committed_only=True)) is None


async def test_a_reader_that_comes_back_is_served_for_a_while(scene: Scene) -> None:
    replicas = scene.replicas(RACK_SELECTOR)
    assert replicas.instead(scene.partition, 0, reader()) == 2
    scene.now_s = read_replicas.RETURNED_FOR_S - 0.1
    assert replicas.instead(scene.partition, 10, reader()) is None
    scene.now_s += 0.2
    assert replicas.instead(scene.partition, 10, reader()) == 3


async def test_readers_spread_over_all(scene: Scene) -> None:
    replicas = scene.replicas(SPREADING_SELECTOR)
    chosen = [replicas.instead(scene.partition, 0, reader(f"h{number}", "")) for number in range(6)]
    assert chosen == [None, 2, 3, None, 2, 3]


async def test_a_gateway_that_is_gone_is_not_chosen(scene: Scene) -> None:
    replicas = scene.replicas(SPREADING_SELECTOR)
    await commit(scene.node, BrokerRegistrationChangeRecord(2, 1, fenced=1))
    chosen = [replicas.instead(scene.partition, 0, reader(f"h{number}", "")) for number in range(4)]
    assert chosen == [None, 3, None, 3]


async def test_the_decisions_are_limited(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_replicas, "CLIENTS_KEPT", 2)
    replicas = scene.replicas(RACK_SELECTOR)
    for number in range(3):
        assert replicas.instead(scene.partition, 0, reader(f"h{number}")) is not None
    assert replicas.instead(scene.partition, 0, reader("h2")) is None
    assert replicas.instead(scene.partition, 0, reader("h0")) is not None, "the oldest decision was dropped"
