"""StreamsGroupHeartbeat and StreamsGroupDescribe of a node: tasks, internal topics, and the answers of other
APIs about the group.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.groups import streams_group
from seqgate.gateway.handlers.groups.classic_group import DESCRIBE_GROUPS_API
from seqgate.gateway.handlers.groups.groups import DELETE_GROUPS_API, LIST_GROUPS_API
from seqgate.gateway.protocol.kafka_4_4 import LaterErrorCode
from seqgate.gateway.protocol.messages import build
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import Node, open_node

GROUP = "word-count"
SETTINGS = (
    "offsets.topic.num.partitions=1",
    "group.streams.initial.rebalance.delay.ms=0",
    "group.streams.assignment.interval.ms=0",
)
MISSING_INTERNAL_TOPICS = 3


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path, *SETTINGS) as opened:
        yield opened


def topology(module: ModuleType, *, source: str, changelog_configs: dict[str, str]) -> Any:
    """Return the topology of an application that counts what it reads."""
    changelog = build(
        module.TopicInfo,
        name=f"{GROUP}-counts-changelog",
        partitions=0,
        replication_factor=-1,
        topic_configs=tuple(
            build(module.KeyValue, key=key, value=value) for key, value in changelog_configs.items()
        ),
    )
    subtopology = build(
        module.Subtopology,
        subtopology_id="0",
        source_topics=(source,),
        state_changelog_topics=(changelog,),
        repartition_source_topics=(),
        copartition_groups=(),
    )
    return build(module.Topology, epoch=0, subtopologies=(subtopology,))


async def beat(
    node: Node,
    member_epoch: int,
    *,
    group_id: str = GROUP,
    source: str = "lines",
    configs: dict[str, str] | None = None,
    version: int = 0,
) -> Any:
    def make(module: ModuleType) -> dict[str, Any]:
        is_joining = member_epoch == 0
        wanted = {"cleanup.policy": "compact"} if configs is None else configs
        owned = () if is_joining else None
        return {
            "group_id": group_id,
            "member_id": "m",
            "member_epoch": member_epoch,
            "endpoint_information_epoch": 0,
            "rebalance_timeout": timedelta(milliseconds=1_000 if is_joining else -1),
            "topology": topology(module, source=source, changelog_configs=wanted) if is_joining else None,
            "active_tasks": owned,
            "standby_tasks": owned,
            "warmup_tasks": owned,
            "process_id": "p" if is_joining else None,
            "user_endpoint": build(module.Endpoint, host="here", port=60_000) if is_joining else None,
            "client_tags": (build(module.KeyValue, key="zone", value="a"),) if is_joining else None,
            "task_offsets": None,
            "task_end_offsets": None,
        }

    return await node.ask(streams_group.STREAMS_GROUP_HEARTBEAT_API, version, make)


async def described(node: Node, group_id: str = GROUP, *, version: int = 0, nodes: bool = False) -> Any:
    def make(_: ModuleType) -> dict[str, Any]:
        asked = {"group_ids": (group_id,), "include_authorized_operations": True}
        return asked | ({"include_topology_description": nodes} if version else {})

    return (await node.ask(streams_group.STREAMS_GROUP_DESCRIBE_API, version, make)).groups[0]


async def push(node: Node, *, group_id: str = GROUP, member_id: str = "m", topics: Sequence[str] = ()) -> Any:
    """Push a description with one source, a processor and a global store."""

    def make(module: ModuleType) -> dict[str, Any]:
        def one(name: str, node_type: int, **more: Any) -> Any:
            fields = {"source_topics": (), "sink_topic": None, "stores": (), "successors": ()} | more
            return build(module.TopologyDescriptionNode, name=name, node_type=node_type, **fields)

        source = one("source", 1, source_topics=tuple(topics) or ("lines",), successors=("count",))
        processor = one("count", 2, stores=("counts",))
        part = build(module.TopologyDescriptionSubtopology, subtopology_id="0", nodes=(source, processor))
        store = build(module.TopologyDescriptionGlobalStore, source=source, processor=processor)
        description = build(module.TopologyDescription, subtopologies=(part,), global_stores=(store,))
        return {
            "group_id": group_id,
            "member_id": member_id,
            "topology_epoch": 0,
            "topology_description": description,
        }

    return await node.ask(streams_group.TOPOLOGY_DESCRIPTION_UPDATE_API, 0, make)


async def turns(until: Callable[[], bool]) -> None:
    """Let background work continue until the condition holds."""
    async with asyncio.timeout(60):
        while not until():
            await asyncio.sleep(0)


async def test_tasks_are_assigned_when_the_internal_topics_exist(node: Node) -> None:
    await create(node, "lines", 3)
    answer = await beat(node, 0)
    assert (answer.error_code, answer.member_epoch) == (ErrorCode.none, 2)
    assert answer.heartbeat_interval == timedelta(seconds=5)
    assert [row.status_code for row in answer.status] == [MISSING_INTERNAL_TOPICS]
    assert answer.active_tasks == ()
    changelog = f"{GROUP}-counts-changelog"
    await turns(lambda: changelog in node.services.partitions.registry.by_name)
    assert node.services.topics.metadata_log.image.topic_configs(changelog) == {"cleanup.policy": "compact"}
    answer = await beat(node, 2)
    assert answer.member_epoch == 3
    assert [(row.subtopology_id, row.partitions) for row in answer.active_tasks] == [("0", (0, 1, 2))]
    endpoint = answer.partitions_by_user_endpoint[0]
    assert (endpoint.user_endpoint.host, endpoint.user_endpoint.port) == ("here", 60_000)
    assert [(row.topic, row.partitions) for row in endpoint.active_partitions] == [("lines", (0, 1, 2))]

    group = await described(node)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 3, 3)
    (member,) = group.members
    assert (member.process_id, member.client_id, member.client_host) == ("p", "test", "/127.0.0.1")
    assert member.assignment.active_tasks == member.target_assignment.active_tasks
    (subtopology,) = group.topology.subtopologies
    assert [(topic.name, topic.partitions) for topic in subtopology.state_changelog_topics] == [
        (changelog, 3)
    ]

    answer = await beat(node, -1)
    assert (answer.member_epoch, answer.status, answer.active_tasks) == (-1, (), None)
    assert (await described(node)).group_state == "Empty"


async def test_members_are_told_why_a_topic_can_not_be_created(node: Node) -> None:
    await create(node, "lines", 1)
    await beat(node, 0, configs={"cleanup.policy": "shred"})
    await turns(
        lambda: bool(node.services.coordinators.streams_topics.failures([f"{GROUP}-counts-changelog"]))
    )
    answer = await beat(node, 2)
    (status,) = answer.status
    assert status.status_detail.startswith(
        f"Internal topics are missing: {GROUP}-counts-changelog; Creation failed: {GROUP}-counts-changelog ("
    )
    node.clock.time_ms += 10_000
    assert "Creation failed" not in (await beat(node, 2)).status[0].status_detail, (
        "the old failure must not be reported once the creation is tried again"
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "__consumer_offsets",
            "Use of Kafka internal topics __consumer_offsets in a Kafka Streams topology is prohibited.",
        ),
        ("a b", "Topic names a b are not valid topic names."),
    ],
)
async def test_a_topology_must_name_topics_of_its_own(node: Node, source: str, message: str) -> None:
    answer = await beat(node, 0, source=source)
    assert (answer.error_code, answer.error_message) == (ErrorCode.streams_invalid_topology, message)


async def test_a_refused_heartbeat_says_why(node: Node) -> None:
    answer = await beat(node, 3)
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.group_id_not_found,
        f"Streams group {GROUP} not found.",
    )
    assert answer.status == ()


async def test_other_apis_list_and_describe_the_streams_group(node: Node) -> None:
    await create(node, "lines", 1)
    await beat(node, 0)

    def listing(_: ModuleType) -> dict[str, Any]:
        return {"states_filter": ("not_ready",), "types_filter": ("Streams",)}

    (row,) = (await node.ask(LIST_GROUPS_API, 5, listing)).groups
    assert (row.group_id, row.protocol_type, row.group_state, row.group_type) == (
        GROUP,
        "streams",
        "NotReady",
        "streams",
    )

    def deletion(_: ModuleType) -> dict[str, Any]:
        return {"groups_names": (GROUP,)}

    (result,) = (await node.ask(DELETE_GROUPS_API, 2, deletion)).results
    assert result.error_code is ErrorCode.non_empty_group

    def describing(_: ModuleType) -> dict[str, Any]:
        return {"groups": (GROUP,), "include_authorized_operations": False}

    (group,) = (await node.ask(DESCRIBE_GROUPS_API, 6, describing)).groups
    assert group.error_code is ErrorCode.group_id_not_found


async def test_an_unknown_group_is_not_described(node: Node) -> None:
    await beat(node, 3)
    group = await described(node, "nobody", version=1)
    assert (group.error_code, group.error_message) == (
        ErrorCode.group_id_not_found,
        "Group nobody not found.",
    )
    assert (group.topology, group.assignor_name) == (None, None)


class TestDescriptions:
    """Descriptions of the topology (KIP-1331): asked for, pushed, told, and deleted with the group."""

    async def test_a_description_is_asked_for_once_and_told(self, node: Node) -> None:
        await create(node, "lines", 1)
        assert (await beat(node, 0, version=1)).topology_description_required
        answer = await beat(node, 2, version=1)
        assert not answer.topology_description_required, "the member has been asked"
        assert (answer.acceptable_recovery_lag, answer.task_offset_interval) == (10_000, timedelta(minutes=1))
        group = await described(node, version=1, nodes=True)
        assert (group.topology_description_status, group.topology_description) == (1, None)
        answer = await push(node, topics=("lines", "more", "lines"))
        assert (answer.error_code, answer.error_message) == (ErrorCode.none, None)
        group = await described(node, version=1, nodes=True)
        assert (group.topology_description_status, group.assignor_name) == (3, "sticky")
        (part,), (store,) = group.topology_description.subtopologies, group.topology_description.global_stores
        assert [(found.name, found.node_type, found.stores) for found in part.nodes] == [
            ("source", 1, ()),
            ("count", 2, ("counts",)),
        ]
        assert (store.source.source_topics, store.processor.name) == (("lines", "more"), "count")
        group = await described(node, version=1)
        assert (group.topology_description_status, group.topology_description) == (0, None)

    async def test_a_new_group_begins_without_the_description_of_a_deleted_one(self, node: Node) -> None:
        await create(node, "lines", 1)
        await beat(node, 0, version=1)
        await push(node)
        await beat(node, -1)
        answer = await node.ask(DELETE_GROUPS_API, 2, lambda _: {"groups_names": (GROUP,)})
        assert answer.results[0].error_code is ErrorCode.none
        assert (await beat(node, 0, version=1)).topology_description_required
        assert (await described(node, version=1, nodes=True)).topology_description_status == 1

    async def test_an_old_member_is_not_asked(self, node: Node) -> None:
        await create(node, "lines", 1)
        answer = await beat(node, 0)
        assert (answer.acceptable_recovery_lag, answer.task_offset_interval) == (0, timedelta(minutes=1))
        assert (await beat(node, 2, version=1)).topology_description_required

    async def test_a_stranger_can_describe_nothing(self, node: Node) -> None:
        await beat(node, 3)
        answer = await push(node)
        assert (answer.error_code, answer.error_message) == (
            ErrorCode.group_id_not_found,
            f"Group {GROUP} not found.",
        )
        await create(node, "lines", 1)
        await beat(node, 0)
        answer = await push(node, member_id="x")
        assert answer.error_code is ErrorCode.unknown_member_id
        answer = await push(node, member_id=" ")
        assert (answer.error_code, answer.error_message) == (
            ErrorCode.invalid_request,
            "MemberId can't be empty.",
        )

    async def test_too_large_a_description_is_refused_for_good(self, tmp_path: Path) -> None:
        limit = "seqgate.streams.topology.description.max.bytes=1000"
        async with open_node(tmp_path, *SETTINGS, limit) as node:
            await create(node, "lines", 1)
            await beat(node, 0, version=1)
            answer = await push(node, topics=["t" * 2_000])
            assert answer.error_code == LaterErrorCode.streams_topology_description_update_failed
            assert "at most 1000 are stored" in answer.error_message
            node.clock.time_ms += 3_600_000
            assert not (await beat(node, 0, version=1)).topology_description_required

    async def test_a_gateway_may_store_none(self, tmp_path: Path) -> None:
        limit = "seqgate.streams.topology.description.max.bytes=0"
        async with open_node(tmp_path, *SETTINGS, limit) as node:
            await create(node, "lines", 1)
            assert not (await beat(node, 0, version=1)).topology_description_required
            assert (await push(node)).error_code is ErrorCode.unsupported_version
            assert (await described(node, version=1, nodes=True)).topology_description_status == 1
