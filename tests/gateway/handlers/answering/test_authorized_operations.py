"""The authorized-operations fields have exactly the operations that the client may carry out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.handlers.admin import describe_cluster, describe_topic_partitions
from seqgate.gateway.handlers.groups.classic_group import DESCRIBE_GROUPS_API
from seqgate.gateway.security.acls.access import CLUSTER_NAME, Operation, ResourceType
from tests.gateway.handlers.requests import ask_metadata, create
from tests.gateway.handlers.rights import Rights
from tests.gateway.handlers.support import Node, open_node

NOT_ASKED = -(2**31)
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path) as opened:
        await create(opened, "t", 1)
        await create(opened, "u", 1)
        opened.services.node.access = Rights(
            (Operation.DESCRIBE, TOPIC, "t"),
            (Operation.WRITE, TOPIC, "t"),
            (Operation.DESCRIBE, TOPIC, "u"),
            (Operation.DESCRIBE, TOPIC, "missing"),
            (Operation.ALTER, CLUSTER, CLUSTER_NAME),
            (Operation.DESCRIBE, CLUSTER, CLUSTER_NAME),
            (Operation.CREATE_TOKENS, CLUSTER, CLUSTER_NAME),
            (Operation.DESCRIBE, GROUP, "g"),
            (Operation.WRITE, GROUP, "g"),
        )
        yield opened


def bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


async def test_metadata(node: Node) -> None:
    answer = await ask_metadata(node, ["t", "u", "missing"], version=8, operations=True)
    assert {topic.name: topic.topic_authorized_operations for topic in answer.topics} == {
        "t": bits(Operation.DESCRIBE, Operation.WRITE),
        "u": bits(Operation.DESCRIBE),
        "missing": bits(Operation.DESCRIBE),
    }
    assert answer.cluster_authorized_operations == bits(Operation.ALTER, Operation.DESCRIBE)


async def describe(node: Node) -> Any:
    return await node.ask(
        describe_cluster.API, 1, lambda _: {"include_cluster_authorized_operations": True, "endpoint_type": 1}
    )


async def test_describe_cluster(node: Node) -> None:
    assert (await describe(node)).cluster_authorized_operations == bits(Operation.ALTER, Operation.DESCRIBE)


async def test_a_client_that_may_not_describe_the_cluster_learns_nothing(node: Node) -> None:
    rights = node.services.node.access
    assert isinstance(rights, Rights)
    rights.deny(Operation.DESCRIBE, CLUSTER, CLUSTER_NAME)
    assert (await describe(node)).cluster_authorized_operations == 0


async def test_describe_topic_partitions(node: Node) -> None:
    answer = await node.ask(
        describe_topic_partitions.API,
        0,
        lambda module: {
            "topics": (module.TopicRequest(name="t"), module.TopicRequest(name="missing")),
            "response_partition_limit": 10,
            "cursor": None,
        },
    )
    assert {topic.name: topic.topic_authorized_operations for topic in answer.topics} == {
        "t": bits(Operation.DESCRIBE, Operation.WRITE),
        "missing": bits(Operation.DESCRIBE),
    }


@pytest.mark.parametrize(("asked", "shown"), [(True, bits(Operation.DESCRIBE)), (False, NOT_ASKED)])
async def test_describe_groups(node: Node, monkeypatch: pytest.MonkeyPatch, asked: bool, shown: int) -> None:
    monkeypatch.setattr(node.services.coordinators.groups, "find", lambda _: None)
    answer = await node.ask(
        DESCRIBE_GROUPS_API, 3, lambda _: {"groups": ("g",), "include_authorized_operations": asked}
    )
    assert answer.groups[0].authorized_operations == shown
