"""OffsetFetch of the group that stands for a producer name, where several gateways lead the partitions of a topic."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from gateway.metadata.image import TOPIC_RESOURCE
from gateway.metadata.records import BrokerRegistrationChangeRecord, ConfigRecord, TopicRecord
from tests.gateway.handlers.groups.test_name_offsets import LOADING, NOT_AVAILABLE, offsets, write
from tests.gateway.handlers.support import Node
from tests.gateway.handlers.two_brokers import OTHER, THIS, TOPIC_ID, partition
from tests.gateway.handlers.two_gateways import Cluster, open_cluster
from tests.support.named_batches import DEDUPLICATED, named

TOPIC = "ledger"
UNSTABLE = int(ErrorCode.unstable_offset_commit)
TRANSACTIONAL = 0x10
VERSIONS = range(1, 11)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Node 1 leads partition 0, node 2 partition 1, both with names; partition 2 has none."""
    async with open_cluster(tmp_path) as cluster:
        await cluster.commit(
            TopicRecord(TOPIC, TOPIC_ID),
            *(ConfigRecord(TOPIC_RESOURCE, TOPIC, name, value) for name, value in DEDUPLICATED.items()),
            partition(TOPIC_ID, 0, THIS),
            partition(TOPIC_ID, 1, OTHER),
            partition(TOPIC_ID, 2, OTHER),
        )
        await write(cluster.here, named("a", 3, 7), 0, TOPIC)
        await write(cluster.there, named("a", 8, 9, epoch=2), 1, TOPIC)
        yield cluster


async def told(node: Node, version: int = 9, **more: object) -> dict[int, int]:
    error, rows = await offsets(node, version, "a", **more)
    assert error == 0
    return {index: offset for (_, index), (offset, _, code) in rows.items() if code == 0}


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_gateway_knows_what_all_leaders_know(cluster: Cluster, version: int) -> None:
    for node in (cluster.here, cluster.there):
        asked = [(TOPIC, [0, 1, 2, 9])]
        assert await told(node, version, topics=asked) == {0: 7, 1: 9, 2: -1, 9: -1}
        if version >= 2:
            assert await told(node, version, topics=None) == {0: 7, 1: 9}


async def test_the_epoch_of_a_name_comes_with_the_offset(cluster: Cluster) -> None:
    rows = [(await offsets(node, 9, "a", topics=None))[1] for node in (cluster.here, cluster.there)]
    assert rows[0] == rows[1]
    assert rows[0][TOPIC, 1][1] == '{"persisted": 9, "epoch": 2}'


async def test_only_the_leaders_that_are_needed_are_asked(cluster: Cluster) -> None:
    assert await told(cluster.here, topics=[(TOPIC, [0])]) == {0: 7}
    assert cluster.asked == []
    assert await told(cluster.here, topics=[(TOPIC, [0, 1])]) == {0: 7, 1: 9}
    assert cluster.asked == [(OTHER, "OffsetFetch")]


async def test_no_answer_lacks_a_partition_whose_leader_is_silent(cluster: Cluster) -> None:
    cluster.silent.add(OTHER)
    for topics in (None, [(TOPIC, [0, 1])]):
        assert await offsets(cluster.here, 9, "a", topics=topics) == (NOT_AVAILABLE, {})
    assert await told(cluster.here, topics=[(TOPIC, [0])]) == {0: 7}


async def test_no_answer_lacks_a_partition_without_a_leader(cluster: Cluster) -> None:
    await cluster.commit(BrokerRegistrationChangeRecord(OTHER, 1, fenced=1))
    for topics in (None, [(TOPIC, [0, 1])]):
        assert await offsets(cluster.here, 9, "a", topics=topics) == (LOADING, {})


async def test_no_answer_lacks_a_partition_that_is_being_taken_over(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway leads the partition, and its records are not here yet."""
    await cluster.commit(partition(TOPIC_ID, 1, THIS, 1))
    lifecycle = cluster.here.services.topics.lifecycle
    monkeypatch.setattr(lifecycle, "leads", lambda _, index: index == 0)
    for topics in (None, [(TOPIC, [0, 1])]):
        assert await offsets(cluster.here, 9, "a", topics=topics) == (LOADING, {})
    assert await told(cluster.here, topics=[(TOPIC, [0, 9])]) == {0: 7, 9: -1}


async def test_a_gateway_that_leads_no_longer_is_not_believed(cluster: Cluster) -> None:
    """The gateway that is asked knows already that the partition has another leader, the one that asks does not."""
    moved = partition(TOPIC_ID, 1, THIS, 1)
    image = cluster.there.services.topics.metadata_log.image
    image.replay(moved)
    assert await offsets(cluster.here, 9, "a", topics=[(TOPIC, [1])]) == (LOADING, {})


async def test_a_sequence_id_that_a_transaction_may_change_is_unstable(cluster: Cluster) -> None:
    batch = replace(
        named("a", 20, epoch=2), producer_id=5, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL
    )
    await write(cluster.there, batch, 1, TOPIC)
    asked = [(TOPIC, [0, 1])]
    _, rows = await offsets(cluster.here, 9, "a", topics=asked, stable=True)
    assert [(rows[TOPIC, index][0], rows[TOPIC, index][2]) for index in (0, 1)] == [(7, 0), (-1, UNSTABLE)]
    assert await told(cluster.here, topics=asked) == {0: 7, 1: 9}
