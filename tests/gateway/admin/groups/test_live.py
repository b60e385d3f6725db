"""The groups of a running gateway: lists and descriptions page by page, resets and deletions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seqgate.gateway.admin.groups.deletion import DeleteGroupsRequest
from seqgate.gateway.admin.groups.describing import DescribeGroupRequest
from seqgate.gateway.admin.groups.listing import GroupRow, ListGroupsRequest
from seqgate.gateway.admin.groups.reset import ResetOffsetsRequest, TopicSelection
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.coordinator.group.records import CommittedOffset, OffsetCommitRecord
from tests.gateway.admin.answers import all_pages, answer
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.log.support import batch

RECORDS = 10
PARTITIONS = 5


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    """A node with ten records in each of five partitions."""
    async with open_node(tmp_path, "offsets.topic.num.partitions=3") as opened:
        await create(opened, "orders", PARTITIONS)
        await opened.services.coordinators.groups.ensure_topic()
        for partition in opened.services.partitions.registry.by_name["orders"].all():
            assert await partition.persisted(partition.append(batch(RECORDS), NOW_MS).last_offset)
        yield opened


async def commit(node: Node, group: str, *offsets: int) -> None:
    """Commit offsets in the first partitions."""
    records = [
        OffsetCommitRecord(group, "orders", index, CommittedOffset(offset, -1, "", NOW_MS))
        for index, offset in enumerate(offsets)
    ]
    await node.services.coordinators.groups.run(
        group, lambda shard, effects: shard.commits.commit(records, effects)
    )


class TestList:
    async def test_a_row_tells_state_and_lag(self, node: Node) -> None:
        await commit(node, "billing", 3, 10, 25)
        (page,) = await all_pages(node, ListGroupsRequest())
        assert page.groups == [
            GroupRow(
                group="billing",
                state="Empty",
                type="classic",
                protocol_type="",
                protocol_name=None,
                members=0,
                committed_partitions=3,
                total_lag=7,
            )
        ]

    @pytest.mark.parametrize("limit", [1, 2, 7, 8, 100])
    async def test_pages_hold_every_group_once_and_in_order(self, node: Node, limit: int) -> None:
        names = [f"group-{number}" for number in range(7)]
        for name in reversed(names):
            await commit(node, name, 1)
        pages = await all_pages(node, ListGroupsRequest(limit=limit))
        assert [row.group for page in pages for row in page.groups] == names
        assert all(len(page.groups) <= limit for page in pages)
        assert [page.complete for page in pages] == [False] * (len(pages) - 1) + [True]

    async def test_of_some_states_in_any_case(self, node: Node) -> None:
        await commit(node, "billing", 1)
        assert len((await answer(node, ListGroupsRequest(["empty", "STABLE"]))).groups) == 1
        assert (await answer(node, ListGroupsRequest(["Stable"]))).groups == []
        with pytest.raises(ControlError, match="Busy is not a state of a group; the states are Empty"):
            await answer(node, ListGroupsRequest(["Busy"]))

    async def test_offline_partitions_are_named(self, node: Node) -> None:
        partition = node.services.partitions.registry.get("__consumer_offsets", 2)
        assert partition is not None
        partition.log.go_offline("a test says so")
        assert (await answer(node, ListGroupsRequest())).offline_partitions == [2]


class TestDescribe:
    @pytest.mark.parametrize("limit", [1, 2, 4, 100])
    async def test_pages_hold_every_partition_once(self, node: Node, limit: int) -> None:
        await commit(node, "billing", 1, 2, 3, 4)
        pages = await all_pages(node, DescribeGroupRequest("billing", limit=limit))
        rows = [row for page in pages for row in page.partitions]
        assert [(row.partition, row.committed_offset, row.lag) for row in rows] == [
            (0, 1, 9),
            (1, 2, 8),
            (2, 3, 7),
            (3, 4, 6),
        ]
        assert {(page.group, page.state, page.type) for page in pages} == {("billing", "Empty", "classic")}

    @pytest.mark.parametrize("group", ["nobody", ""])
    async def test_what_is_not_there_is_refused(self, node: Node, group: str) -> None:
        with pytest.raises(ControlError, match=f"^there is no group {group}$"):
            await answer(node, DescribeGroupRequest(group))


class TestReset:
    async def test_only_an_executed_reset_commits(self, node: Node) -> None:
        await commit(node, "billing", 5, 6)
        request = ResetOffsetsRequest("billing", "shift", -2)
        planned = await answer(node, request)
        assert [(change.committed_offset, change.new_offset) for change in planned.changes] == [
            (5, 3),
            (6, 4),
        ]
        assert await answer(node, request) == planned
        done = await answer(node, ResetOffsetsRequest("billing", "shift", -2, execute=True))
        assert (done.executed, done.changes) == (True, planned.changes)
        described = await answer(node, DescribeGroupRequest("billing"))
        assert [row.committed_offset for row in described.partitions] == [3, 4]

    async def test_a_group_that_does_not_exist_is_created(self, node: Node) -> None:
        topics = [TopicSelection("orders", [4, 1])]
        done = await answer(node, ResetOffsetsRequest("fresh", "latest", topics=topics, execute=True))
        assert done.state is None
        assert [(change.partition, change.new_offset) for change in done.changes] == [
            (1, RECORDS),
            (4, RECORDS),
        ]
        assert len((await answer(node, DescribeGroupRequest("fresh"))).partitions) == 2

    @pytest.mark.parametrize(
        ("request_", "words"),
        [
            (ResetOffsetsRequest("g", "earliest"), "group g has no committed offsets; name topics"),
            (ResetOffsetsRequest("g", "earliest", topics=[TopicSelection("gone")]), "there is no topic gone"),
            (
                ResetOffsetsRequest("g", "earliest", topics=[TopicSelection("orders", [0, 9])]),
                "topic orders has no partition 9",
            ),
            (ResetOffsetsRequest("g", "earliest", topics=[]), "the request names no partition"),
            (
                ResetOffsetsRequest("g", "timestamp", -1, [TopicSelection("orders")]),
                "timestamp must be 0 or higher, not -1",
            ),
            (
                ResetOffsetsRequest("g", "shift", 1, [TopicSelection("orders", [0])]),
                "group g has no committed offset in orders-0",
            ),
        ],
    )
    async def test_what_can_not_be_is_refused(
        self, node: Node, request_: ResetOffsetsRequest, words: str
    ) -> None:
        with pytest.raises(ControlError, match=words):
            await answer(node, request_)


class TestDelete:
    async def test_only_an_executed_deletion_deletes(self, node: Node) -> None:
        await commit(node, "billing", 5, 6)
        for execute in (False, True):
            (deletion,) = (await answer(node, DeleteGroupsRequest(["billing"], execute))).groups
            assert (deletion.state, deletion.committed_partitions) == ("Empty", 2)
            assert (deletion.deleted, deletion.refusal) == (execute, None)
        assert (await answer(node, ListGroupsRequest())).groups == []

    async def test_the_group_with_the_empty_name_is_a_group(self, node: Node) -> None:
        await commit(node, "", 5)
        assert [row.group for row in (await answer(node, ListGroupsRequest())).groups] == [""]
        await answer(node, ResetOffsetsRequest("", "shift", -2, execute=True))
        (row,) = (await answer(node, DescribeGroupRequest(""))).partitions
        assert row.committed_offset == 3
        (deletion,) = (await answer(node, DeleteGroupsRequest([""], execute=True))).groups
        assert deletion.deleted

    async def test_one_entry_for_each_group_named(self, node: Node) -> None:
        done = await answer(node, DeleteGroupsRequest(["a", "b", "a"], execute=True))
        assert [(row.group, row.refusal) for row in done.groups] == [
            ("a", "there is no group a"),
            ("b", "there is no group b"),
        ]

    @pytest.mark.parametrize("count", [0, 1_001])
    async def test_a_request_has_a_size(self, node: Node, count: int) -> None:
        with pytest.raises(ControlError, match=f"name 1 to 1000 groups to delete, not {count}"):
            await answer(node, DeleteGroupsRequest(["g"] * count))
