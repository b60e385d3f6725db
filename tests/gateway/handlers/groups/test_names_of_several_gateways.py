"""OffsetFetch of the group that stands for a producer name, where several gateways lead the partitions of a
topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.groups import offset_fetch
from seqgate.gateway.metadata.decision import Decision
from seqgate.gateway.metadata.image import TOPIC_RESOURCE
from seqgate.gateway.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    MetadataRecord,
    TopicRecord,
)
from tests.gateway.handlers.groups.test_name_offsets import LOADING, NOT_AVAILABLE, offsets, write
from tests.gateway.handlers.support import Node
from tests.gateway.handlers.test_leases import give_lease
from tests.gateway.handlers.two_brokers import OTHER, THIS, TOPIC_ID, partition
from tests.gateway.handlers.two_gateways import Cluster, open_cluster
from tests.support.named_batches import DEDUPLICATED, named

TOPIC, NEW, NEW_ID = "ledger", "new", UUID(int=99)
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
    """The gateway that is asked knows already that the partition has another leader, the one that asks does
    not.
    """
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


class Behind:
    """Node 2 lacks a change of the metadata until it looks."""

    def __init__(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self._cluster = cluster
        self._lacks: Sequence[MetadataRecord] = ()
        self.looks = 0
        self.may_end = asyncio.Event()
        self.may_end.set()
        give_lease(cluster.there)
        log = cluster.there.services.topics.metadata_log
        monkeypatch.setattr(log, "catch_up", self._catch_up)
        monkeypatch.setattr(log, "catch_up_soon", lambda: None)  # the news of a change does not reach it

    async def change(self, *records: MetadataRecord) -> None:
        """Change the metadata at node 1."""
        self._lacks = records
        await self._commit(self._cluster.here)

    async def _catch_up(self) -> None:
        self.looks += 1
        await self.may_end.wait()
        await self._commit(self._cluster.there)

    async def _commit(self, node: Node) -> None:
        records = self._lacks
        self._cluster._mirrored.add(id(records))  # the other gateway does not follow
        await node.services.topics.metadata_log.commit(lambda _: Decision(records, None))


@pytest.fixture
def behind(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Behind:
    return Behind(cluster, monkeypatch)


async def create_new(cluster: Cluster, behind: Behind) -> None:
    """Create a topic, and write to it; only node 1 knows it."""
    await behind.change(
        TopicRecord(NEW, NEW_ID),
        *(ConfigRecord(TOPIC_RESOURCE, NEW, name, value) for name, value in DEDUPLICATED.items()),
        partition(NEW_ID, 0, THIS),
    )
    await write(cluster.here, named("a", 1, 4), 0, NEW)


@pytest.mark.parametrize("version", range(2, 10))
@pytest.mark.parametrize("topics", [None, [(NEW, [0])]])
async def test_a_gateway_that_is_behind_reads_the_metadata_before_it_denies_a_name(
    cluster: Cluster, behind: Behind, version: int, topics: list[tuple[str, list[int]]] | None
) -> None:
    await create_new(cluster, behind)
    error, rows = await offsets(cluster.there, version, "a", topics=topics)
    assert (error, rows[NEW, 0][0], behind.looks) == (0, 4, 1)


async def test_a_partition_that_was_added_and_a_topic_that_begins_to_track_names(
    cluster: Cluster, behind: Behind
) -> None:
    await behind.change(partition(TOPIC_ID, 3, THIS))
    await write(cluster.here, named("a", 1, 5), 3, TOPIC)
    assert await told(cluster.there, topics=[(TOPIC, [3])]) == {3: 5}
    await behind.change(TopicRecord(NEW, NEW_ID), partition(NEW_ID, 0, THIS))
    await behind._catch_up()
    await behind.change(
        *(ConfigRecord(TOPIC_RESOURCE, NEW, name, value) for name, value in DEDUPLICATED.items())
    )
    await write(cluster.here, named("a", 1, 6), 0, NEW)
    assert await told(cluster.there, topics=[(NEW, [0])]) == {0: 6}


async def test_partitions_whose_leader_is_known_need_no_look(cluster: Cluster, behind: Behind) -> None:
    assert await told(cluster.there, topics=[(TOPIC, [0, 1, 2])]) == {0: 7, 1: 9, 2: -1}
    assert behind.looks == 0


async def test_a_leader_that_is_behind_is_not_believed(cluster: Cluster, behind: Behind) -> None:
    """Node 2 leads a partition, and has not heard of it."""
    await behind.change(partition(TOPIC_ID, 0, OTHER, 1))
    for topics in (None, [(TOPIC, [0])]):
        assert await offsets(cluster.here, 9, "a", topics=topics) == (LOADING, {})


async def test_a_name_is_not_denied_while_the_metadata_can_not_be_read(
    cluster: Cluster, behind: Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_fetch, "REQUEST_S", 0.01)
    await create_new(cluster, behind)
    behind.may_end.clear()
    for topics in (None, [(NEW, [0])]):
        assert await offsets(cluster.there, 9, "a", topics=topics) == (LOADING, {})
