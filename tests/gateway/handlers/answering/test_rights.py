"""The names in a request are split into those that the client may use and those that are refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.admin import metadata
from seqgate.gateway.handlers.answering.rights import (
    cluster_refusal,
    refused_ids,
    refused_names,
    refused_topics,
)
from seqgate.gateway.security.acls.access import CLUSTER_NAME, Operation, ResourceType
from tests.gateway.handlers.rights import Rights
from tests.gateway.handlers.support import Node, open_node

READ_SEEN = (Operation.READ, ResourceType.TOPIC, "seen")


class Topic(NamedTuple):
    name: str


TOPICS = {b"1": Topic("seen"), b"2": Topic("hidden")}


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path) as opened:
        yield opened


def unread() -> Iterator[str]:
    raise AssertionError("the names were read")
    yield ""


async def test_nothing_is_refused_or_read_without_an_authorizer(node: Node) -> None:
    context = node.context(metadata.API, 13)
    assert not await refused_topics(context, Operation.READ, unread())
    assert not await refused_ids(context, Operation.READ, unread(), {})
    assert cluster_refusal(context, Operation.ALTER) is None


async def test_names_without_the_right_are_refused(node: Node) -> None:
    node.services.node.access = Rights(READ_SEEN)
    context = node.context(metadata.API, 13)
    names = ["seen", "hidden", "hidden", "seen"]
    assert await refused_topics(context, Operation.READ, names) == {"hidden"}
    assert await refused_topics(context, Operation.WRITE, names) == {"hidden", "seen"}
    assert await refused_names(context, Operation.READ, ResourceType.GROUP, ["seen"]) == {"seen"}


async def test_ids_are_refused_by_the_names_of_their_topics_and_unknown_ids_are_not(node: Node) -> None:
    node.services.node.access = Rights(READ_SEEN)
    context = node.context(metadata.API, 13)
    ids = [b"1", b"2", b"3"]
    assert await refused_ids(context, Operation.READ, ids, TOPICS) == {b"2"}


async def test_a_request_without_its_right_on_the_cluster_is_told_the_right(node: Node) -> None:
    node.services.node.access = Rights((Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME))
    context = node.context(metadata.API, 13)
    assert cluster_refusal(context, Operation.DESCRIBE) is None
    refusal = cluster_refusal(context, Operation.ALTER)
    assert refusal is not None
    assert refusal.error_code is ErrorCode.cluster_authorization_failed
    assert refusal.message == "The request needs ALTER on the cluster, which User:ANONYMOUS does not have."
