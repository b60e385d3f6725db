"""The gateways of a cluster, moves and drains, as a running gateway carries them out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.broker_heartbeat.v0.request import BrokerHeartbeatRequest
from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from seqgate.gateway.admin.cluster.gateways import (
    Drained,
    DrainRequest,
    GatewayRow,
    Gateways,
    GatewaysRequest,
    MovedPartition,
    MoveRequest,
    Undrained,
    UndrainRequest,
    drain_remote,
    gateways_remote,
    move_remote,
    planned_drain,
)
from seqgate.gateway.admin.remote import broker, operations
from seqgate.gateway.admin.remote.broker import BrokerAddress
from seqgate.gateway.admin.remote.cluster import Cluster
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.metadata.records import RemoveTopicRecord
from tests.gateway.admin.answers import answer
from tests.gateway.handlers.asking import Asking
from tests.gateway.handlers.support import open_node
from tests.gateway.handlers.two_brokers import OTHER, THIS, TOPIC_ID, commit, node_of_two, partition
from tests.gateway.handlers.two_brokers import broker as broker_of

ANY, WAITING = -1, -2
"""Epochs in requests of commands."""


async def test_lists_the_gateways(tmp_path: Path) -> None:
    async with node_of_two(tmp_path) as node:
        found = await answer(node, GatewaysRequest())
        assert found.gateways == [
            GatewayRow(THIS, "gateway.example:9092", "r1", "live", 1, 1, 1),
            GatewayRow(OTHER, "other.example:19092", "r2", "live", 1, 1, 1),
        ]
        assert (found.leaderless, found.moving) == (0, 0)


async def test_a_move_waits_until_the_new_leader_leads(tmp_path: Path) -> None:
    async with node_of_two(tmp_path) as node:
        moving = asyncio.create_task(answer(node, MoveRequest("t", 0, OTHER)))
        image = node.services.topics.metadata_log.image
        assert await node.services.topics.waiters.until(
            lambda image: image.topics_by_id[TOPIC_ID].partitions[0].next_leader == OTHER, 30.0
        )
        assert not moving.done()
        assert (await answer(node, GatewaysRequest())).moving == 1
        await commit(node, partition(TOPIC_ID, 0, OTHER, 4))
        assert await moving == MovedPartition("t", 0, OTHER)
        assert image.topics_by_id[TOPIC_ID].partitions[0].next_leader == -1


async def test_a_move_to_the_leader_takes_back_the_move_away_from_it(tmp_path: Path) -> None:
    async with node_of_two(tmp_path) as node:
        await commit(
            node, replace(partition(TOPIC_ID, 0, THIS, 3), replicas=(OTHER, THIS), next_leader=OTHER)
        )
        assert await answer(node, MoveRequest("t", 0, THIS)) == MovedPartition("t", 0, THIS)
        stored = node.services.topics.metadata_log.image.topics_by_id[TOPIC_ID].partitions[0]
        assert (stored.next_leader, stored.replicas) == (-1, (THIS, OTHER))


async def test_a_move_of_a_topic_that_is_deleted_meanwhile_ends_with_a_sentence(tmp_path: Path) -> None:
    async with node_of_two(tmp_path) as node:
        moving = asyncio.create_task(answer(node, MoveRequest("t", 0, OTHER)))
        assert await node.services.topics.waiters.until(
            lambda image: image.topics_by_id[TOPIC_ID].partitions[0].next_leader == OTHER, 30.0
        )
        await commit(node, RemoveTopicRecord(TOPIC_ID))
        with pytest.raises(ControlError, match="the topic t was deleted before its partition moved"):
            await moving


async def test_a_drain_says_what_is_left_and_is_taken_back(tmp_path: Path) -> None:
    async with node_of_two(tmp_path) as node:
        assert await answer(node, DrainRequest(THIS, timeout_ms=1)) == Drained(THIS, 1)
        assert (await answer(node, GatewaysRequest())).gateways[0].state == "draining"
        await commit(node, partition(TOPIC_ID, 0, OTHER, 4))
        assert await answer(node, DrainRequest(THIS)) == Drained(THIS, 0)
        for _ in range(2):
            assert await answer(node, UndrainRequest(THIS)) == Undrained(THIS, 0)
            assert (await answer(node, GatewaysRequest())).gateways[0].state == "live"


async def test_a_drain_that_is_taken_back_meanwhile_ends_with_a_sentence(tmp_path: Path) -> None:
    async with node_of_two(tmp_path) as node:
        draining = asyncio.create_task(answer(node, DrainRequest(THIS, timeout_ms=1_000_000)))
        assert await node.services.topics.waiters.until(lambda image: image.brokers.is_drained(THIS), 60)
        await answer(node, UndrainRequest(THIS))
        with pytest.raises(
            ControlError, match="node 1 is not drained any more: somebody has taken that back"
        ):
            async with asyncio.timeout(60):
                await draining
        assert (await answer(node, GatewaysRequest())).gateways[0].state == "live"


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (MoveRequest("t", 9, OTHER), "there is no partition t-9"),
        (MoveRequest("t", 0, 7), "Broker 7 is not live"),
        (MoveRequest("t", 0, OTHER, timeout_ms=1), "t-0 has not moved in 0 s"),
        (DrainRequest(7), "no live gateway has the node id 7"),
        (UndrainRequest(7), "no live gateway has the node id 7"),
    ],
)
async def test_what_can_not_be_done_is_refused(
    tmp_path: Path, request_: MoveRequest | DrainRequest | UndrainRequest, reason: str
) -> None:
    async with node_of_two(tmp_path) as node:
        with pytest.raises(ControlError, match=reason):
            await answer(node, request_)


async def test_workers_of_a_data_directory_are_not_drained(tmp_path: Path) -> None:
    async with node_of_two(tmp_path) as node:
        await commit(node, *(replace(broker_of(each, 2), cluster_version=0) for each in (THIS, OTHER)))
        listed = await answer(node, GatewaysRequest())
        with pytest.raises(ControlError, match="workers of one data directory are not drained"):
            planned_drain(listed.gateways, THIS)
        with pytest.raises(ControlError, match="workers of one data directory are not drained"):
            await answer(node, DrainRequest(THIS))
        heartbeat = {"broker_id": THIS, "current_metadata_offset": -1, "want_fence": False}
        asked = await Asking(node).ask(
            "broker_heartbeat", 0, **heartbeat, broker_epoch=ANY, want_shut_down=True
        )
        assert asked["error_code"] == int(ErrorCode.policy_violation)
        assert not node.services.topics.metadata_log.image.brokers.draining()


async def test_a_gateway_alone_has_no_cluster(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        with pytest.raises(ControlError, match="serves alone"):
            await answer(node, GatewaysRequest())


@pytest.mark.parametrize(
    ("states", "reason"),
    [
        (["live", "live", "ended"], None),
        (["draining", "live", "ended"], None),
        (["ended", "live", "live"], "no live gateway has the node id 1"),
        (["live", "draining", "ended"], "no other live gateway can take the partitions of node 1"),
    ],
)
def test_the_plan_of_a_drain_refuses_what_the_drain_refuses(states: list[str], reason: str | None) -> None:
    rows = [GatewayRow(node, "h:1", None, state, 1, 4, 4) for node, state in enumerate(states, start=1)]
    if reason is None:
        assert planned_drain(rows, 1) == Drained(1, 4)
    else:
        with pytest.raises(ControlError, match=reason):
            planned_drain(rows, 1)


@pytest.mark.parametrize("is_old", [False, True])
def test_a_command_that_waits_for_a_drain_orders_it_once(*, is_old: bool) -> None:
    """A drain that somebody takes back meanwhile must not begin anew. An older gateway is ordered again."""
    epochs: list[int] = []

    def ask(request: Any) -> Any:
        epochs.append(request.broker_epoch)
        error = 0
        if request.broker_epoch == WAITING:
            error = ErrorCode.stale_broker_epoch if is_old else ErrorCode.no_reassignment_in_progress
        return SimpleNamespace(error_code=error, should_shut_down=len(epochs) > 2)

    cluster: Any = SimpleNamespace(
        reached=SimpleNamespace(shown="host:9092"),
        ask_reached=ask,
        serves=lambda api, _: api == BrokerHeartbeatRequest.__api_key__,
    )
    if is_old:
        assert drain_remote(cluster, DrainRequest(2)) == Drained(2, 0)
        assert epochs == [ANY, WAITING, ANY]
    else:
        with pytest.raises(ControlError, match="node 2 is not drained any more"):
            drain_remote(cluster, DrainRequest(2))
        assert epochs == [ANY, WAITING]


@pytest.mark.parametrize(("version", "replicas"), [(2, (2, 1, 3)), (1, (2, 1, 9))])
def test_a_move_over_the_network_leaves_out_removed_gateways(
    monkeypatch: pytest.MonkeyPatch, version: int, replicas: tuple[int, ...]
) -> None:
    """Before version 2 of DescribeCluster nobody knows whether a broker has ended or was removed."""
    asked: list[Any] = []

    def ask(request: Any, timeout_s: float = 0) -> Any:
        if request.__api_key__ == DescribeClusterRequest.__api_key__:
            brokers = [SimpleNamespace(broker_id=node_id) for node_id in (1, 2, 3)]
            return SimpleNamespace(error_code=0, error_message=None, brokers=brokers)
        asked.append(request)
        return SimpleNamespace(error_code=0, error_message=None, responses=[], replica_election_results=[])

    row = SimpleNamespace(partition_index=0, replica_nodes=[1, 9, 3])
    topics = [SimpleNamespace(name="t", partitions=[row])]
    monkeypatch.setattr(operations, "told_by", lambda *_: Gateways("c", [], 0, 0))
    monkeypatch.setattr(broker, "metadata", lambda *_: SimpleNamespace(topics=topics))
    cluster = cluster_of(DescribeClusterRequest.__api_key__, version)
    monkeypatch.setattr(cluster, "ask_reached", ask)
    assert move_remote(cluster, MoveRequest("t", 0, 2)) == MovedPartition("t", 0, 2)
    assert asked[0].topics[0].partitions[0].replicas == replicas


def test_a_move_over_the_network_to_a_drained_gateway_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would become the preferred replica, although no election makes it the leader."""
    row = SimpleNamespace(partition_index=0, replica_nodes=[THIS, OTHER])
    topics = [SimpleNamespace(name="t", partitions=[row])]
    drained = GatewayRow(OTHER, "other:9092", None, "draining", 1, 0, 0)
    monkeypatch.setattr(broker, "metadata", lambda *_: SimpleNamespace(topics=topics))
    monkeypatch.setattr(operations, "told_by", lambda *_: Gateways("c", [drained], 0, 0))
    cluster: Any = SimpleNamespace(reached=None, leaders=lambda: {("t", 0): THIS})
    with pytest.raises(ControlError, match=f"t-0 can't be moved: node {OTHER} is drained"):
        move_remote(cluster, MoveRequest("t", 0, OTHER))


def test_brokers_of_earlier_releases_list_only_the_live_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apache Kafka before 4.0 has DescribeCluster in version 1, without `is_fenced`."""
    place = SimpleNamespace(broker_id=THIS, host="here", port=9093, rack=None)
    versions: list[int] = []

    def ask(request: Any) -> Any:
        versions.append(request.__version__)
        return SimpleNamespace(error_code=0, error_message=None, cluster_id="c", brokers=[place])

    monkeypatch.setattr(broker, "metadata", lambda *_: SimpleNamespace(topics=[]))
    monkeypatch.setattr(operations, "told_by", lambda *_: Gateways("c", [], 0, None))
    cluster = cluster_of(DescribeClusterRequest.__api_key__, 1)
    monkeypatch.setattr(cluster, "ask_reached", ask)
    (row,) = gateways_remote(cluster, GatewaysRequest()).gateways
    assert (row.state, versions) == ("live", [1])


def cluster_of(api_key: int, version: int) -> Cluster:
    """Return a cluster that serves one API up to this version."""
    return Cluster((), BrokerAddress("h", 1), {api_key: version})


@pytest.mark.parametrize("tells", [True, False])
def test_a_gateway_that_may_be_asked_about_itself_tells_over_the_network_who_is_drained(
    monkeypatch: pytest.MonkeyPatch, *, tells: bool
) -> None:
    """Kafka's answers don't. The addresses are those of the listener that the user asks at."""
    places = [
        SimpleNamespace(broker_id=THIS, host="here", port=9093, rack=None, is_fenced=False),
        SimpleNamespace(broker_id=OTHER, host="there", port=9093, rack=None, is_fenced=True),
    ]
    described = SimpleNamespace(error_code=0, error_message=None, cluster_id="c", brokers=places)
    led = SimpleNamespace(partitions=[SimpleNamespace(leader_id=THIS, replica_nodes=[THIS, OTHER])])
    rows = [
        GatewayRow(THIS, "inner:9092", None, "draining", 4, 1, 1),
        GatewayRow(OTHER, "inner:9092", None, "ended", 3, 0, 0),
    ]

    def told_by(*_: object) -> Gateways:
        if not tells:
            raise ControlError("cluster.gateways over the network needs DESCRIBE on the cluster")
        return Gateways("c", rows, 0, 1)

    monkeypatch.setattr(broker, "metadata", lambda *_: SimpleNamespace(topics=[led]))
    monkeypatch.setattr(operations, "told_by", told_by)
    cluster = cluster_of(DescribeClusterRequest.__api_key__, 2)
    monkeypatch.setattr(cluster, "ask_reached", lambda _: described)
    found = gateways_remote(cluster, GatewaysRequest())
    state, sessions, moving = ("draining", (4, 3), 1) if tells else ("live", (None, None), None)
    assert found.gateways == [
        GatewayRow(THIS, "here:9093", None, state, sessions[0], 1, 1),
        GatewayRow(OTHER, "there:9093", None, "ended", sessions[1], 0, 0),
    ]
    assert found.moving == moving
