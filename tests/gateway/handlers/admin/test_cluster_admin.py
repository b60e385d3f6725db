"""The APIs that move replicas and leaders, on a node that holds the only replica of each partition."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from seqgate.gateway.handlers.admin import (
    alter_partition_reassignments,
    describe_quorum,
    elect_leaders,
    update_features,
)
from seqgate.gateway.handlers.admin.brokers import UNREGISTER_BROKER_API, UNREGISTER_CONTROLLER_API
from seqgate.gateway.handlers.admin.log_dirs import ALTER_REPLICA_LOG_DIRS_API
from seqgate.gateway.protocol.kafka_4_4 import LaterErrorCode
from tests.gateway.handlers.requests import TIMEOUT, create
from tests.gateway.handlers.support import NOW_MS, Node, open_node, versions


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path) as node:
        await create(node, "t", 2)
        yield node


class TestDescribeQuorum:
    @pytest.mark.parametrize("version", versions(describe_quorum.API))
    async def test_the_quorums_log_end_offset_rises_with_each_change(self, node: Node, version: int) -> None:
        async def end_offset() -> int:
            def make(module: ModuleType) -> dict[str, Any]:
                wanted = module.PartitionData(partition_index=0)
                return {"topics": (module.TopicData(topic_name="__cluster_metadata", partitions=(wanted,)),)}

            response = await node.ask(describe_quorum.API, version, make)
            (topic,) = response.topics
            (partition,) = topic.partitions
            (voter,) = partition.current_voters
            assert (partition.leader_id, voter.replica_id) == (1, 1)
            assert partition.high_watermark == voter.log_end_offset
            if version >= 1:
                assert voter.last_fetch_timestamp == voter.last_caught_up_timestamp == NOW_MS
            if version >= 2:
                (described,) = response.nodes
                (listener,) = described.listeners
                assert (listener.name, listener.host, listener.port) == ("PLAINTEXT", "gateway.example", 9092)
            return int(partition.high_watermark)

        before = await end_offset()
        assert before == node.services.topics.metadata_log.log.log_end_offset
        await create(node, "another", 1)
        assert await end_offset() > before


class TestElectLeaders:
    async def _elect(self, node: Node, kind: int, *indexes: int) -> list[tuple[int, str]]:
        def make(module: ModuleType) -> dict[str, Any]:
            topics = (module.TopicPartitions(topic="t", partitions=indexes),) if indexes else None
            return {"election_type": kind, "topic_partitions": topics, "timeout": TIMEOUT}

        response = await node.ask(elect_leaders.API, 2, make)
        assert response.error_code.name == "none"
        (topic,) = response.replica_election_results
        assert topic.topic == "t"
        return [(row.partition_id, row.error_code.name) for row in topic.partition_result]

    @pytest.mark.parametrize(
        ("kind", "error"), [(0, "preferred_leader_not_available"), (1, "eligible_leaders_not_available")]
    )
    async def test_a_partition_without_a_usable_log_has_no_leader(
        self, node: Node, kind: int, error: str
    ) -> None:
        assert await self._elect(node, kind, 0, 1) == [(0, "election_not_needed"), (1, "election_not_needed")]
        assert await self._elect(node, kind) == []
        node.services.partitions.registry.by_name["t"].failed.add(1)
        assert await self._elect(node, kind, 0, 1) == [(0, "election_not_needed"), (1, error)]
        assert await self._elect(node, kind) == [(1, error)]


class TestReassignments:
    async def test_partitions_can_be_reassigned_to_this_node_only(self, node: Node) -> None:
        def make(module: ModuleType) -> dict[str, Any]:
            rows = tuple(
                module.ReassignablePartition(partition_index=index, replicas=replicas)
                for index, replicas in [(0, (1,)), (0, (1, 2)), (0, None), (2, (1,))]
            )
            topic = module.ReassignableTopic(name="t", partitions=rows)
            return {"timeout": TIMEOUT, "allow_replication_factor_change": True, "topics": (topic,)}

        response = await node.ask(alter_partition_reassignments.ALTER_PARTITION_REASSIGNMENTS_API, 1, make)
        assert [row.error_code.name for row in response.responses[0].partitions] == [
            "none",
            "invalid_replica_assignment",
            "no_reassignment_in_progress",
            "unknown_topic_or_partition",
        ]
        listed = await node.ask(
            alter_partition_reassignments.LIST_PARTITION_REASSIGNMENTS_API,
            0,
            lambda _: {"timeout": TIMEOUT, "topics": None},
        )
        assert (listed.error_code.name, listed.topics) == ("none", ())


@pytest.mark.parametrize("version", versions(ALTER_REPLICA_LOG_DIRS_API))
async def test_a_partition_named_twice_moves_to_the_last_directory(
    node: Node, tmp_path: Path, version: int
) -> None:
    def make(module: ModuleType) -> dict[str, Any]:
        def moves(path: str, *indexes: int) -> Any:
            topic = module.AlterReplicaLogDirTopic(name="t", partitions=indexes)
            return module.AlterReplicaLogDir(path=path, topics=(topic,))

        return {"dirs": (moves("/nowhere", 0, 1), moves(str(tmp_path), 0, 2))}

    response = await node.ask(ALTER_REPLICA_LOG_DIRS_API, version, make)
    (topic,) = response.results
    assert [(row.partition_index, row.error_code.name) for row in topic.partitions] == [
        (0, "none"),
        (1, "log_dir_not_found"),
        (2, "unknown_topic_or_partition"),
    ]


async def test_unregistering_this_broker_is_refused(node: Node) -> None:
    response = await node.ask(UNREGISTER_BROKER_API, 0, lambda _: {"broker_id": 1})
    assert response.error_code.name == "invalid_request"
    assert response.error_message.startswith("Broker ID 1 is this gateway")
    response = await node.ask(UNREGISTER_BROKER_API, 0, lambda _: {"broker_id": 2})
    assert response.error_code.name == "broker_id_not_registered"


async def test_no_controller_is_registered(node: Node) -> None:
    response = await node.ask(UNREGISTER_CONTROLLER_API, 0, lambda _: {"controller_id": 1})
    assert response.error_code == LaterErrorCode.controller_id_not_registered
    assert response.error_message == "Controller ID 1 is not currently registered."


class TestUpdateFeatures:
    async def _update(self, node: Node, *updates: tuple[str, int]) -> Any:
        def make(module: ModuleType) -> dict[str, Any]:
            keys = tuple(
                module.FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=2)
                for feature, level in updates
            )
            return {"timeout": TIMEOUT, "feature_updates": keys, "validate_only": False}

        return await node.ask(update_features.API, 1, make)

    async def test_the_present_feature_levels_are_accepted(self, node: Node) -> None:
        response = await self._update(node, ("group.version", 1), ("transaction.version", 2))
        assert (response.error_code.name, response.error_message) == ("none", None)
        assert [row.feature for row in response.results] == ["group.version", "transaction.version"]

    async def test_one_wrong_feature_level_refuses_all_updates(self, node: Node) -> None:
        response = await self._update(node, ("group.version", 1), ("transaction.version", 1), ("other", 1))
        assert response.error_code.name == "invalid_update_version"
        assert "Seqgate runs this feature at version 2 only" in response.error_message
        assert response.results == ()
