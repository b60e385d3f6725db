"""The backlogs of a topic in a running gateway, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seqgate.gateway.admin.backlog import (
    ELSEWHERE,
    OPEN,
    UNTOLD,
    BacklogPage,
    BacklogRequest,
    LimitedTopicsRequest,
    PartitionBacklog,
    _code,
    _text,
    _untold,
    joined_backlogs,
)
from seqgate.gateway.admin.printing import print_blocks
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.coordinator.group.records import CommittedOffset, OffsetCommitRecord
from seqgate.log import LogError
from tests.gateway.admin.answers import all_pages, answer
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.log.support import batch

RECORDS = 10
PARTITIONS = 3


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    """A node with a batch of ten records in each partition, and two groups; one group has read the first
    partition.
    """
    async with open_node(tmp_path, "offsets.topic.num.partitions=1") as opened:
        opened.services.upkeep.backlog.start()
        await create(opened, "orders", PARTITIONS, configs={"backlog.quota.bytes": "1000"})
        await opened.services.coordinators.groups.ensure_topic()
        for partition in opened.services.partitions.registry.by_name["orders"].all():
            assert await partition.persisted(partition.append(batch(RECORDS), NOW_MS).last_offset)
        await commit(opened, "slow", 0, 0)
        await commit(opened, "fast", RECORDS)
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


@pytest.mark.parametrize("limit", [1, 3, 4, 100])
async def test_pages_hold_every_partition_once(node: Node, limit: int) -> None:
    pages = await all_pages(node, BacklogRequest("orders", limit=limit))
    rows = [row for page in pages for row in page.partitions]
    size_bytes = len(batch(RECORDS))
    assert [(row.partition, row.backlog_bytes, row.slowest) for row in rows] == [
        (0, size_bytes, "slow"),
        (1, size_bytes, "slow"),
        (2, 0, None),
    ]
    assert [{reader.group: reader.backlog_bytes for reader in row.readers} for row in rows] == [
        {"slow": size_bytes, "fast": 0},
        {"slow": size_bytes},
        {},
    ]
    assert {page.quota_bytes for page in pages} == {1_000}
    assert [page.complete for page in pages] == [False] * (len(pages) - 1) + [True]


async def test_a_page_ends_with_the_partition_that_fills_it(node: Node) -> None:
    page = await answer(node, BacklogRequest("orders", limit=3))
    assert [len(row.readers) for row in page.partitions] == [2]
    page = await answer(node, BacklogRequest("orders", after=0, limit=3))
    assert [row.partition for row in page.partitions] == [1, 2]


async def test_partitions_that_cant_be_measured_have_a_row_with_the_reason(
    node: Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = node.services.partitions.registry.by_name["orders"]
    await commit(node, "slow", 0, 0, 0)
    offline = topic.get(0)
    assert offline is not None
    monkeypatch.setattr(offline.log, "bytes_from", failing)
    peek, get = type(topic).peek, type(topic).get
    monkeypatch.setattr(type(topic), "peek", lambda self, index: None if index == 1 else peek(self, index))
    monkeypatch.setattr(type(topic), "get", lambda self, index: None if index == 1 else get(self, index))
    (found,) = await all_pages(node, BacklogRequest("orders"))
    assert [(row.partition, row.verdict, row.untold) for row in found.partitions] == [
        (0, UNTOLD, "No space left on device"),
        (1, UNTOLD, "it can't be opened"),
        (2, OPEN, None),
    ]
    assert _untold([found]) == [
        "Of orders-0 the backlog is unknown: No space left on device",
        "Of orders-1 the backlog is unknown: it can't be opened",
    ]
    assert (_code([found]), _code([page(1, 0, count=1, complete=True)])) == (1, 0)
    print_blocks(_text(found))
    table = capsys.readouterr().out
    assert (table.count(UNTOLD), table.count("slow*")) == (2, 1)


def failing(_: int) -> int:
    raise LogError("No space left on device")


async def test_the_topics_with_a_limit(node: Node) -> None:
    await create(node, "plain")
    await create(node, "aging", configs={"message.ttl.ms": "1000"})
    assert (await answer(node, LimitedTopicsRequest())).topics == ["aging", "orders"]


async def test_a_topic_that_is_not_there(node: Node) -> None:
    with pytest.raises(ControlError, match="there is no topic gone"):
        await answer(node, BacklogRequest("gone"))


def page(node_id: int, *led: int, count: int, complete: bool) -> BacklogPage:
    """Return the first rows of a gateway that leads some of the partitions."""
    rows = [
        PartitionBacklog("orders", index, verdict=OPEN if index in led else ELSEWHERE, node_id=node_id)
        for index in range(count)
    ]
    return BacklogPage("orders", 1_000, -1, "", -1, 1, 10, rows, complete)


def test_of_several_gateways_each_partition_has_the_row_of_its_leader() -> None:
    found = joined_backlogs([page(1, 0, 3, count=4, complete=True), page(2, 1, count=4, complete=True)])
    rows = [(row.partition, row.verdict, row.node_id) for row in found.partitions]
    assert rows[:2] == [(0, OPEN, 1), (1, OPEN, 2)]
    assert (rows[2][:2], rows[3]) == ((2, ELSEWHERE), (3, OPEN, 1)), "nobody that answers leads the third"
    assert (found.waiting_requests, found.waiting_bytes, found.complete) == (2, 20, True)
    ended = joined_backlogs([page(1, 0, 3, count=4, complete=True), page(2, 1, count=2, complete=False)])
    assert [row.partition for row in ended.partitions] == [0, 1], "the next page begins behind the shortest"
    assert not ended.complete
