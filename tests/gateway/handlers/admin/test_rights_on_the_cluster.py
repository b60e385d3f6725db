"""The administrative requests that need a right on the cluster are refused without it, as Kafka refuses them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.security.acls.access import CLUSTER_NAME, Operation, ResourceType
from tests.gateway.handlers.asking import Asking
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.rights import Rights
from tests.gateway.handlers.support import Node, open_node

DENIED = 31
ALL_BITS = 8096
METADATA_LOG = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
REASSIGNED = [{"name": "t", "partitions": [{"partition_index": 0, "replicas": None}]}]
REQUESTS: list[tuple[str, list[int], dict[str, Any], Operation]] = [
    ("alter_partition_reassignments", [0, 1], {"timeout": 30_000, "topics": REASSIGNED}, Operation.ALTER),
    (
        "list_partition_reassignments",
        [0],
        {"timeout": 30_000, "topics": [{"name": "t", "partition_indexes": [0]}]},
        Operation.DESCRIBE,
    ),
    ("describe_quorum", [0, 1, 2], {"topics": [METADATA_LOG]}, Operation.DESCRIBE),
    (
        "elect_leaders",
        [1, 2],
        {"timeout": 30_000, "topic_partitions": [{"topic": "t", "partitions": [0]}]},
        Operation.ALTER,
    ),
    ("unregister_broker", [0], {"broker_id": 7}, Operation.ALTER),
    ("unregister_controller", [0], {"controller_id": 7}, Operation.ALTER),
    ("update_features", [0, 1, 2], {"timeout": 30_000, "feature_updates": []}, Operation.ALTER),
    ("list_config_resources", [0, 1], {"resource_types": []}, Operation.DESCRIBE_CONFIGS),
    ("describe_log_dirs", [3, 4], {"topics": None}, Operation.DESCRIBE),
]
"""Each request with its versions, and the right that it needs."""
CALLS = [
    (api, version, fields, operation) for api, all_of, fields, operation in REQUESTS for version in all_of
]


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path) as opened:
        await create(opened, "t")
        yield opened


@pytest.fixture
def rights(node: Node) -> Rights:
    """The rights of every client: none at first."""
    rights = Rights()
    node.services.node.access = rights
    return rights


@pytest.fixture
def client(node: Node) -> Asking:
    return Asking(node)


@pytest.mark.parametrize(("api", "version", "fields", "operation"), CALLS)
async def test_refused_without_the_right_and_answered_with_it(
    rights: Rights, client: Asking, api: str, version: int, fields: dict[str, Any], operation: Operation
) -> None:
    for other in set(Operation) - {operation}:
        rights.allow(other, ResourceType.CLUSTER, CLUSTER_NAME)
        rights.allow(other, ResourceType.TOPIC, "t")
    refused = await client.ask(api, version, **fields)
    assert refused["error_code"] == DENIED
    if refused.get("error_message") is not None:
        assert refused["error_message"] == (
            f"The request needs {operation.name} on the cluster, which User:ANONYMOUS does not have."
        )
    rights.allow(operation, ResourceType.CLUSTER, CLUSTER_NAME)
    assert (await client.ask(api, version, **fields))["error_code"] != DENIED


class TestRefusals:
    """A refusal repeats the names in the request, and reveals nothing about them."""

    async def test_reassignments(self, rights: Rights, client: Asking) -> None:
        named = [{"name": name, "partitions": REASSIGNED[0]["partitions"]} for name in ("t", "none")]
        answer = await client.ask("alter_partition_reassignments", 1, timeout=30_000, topics=named)
        codes = {topic["name"]: topic["partitions"][0]["error_code"] for topic in answer["responses"]}
        assert codes == {"t": DENIED, "none": DENIED}

    async def test_the_right_comes_before_the_time_limit(self, rights: Rights, client: Asking) -> None:
        answer = await client.ask("alter_partition_reassignments", 1, timeout=0, topics=REASSIGNED)
        assert answer["error_code"] == DENIED
        election = {"timeout": 0, "topic_partitions": [{"topic": "t", "partitions": [0]}]}
        assert (await client.ask("elect_leaders", 2, **election))["error_code"] == DENIED

    async def test_listed_reassignments(self, rights: Rights, client: Asking) -> None:
        topics = [{"name": "none", "partition_indexes": [3]}]
        answer = await client.ask("list_partition_reassignments", 0, timeout=30_000, topics=topics)
        assert [(topic["name"], topic["partitions"][0]["partition_index"]) for topic in answer["topics"]] == [
            ("none", 3)
        ]
        answer = await client.ask("list_partition_reassignments", 0, timeout=30_000, topics=None)
        assert (answer["error_code"], answer["topics"]) == (DENIED, [])

    async def test_the_quorum(self, rights: Rights, client: Asking) -> None:
        answer = await client.ask("describe_quorum", 2, topics=[METADATA_LOG])
        assert (answer["topics"], answer["nodes"]) == ([], [])

    async def test_an_election_of_all_or_of_no_topics(self, rights: Rights, client: Asking) -> None:
        for topics in (None, []):
            answer = await client.ask("elect_leaders", 2, timeout=30_000, topic_partitions=topics)
            assert (answer["error_code"], answer["replica_election_results"]) == (DENIED, [])

    async def test_an_election(self, rights: Rights, client: Asking) -> None:
        asked = [{"topic": name, "partitions": [0]} for name in ("t", "none")]
        answer = await client.ask("elect_leaders", 2, timeout=30_000, topic_partitions=asked)
        rows = {row["topic"]: row["partition_result"] for row in answer["replica_election_results"]}
        assert rows["t"] == rows["none"]
        assert [row["error_code"] for row in rows["t"]] == [DENIED]

    async def test_features(self, rights: Rights, client: Asking) -> None:
        wrong = [{"feature": "none", "max_version_level": 1, "upgrade_type": 1}]
        answer = await client.ask("update_features", 1, timeout=30_000, feature_updates=wrong)
        assert (answer["error_code"], answer["results"]) == (DENIED, [])

    async def test_an_unknown_type_of_resource(self, rights: Rights, client: Asking) -> None:
        answer = await client.ask("list_config_resources", 1, resource_types=[99])
        assert (answer["error_code"], answer["config_resources"]) == (DENIED, [])

    async def test_log_directories(self, rights: Rights, client: Asking) -> None:
        for version in (1, 2, 3, 4, 5):
            assert (await client.ask("describe_log_dirs", version, topics=None))["results"] == []

    async def test_moves_to_other_directories(self, node: Node, rights: Rights, client: Asking) -> None:
        moved = [
            {"path": "/nowhere", "topics": [{"name": name, "partitions": [0]} for name in ("t", "none")]}
        ]

        async def codes() -> dict[str, int]:
            answer = await client.ask("alter_replica_log_dirs", 2, dirs=moved)
            return {row["topic_name"]: row["partitions"][0]["error_code"] for row in answer["results"]}

        assert await codes() == {"t": DENIED, "none": DENIED}
        rights.allow(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
        assert set((await codes()).values()).isdisjoint({DENIED})


class TestDescribeCluster:
    @staticmethod
    async def operations(client: Asking, *, asked: bool = True) -> int:
        answer = await client.ask("describe_cluster", 0, include_cluster_authorized_operations=asked)
        assert answer["error_code"] == 0
        assert [broker["broker_id"] for broker in answer["brokers"]] == [1]
        return int(answer["cluster_authorized_operations"])

    async def test_needs_no_right(self, rights: Rights, client: Asking) -> None:
        assert await self.operations(client, asked=False) == -(2**31)
        assert await self.operations(client) == 0

    async def test_operations_need_describe(self, rights: Rights, client: Asking) -> None:
        rights.allow(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
        assert await self.operations(client) == 0
        rights.allow(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
        assert await self.operations(client) == 1 << Operation.ALTER | 1 << Operation.DESCRIBE
