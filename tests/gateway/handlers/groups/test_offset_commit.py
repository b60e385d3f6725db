"""OffsetCommit in every version, handled directly and in a task."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import pytest_asyncio
from kio.index import load_payload_module, load_request_schema
from kio.static.constants import EntityType

from gateway.coordinator.group.records import CommittedOffset
from gateway.handlers.answering.api import Deferred, RequestContext
from gateway.handlers.groups import offset_commit
from gateway.protocol.messages import build, encode_response
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import NOW_MS, Node, open_node, versions

API = offset_commit.API
GROUP = "g"
LARGEST_METADATA = 4096


@pytest_asyncio.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path, "offsets.topic.num.partitions=1") as opened:
        await create(opened, "t", 2)
        await opened.services.coordinators.groups.ensure_topic()
        yield opened


def asked(node: Node, version: int, topics: dict[str, dict[int, str]], generation_id: int = -1) -> Any:
    """Return a request to commit offset 5 with metadata, by topic and partition."""
    module: ModuleType = load_payload_module(API.key, version, EntityType.request)
    known = node.services.partitions.registry.by_name
    return build(
        load_request_schema(API.key, version),
        group_id=GROUP,
        generation_id_or_member_epoch=generation_id,
        member_id="",
        group_instance_id=None,
        topics=tuple(
            build(
                module.OffsetCommitRequestTopic,
                name=name,
                topic_id=known[name].topic_id if name in known else uuid.UUID(int=9),
                partitions=tuple(
                    build(
                        module.OffsetCommitRequestPartition,
                        partition_index=index,
                        committed_offset=5,
                        committed_leader_epoch=3,
                        committed_metadata=metadata,
                    )
                    for index, metadata in partitions.items()
                ),
            )
            for name, partitions in topics.items()
        ),
    )


def context(node: Node, version: int) -> RequestContext[Any]:
    return node.context(API, version)


async def begun(node: Node, version: int, request: Any) -> bytes:
    """Return the answer's frame, handled directly."""
    found = offset_commit.begin(context(node, version), request)
    if isinstance(found, Deferred):
        if found.answer is None:
            resolved = asyncio.Event()
            found.when_resolved(resolved.set)
            await resolved.wait()
        assert not found.failed
        found = found.answer
    assert isinstance(found, bytes)
    return found


async def handled(node: Node, version: int, request: Any) -> bytes:
    """Return the answer's frame, handled in a task."""
    response = await offset_commit.handle(context(node, version), request)
    return encode_response(API.key, 7, response)


REQUESTS = {
    "known": {"t": {0: "", 1: "some"}},
    "too long": {"t": {0: "x" * LARGEST_METADATA, 1: "x" * (LARGEST_METADATA + 1)}},
    "unknown too": {"none": {0: ""}, "t": {0: "", 2: ""}},
    "only unknown": {"none": {0: "", 1: ""}},
    "nothing": {},
}


@pytest.mark.parametrize("version", versions(API))
@pytest.mark.parametrize("topics", REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize("generation_id", [-1, 4])
async def test_both_ways_answer_the_same(
    node: Node, version: int, topics: dict[str, dict[int, str]], generation_id: int
) -> None:
    request = asked(node, version, topics, generation_id)
    first = await begun(node, version, request)
    assert first == await handled(node, version, request)
    assert first == await begun(node, version, request), "as the cache has it"


@pytest.mark.parametrize("version", versions(API))
async def test_what_is_committed(node: Node, version: int) -> None:
    await begun(node, version, asked(node, version, {"t": {0: "", 1: "some"}}))
    committed = await node.services.coordinators.groups.read(
        GROUP, lambda shard: dict(shard.offsets.of(GROUP))
    )
    leader_epoch = 3 if version >= offset_commit.FIRST_WITH_LEADER_EPOCH else -1
    assert {place: value._replace(expire_timestamp_ms=-1) for place, value in committed.items()} == {
        ("t", 0): CommittedOffset(5, leader_epoch, "", NOW_MS),
        ("t", 1): CommittedOffset(5, leader_epoch, "some", NOW_MS),
    }


async def test_nothing_is_committed_with_too_long_metadata(node: Node) -> None:
    await begun(node, 9, asked(node, 9, REQUESTS["too long"]))
    committed = await node.services.coordinators.groups.read(
        GROUP, lambda shard: set(shard.offsets.of(GROUP))
    )
    assert committed == {("t", 0)}


async def test_a_coordinator_that_is_not_there(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        await create(node, "t", 1)
        request = asked(node, 9, {"t": {0: ""}})
        frame = await begun(node, 9, request)
        assert frame == await handled(node, 9, request)
        assert b"\x00\x0f" in frame, "COORDINATOR_NOT_AVAILABLE"
