"""BrokerHeartbeat: a gateway that hears of a change looks for it at once, and an administrator's answer waits
for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.admin import brokers
from seqgate.gateway.handlers.admin.brokers import (
    BROKER_HEARTBEAT_API,
    drain_broker,
    undrain_broker,
    unregister_broker,
)
from seqgate.gateway.metadata.decision import ApiError, Decision
from seqgate.gateway.metadata.membership import end_session
from seqgate.gateway.metadata.records import UnregisterBrokerRecord
from seqgate.gateway.security.acls.access import CLUSTER_NAME, Operation, ResourceType
from tests.gateway.backends.shared_changes import SharedChanges
from tests.gateway.handlers.asking import Asking, HungUp
from tests.gateway.handlers.rights import Rights
from tests.gateway.handlers.several_nodes import Network
from tests.gateway.handlers.support import Node, open_node, versions
from tests.gateway.handlers.two_brokers import OTHER, THIS, broker, partition
from tests.gateway.metadata import clusters
from tests.gateway.metadata.clusters import carry_out
from tests.support.wire import Plain


def is_news(_from: int, _to: int, request: object) -> bool:
    return type(request).__name__ == "BrokerHeartbeatRequest"


KEY = BROKER_HEARTBEAT_API.key
PATIENCE_S = 120.0


class Cluster:
    """Two nodes over one metadata log, at which neither looks by itself."""

    def __init__(self, nodes: dict[int, Node]) -> None:
        self.nodes = nodes
        self.network = Network()
        for node_id, node in nodes.items():
            self.network.join(node_id, node)

    @property
    def here(self) -> Node:
        return self.nodes[THIS]

    @property
    def there(self) -> Node:
        return self.nodes[OTHER]

    async def create(self, name: str) -> None:
        topic = {"name": name, "num_partitions": 2, "replication_factor": 1}
        answer = await Asking(self.here).ask("create_topics", 7, topics=[topic], timeout=30_000)
        assert [row["error_code"] for row in answer["topics"]] == [0]

    def knows(self, node: Node, name: str) -> bool:
        return name in node.services.topics.metadata_log.image.topics_by_name

    async def hear(self, version: int = 1, **fields: object) -> Plain:
        """Return what node 2 answers to a heartbeat of node 1."""
        asked: dict[str, object] = {
            "broker_id": THIS,
            "broker_epoch": 1,
            "current_metadata_offset": self.here.services.topics.metadata_log.last_offset,
            "want_fence": False,
            "want_shut_down": False,
        }
        return await Asking(self.there).ask("broker_heartbeat", version, **{**asked, **fields})


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    shared = SharedChanges()
    async with AsyncExitStack() as opened:
        nodes = {
            node_id: await opened.enter_async_context(
                open_node(tmp_path / str(node_id), f"node.id={node_id}", journal=shared.journal)
            )
            for node_id in (THIS, OTHER)
        }
        cluster = Cluster(nodes)
        registered = Decision((broker(THIS), broker(OTHER)), None)
        await cluster.here.services.topics.metadata_log.commit(lambda _: registered)
        await cluster.there.services.topics.metadata_log.catch_up()
        yield cluster


async def test_a_created_topic_is_usable_at_every_gateway_when_its_creation_is_answered(
    cluster: Cluster,
) -> None:
    await cluster.create("t")
    image = cluster.there.services.topics.metadata_log.image
    led = [index for index, found in image.topics_by_name["t"].partitions.items() if found.leader == OTHER]
    assert led
    assert all(cluster.there.services.partitions.registry.get("t", index) is not None for index in led)


async def test_a_gateway_that_the_news_does_not_reach_delays_no_answer(cluster: Cluster) -> None:
    cluster.network.lose = is_news
    async with asyncio.timeout(PATIENCE_S):
        await cluster.create("t")
    assert not cluster.knows(cluster.there, "t")


@pytest.mark.parametrize("version", versions(BROKER_HEARTBEAT_API))
async def test_the_answer_says_that_the_gateway_has_caught_up(cluster: Cluster, version: int) -> None:
    cluster.network.lose = is_news
    await cluster.create("t")
    answer = await cluster.hear(version)
    assert (answer["error_code"], answer["is_caught_up"], answer["is_fenced"]) == (0, True, False)
    assert not answer["should_shut_down"]
    assert cluster.knows(cluster.there, "t")


async def test_an_offset_that_does_not_come_is_not_waited_for(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brokers, "CATCH_UP_WAIT_S", brokers.CATCH_UP_WAIT_S / 20)
    answer = await cluster.hear(current_metadata_offset=2**40)
    assert (answer["error_code"], answer["is_caught_up"]) == (0, False)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"broker_id": 7}, ErrorCode.broker_id_not_registered),
        ({"broker_epoch": 0}, ErrorCode.stale_broker_epoch),
        ({"want_fence": True}, ErrorCode.invalid_request),
        ({"want_shut_down": True, "broker_id": 7}, ErrorCode.broker_id_not_registered),
        ({"want_shut_down": True, "broker_epoch": 0}, ErrorCode.stale_broker_epoch),
        ({"broker_id": 7, "broker_epoch": -1}, ErrorCode.broker_id_not_registered),
    ],
)
async def test_what_is_refused(cluster: Cluster, fields: dict[str, object], error: ErrorCode) -> None:
    answer = await cluster.hear(**fields)
    assert (answer["error_code"], answer["is_caught_up"]) == (error, False)


async def test_a_gateway_is_drained_until_it_leads_nothing(cluster: Cluster) -> None:
    await cluster.create("t")
    image = cluster.here.services.topics.metadata_log.image
    led = [index for index, found in image.topics_by_name["t"].partitions.items() if found.leader == OTHER]
    drain = {"broker_id": OTHER, "broker_epoch": -1, "want_shut_down": True}
    for _ in range(2):
        answer = await cluster.hear(**drain)
        assert (answer["error_code"], answer["should_shut_down"]) == (0, False)
    assert image.brokers.draining() == [OTHER]
    answer = await cluster.hear(**{**drain, "broker_epoch": -2})
    assert (answer["error_code"], answer["should_shut_down"]) == (0, False)
    moved = [partition(image.topics_by_name["t"].topic_id, index, THIS, 1) for index in led]
    await cluster.here.services.topics.metadata_log.commit(lambda _: Decision(moved, None))
    answer = await cluster.hear(**drain)
    assert (answer["error_code"], answer["should_shut_down"]) == (0, True)
    refused = await cluster.hear(**{**drain, "broker_id": THIS})
    assert refused["error_code"] == ErrorCode.invalid_request  # nobody could lead its partitions
    await cluster.hear(broker_id=OTHER)
    assert image.brokers.draining() == [OTHER], "a heartbeat of the gateway itself takes no drain back"
    undrain = {"broker_id": OTHER, "broker_epoch": -1}
    for _ in range(2):
        answer = await cluster.hear(**undrain)
        assert (answer["error_code"], answer["should_shut_down"]) == (0, False)
        await cluster.here.services.topics.metadata_log.catch_up()
        assert image.brokers.draining() == []
    waiting = await cluster.hear(**{**drain, "broker_epoch": -2})
    assert waiting["error_code"] == ErrorCode.no_reassignment_in_progress
    assert image.brokers.draining() == [], "a command that waits for a drain orders none"


async def test_a_gateway_that_is_unregistered_during_its_drain_is_unknown(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = brokers.change_metadata_until_it_counts

    async def unregisters(context: Any, decide: Any) -> ApiError | None:
        refused = await change(context, decide)
        gone = Decision((UnregisterBrokerRecord(OTHER, 1),), None)
        await cluster.there.services.topics.metadata_log.commit(lambda _: gone)
        return refused

    monkeypatch.setattr(brokers, "change_metadata_until_it_counts", unregisters)
    answer = await cluster.hear(broker_id=OTHER, broker_epoch=-1, want_shut_down=True)
    assert answer["error_code"] == ErrorCode.broker_id_not_registered


async def test_a_client_without_the_right_causes_no_look(cluster: Cluster) -> None:
    cluster.network.lose = is_news
    await cluster.create("t")
    rights = Rights()
    cluster.there.services.node.access = rights
    assert (await cluster.hear())["error_code"] == ErrorCode.cluster_authorization_failed
    assert not cluster.knows(cluster.there, "t")
    rights.allow(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    assert (await cluster.hear())["error_code"] == 0


async def advertised(node: Node) -> list[int]:
    named = {"client_software_name": "x", "client_software_version": "1"}
    answer = await Asking(node).ask("api_versions", 4, **named)
    return [row["api_key"] for row in answer["api_keys"]]


async def test_only_gateways_with_others_name_the_api(cluster: Cluster, tmp_path: Path) -> None:
    assert KEY in await advertised(cluster.here)
    async with open_node(tmp_path / "alone") as alone:
        assert KEY not in await advertised(alone)
        cluster.nodes[OTHER] = alone
        with pytest.raises(HungUp):
            await cluster.hear()


def test_a_drain_is_taken_back_from_a_live_gateway_only() -> None:
    image = clusters.cluster([1, 2, 3])
    carry_out(image, drain_broker(image, 2))
    assert carry_out(image, undrain_broker(image, 2)) is None
    assert image.brokers.draining() == []
    assert undrain_broker(image, 2) == Decision((), None)
    carry_out(image, drain_broker(image, 2))
    carry_out(image, end_session(image, 2, image.brokers.by_id[2].broker_epoch))
    for ended_or_unknown in (2, 7):
        refused = carry_out(image, undrain_broker(image, ended_or_unknown))
        assert refused is not None
        assert refused.error_code is ErrorCode.broker_id_not_registered


def test_the_last_gateway_that_takes_partitions_cant_be_drained() -> None:
    image = clusters.cluster([1, 2])
    assert carry_out(image, drain_broker(image, 1)) is None
    refused = carry_out(image, drain_broker(image, 2))
    assert refused is not None
    assert refused.error_code is ErrorCode.invalid_request
    unknown = carry_out(image, drain_broker(image, 7))
    assert unknown is not None
    assert unknown.error_code is ErrorCode.broker_id_not_registered


@pytest.mark.parametrize("node_id", [1, 7])
def test_a_live_or_unknown_gateway_is_not_unregistered(node_id: int) -> None:
    image = clusters.cluster([1])
    assert carry_out(image, unregister_broker(image, node_id)) is not None
    assert 1 in image.brokers.by_id
