"""Commands that ask one gateway of several: the gateway tells what it knows, and what it leaves out."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from seqgate.gateway.admin.backlog import BacklogRequest
from seqgate.gateway.admin.client import ask
from seqgate.gateway.admin.groups.describing import DescribeGroupRequest
from seqgate.gateway.admin.groups.listing import ListGroupsRequest
from seqgate.gateway.admin.groups.reset import ResetOffsetsRequest
from seqgate.gateway.admin.names import NamesRequest
from seqgate.gateway.admin.operations import note_on
from seqgate.gateway.admin.producers import ListProducersRequest
from seqgate.gateway.admin.reopen import ReopenRequest
from seqgate.gateway.admin.request import ControlError, Elsewhere
from seqgate.gateway.admin.server import ControlServer
from seqgate.gateway.admin.status import StatusRequest
from seqgate.gateway.admin.sweep import SweepPage, SweepRequest
from seqgate.gateway.admin.transactions.hanging import AbortHangingRequest, FindHangingRequest
from seqgate.gateway.cli import app
from seqgate.gateway.metadata.image import TOPIC_RESOURCE
from seqgate.gateway.metadata.records import ConfigRecord, TopicRecord
from tests.gateway.admin import test_sweep
from tests.gateway.admin.answers import answer, live
from tests.gateway.handlers.groups.test_name_offsets import write
from tests.gateway.handlers.support import open_node
from tests.gateway.handlers.two_brokers import OTHER, THIS, TOPIC_ID, partition
from tests.gateway.handlers.two_gateways import Cluster, open_cluster
from tests.gateway.runtime.backlog.test_backlog import TOPIC, commit
from tests.support.named_batches import DEDUPLICATED, named

STATE_ID = uuid.UUID(int=9)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Node 1 leads partition 0 of a topic, node 2 partition 1, and node 2 coordinates all groups."""
    async with open_cluster(tmp_path) as cluster:
        await cluster.store_state()
        await cluster.commit(
            TopicRecord(TOPIC, TOPIC_ID),
            *(ConfigRecord(TOPIC_RESOURCE, TOPIC, name, value) for name, value in DEDUPLICATED.items()),
            partition(TOPIC_ID, 0, THIS),
            partition(TOPIC_ID, 1, OTHER),
        )
        await write(cluster.here, named("a", 1), 0, TOPIC)
        await write(cluster.there, named("a", 2), 1, TOPIC)
        await commit(cluster.there, "readers", 0)
        yield cluster


class TestGroups:
    async def test_the_lag_counts_partitions_that_another_gateway_leads(self, cluster: Cluster) -> None:
        (row,) = (await answer(cluster.there, ListGroupsRequest())).groups
        assert (row.group, row.total_lag) == ("readers", 1)
        told = await answer(cluster.there, DescribeGroupRequest("readers"))
        assert [(row.high_watermark, row.lag) for row in told.partitions] == [(1, 1)]

    async def test_a_group_of_another_gateway_is_refused_with_its_coordinator(self, cluster: Cluster) -> None:
        with pytest.raises(ControlError, match="coordinated by broker 2"):
            await answer(cluster.here, DescribeGroupRequest("readers"))

    async def test_offsets_in_a_partition_of_another_gateway_are_not_reset(self, cluster: Cluster) -> None:
        request = ResetOffsetsRequest(group="readers", topics=None, target="latest", value=0, execute=False)
        with pytest.raises(ControlError, match=r"flights-0 is led by broker 1"):
            await answer(cluster.there, request)


class TestPartitions:
    async def test_names_and_producers_are_those_of_the_partitions_that_the_gateway_leads(
        self, cluster: Cluster
    ) -> None:
        page = await answer(cluster.here, NamesRequest(TOPIC))
        assert [(row.partition, row.persisted_sequence) for row in page.names] == [(0, 1)]
        assert page.untold == []
        for request in (NamesRequest(TOPIC, 1), ListProducersRequest(topic=TOPIC, partition=1)):
            with pytest.raises(ControlError, match=r"flights-1 is led by broker 2"):
                await answer(cluster.here, request)

    async def test_the_backlog_of_a_partition_is_told_by_its_leader(self, cluster: Cluster) -> None:
        rows = (await answer(cluster.here, BacklogRequest(TOPIC))).partitions
        assert [(row.partition, row.verdict) for row in rows] == [(0, "open"), (1, "elsewhere")]
        assert [reader.group for reader in rows[0].readers] == ["readers"]


async def test_no_transaction_counts_as_hanging_where_its_coordinator_may_be_elsewhere(
    cluster: Cluster,
) -> None:
    await cluster.commit(TopicRecord("__transaction_state", STATE_ID), partition(STATE_ID, 0, OTHER))
    for request in (
        FindHangingRequest(),
        AbortHangingRequest(topic=TOPIC, partition=0, first_offset=0, execute=True),
    ):
        with pytest.raises(ControlError, match="ask the cluster with --bootstrap"):
            await answer(cluster.here, request)


async def test_partial_answers_have_a_note(cluster: Cluster, tmp_path: Path) -> None:
    for request in (ListGroupsRequest(), SweepRequest()):
        note = note_on(live(cluster.here), request)
        assert note is not None
        assert note.startswith("This is the answer of broker 1, without what 1 other gateway")
    assert note_on(live(cluster.here), StatusRequest()) is None
    async with open_node(tmp_path / "alone") as node:
        assert note_on(live(node), ListGroupsRequest()) is None


async def test_a_command_shows_the_note_once(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = ControlServer(cluster.here.services, tmp_path)
    assert await server.start()
    try:
        for _ in range(2):
            await asyncio.to_thread(ask, tmp_path, ListGroupsRequest())
        with pytest.raises(Elsewhere, match="coordinated by broker 2"):
            await asyncio.to_thread(ask, tmp_path, DescribeGroupRequest("readers"))
        with pytest.raises(Elsewhere, match="led by broker 2"):
            await asyncio.to_thread(ask, tmp_path, ReopenRequest(TOPIC, 1))
    finally:
        await server.stop()
    assert capsys.readouterr().err.count("This is the answer of broker 1") == 1


async def test_a_sweep_asks_all_workers_for_what_is_theirs(cluster: Cluster, tmp_path: Path) -> None:
    await test_sweep.commit(cluster.there, "readers", "gone")
    servers = []
    for node_id, node in cluster.nodes.items():
        directory = node.services.partitions.log_directory
        is_first = node is cluster.here
        directory.share = directory.share._replace(is_whole=False, tells_of="metadata" if is_first else None)
        for index in range(2):
            (directory.path / f"{TOPIC}-{index}").mkdir(exist_ok=True)
            test_sweep.plant(directory.path / f"{TOPIC}-{index}" / f"of-{node_id}.deleted")
        test_sweep.plant(directory.path / "gone-0.0123-delete")
        test_sweep.plant(directory.path / f"of-{node_id}.txt")
        place = tmp_path / "data" / "workers" / str(node_id)
        place.mkdir(parents=True)
        servers.append(ControlServer(node.services, place))
        assert await servers[-1].start()
    arguments = ["sweep", "--json", "--data-dir", str(tmp_path / "data")]
    result = await asyncio.to_thread(CliRunner().invoke, app, arguments)
    for server in servers:
        await server.stop()
    page = msgspec.json.decode(result.stdout, type=SweepPage)
    assert sorted(leak.place for leak in page.leaks) == [
        f"{TOPIC}-0/of-1.deleted",
        f"{TOPIC}-1/of-2.deleted",
        "of-1.txt",
        "readers: gone-0",
    ], "other workers may wait to delete the rest"
    assert (page.total, result.stderr) == (4, ""), "all workers answered"
