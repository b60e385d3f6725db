"""The producer names of a node, page by page; a page opens and replays the logs that it needs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seqgate.gateway.admin import names
from seqgate.gateway.admin.names import (
    NameCounters,
    NamePage,
    NameRow,
    NamesRequest,
    Position,
    UntoldPartition,
    joined_names,
    name_row,
)
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.runtime.upkeep import name_keeping
from seqgate.seq_validator.names import NameState
from tests.gateway.admin.answers import all_pages, answer
from tests.gateway.handlers.groups.test_name_offsets import append, be_behind, partition_of, write
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.support.named_batches import DEDUPLICATED, named

TOPIC, PLAIN_TOPIC = "ledger", "plain"


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path) as opened:
        await create(opened, TOPIC, 3, configs=dict(DEDUPLICATED))
        await create(opened, "a-ledger", configs=dict(DEDUPLICATED))
        await create(opened, PLAIN_TOPIC)
        yield opened


async def told(node: Node, request: NamesRequest) -> list[tuple[str, int, bytes, int]]:
    pages = await all_pages(node, request)
    assert all(len(page.names) <= request.limit for page in pages)
    return [
        (row.topic, row.partition, row.name_base64, row.persisted_sequence)
        for page in pages
        for row in page.names
    ]


async def test_a_row_tells_all_that_is_remembered(node: Node) -> None:
    await write(node, named("Köln", 3, 9, epoch=4), 1)
    node.clock.time_ms += 5_000
    append(partition_of(node, 1), named("Köln", 10, epoch=4))
    (page,) = await all_pages(node, NamesRequest())
    assert page.names == [
        NameRow(
            topic=TOPIC,
            partition=1,
            name="Köln",
            name_base64="Köln".encode(),
            persisted_sequence=9,
            pushed_sequence=10,
            epoch=4,
            last_active_ms=NOW_MS,
            age_ms=5_000,
            is_pending=False,
            dropped_records=0,
            node_id=1,
        )
    ]
    assert page.untold == []


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_pages_hold_every_name_once_and_in_order(node: Node, limit: int) -> None:
    await write(node, named("x", 1), topic="a-ledger")
    for index, name, sequence_id in [(0, b"b", 7), (0, b"a", 8), (0, b"\xff\x00", 9), (2, b"a", 1)]:
        await write(node, named(name, sequence_id), index)
    assert await told(node, NamesRequest(limit=limit)) == [
        ("a-ledger", 0, b"x", 1),
        (TOPIC, 0, b"a", 8),
        (TOPIC, 0, b"b", 7),
        (TOPIC, 0, b"\xff\x00", 9),
        (TOPIC, 2, b"a", 1),
    ]
    assert await told(node, NamesRequest(TOPIC, name=b"a", limit=limit)) == [
        (TOPIC, 0, b"a", 8),
        (TOPIC, 2, b"a", 1),
    ]
    assert await told(node, NamesRequest(TOPIC, 2, limit=limit)) == [(TOPIC, 2, b"a", 1)]


async def test_long_names_make_short_pages(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "PAGE_NAME_BYTES", 150)
    for number in range(4):
        await write(node, named(b"%d" % number * 100, number))
    pages = await all_pages(node, NamesRequest())
    assert [len(page.names) for page in pages] == [1, 1, 1, 1]


async def test_what_is_not_read_yet_is_read_before_it_is_told(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    await be_behind(node)
    monkeypatch.setattr(name_keeping, "REPLAY_BYTES", 1)
    assert await told(node, NamesRequest(PLAIN_TOPIC)) == [(PLAIN_TOPIC, 0, b"a", 4)]


async def test_a_page_that_takes_long_goes_on_with_the_next(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(node, named("a", 1), 2)
    monkeypatch.setattr(names, "PAGE_S", -1.0)
    begin = (TOPIC, 2, b"0")
    page = await answer(node, NamesRequest(begin=begin))
    assert (page.names, page.next) == ([], begin)


async def test_partitions_that_are_not_open_are_opened(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        await create(node, TOPIC, 3, configs=dict(DEDUPLICATED))
        await write(node, named("a", 3), 1)
    async with open_node(tmp_path) as node:
        assert await told(node, NamesRequest()) == [(TOPIC, 1, b"a", 3)]
        assert [
            partition.index for partition in node.services.partitions.registry.by_name[TOPIC].opened()
        ] == [1]


async def test_a_partition_that_is_offline_is_told_of(node: Node) -> None:
    await write(node, named("a", 3))
    await write(node, named("b", 3), 1)
    partition_of(node).log.offline_because = "No space left on device"
    (page,) = await all_pages(node, NamesRequest())
    assert [row.name for row in page.names] == ["b"]
    assert [(row.topic, row.partition, row.reason) for row in page.untold] == [
        (TOPIC, 0, "No space left on device")
    ]


async def test_what_became_of_records_and_names_is_counted(node: Node) -> None:
    budget = node.services.partitions.log_directory.environment.name_budget
    await write(node, named("a", 3, 4, 5))
    append(partition_of(node), named("a", 4, 5))
    await write(node, named("a", 5, 6))
    budget.evictions, budget.expired, budget.refusals = 4, 5, 6
    (page,) = await all_pages(node, NamesRequest())
    counters = page.counters
    assert counters is not None
    assert (counters.remembered, counters.dropped_records) == (1, 3)
    assert [row.dropped_records for row in page.names] == [3]
    assert (counters.evicted, counters.expired, counters.refused) == (4, 5, 6)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (NamesRequest("nowhere"), "no topic nowhere"),
        (NamesRequest(PLAIN_TOPIC), "message.deduplication.enable is false"),
        (NamesRequest(TOPIC, 3), "no partition 3"),
        (NamesRequest(limit=0), "limit must be between 1 and 10000, not 0"),
    ],
)
async def test_what_is_not_there_is_refused(node: Node, request_: NamesRequest, words: str) -> None:
    with pytest.raises(ControlError, match=words):
        await answer(node, request_)


# The pages of several gateways as one.


def page_of(node_id: int, end: Position | None, *names: tuple[int, bytes]) -> NamePage:
    """Return a page that a gateway gives of the partitions that it leads."""
    rows = [
        name_row(TOPIC, partition, NameState(name, 1, 1, -1, 0, NOW_MS, False), NOW_MS, node_id)
        for partition, name in names
    ]
    return NamePage(rows, [UntoldPartition(TOPIC, 4 + node_id, "lost")], NameCounters(3, 1, 0, 0, 0), end)


def test_a_page_of_several_gateways_ends_where_the_first_of_them_ends() -> None:
    one = page_of(1, (TOPIC, 2, b"d"), (0, b"a"), (2, b"c"), (2, b"d"))
    other = page_of(2, None, (1, b"b"), (3, b"e"))
    found = joined_names([one, other], 10)
    assert [(row.name_base64, row.node_id) for row in found.names] == [
        (b"a", 1),
        (b"b", 2),
        (b"c", 1),
        (b"d", 1),
    ], "what follows the end of one page may follow rows that its gateway has not given yet"
    assert (found.next, found.untold) == ((TOPIC, 2, b"d"), [])
    assert found.counters == NameCounters(6, 2, 0, 0, 0)
    not_begun = joined_names([page_of(1, (TOPIC, 1, None), (0, b"a")), other], 10)
    assert ([row.name_base64 for row in not_begun.names], not_begun.next) == ([b"a"], (TOPIC, 1, None))
    bounded = joined_names([page_of(1, None, (0, b"a"), (0, b"")), other], 3)
    assert [row.name_base64 for row in bounded.names] == [b"", b"a", b"b"]
    assert bounded.next == (TOPIC, 1, b"b")
    whole = joined_names([page_of(1, None, (0, b"a")), other], 3)
    assert (len(whole.names), whole.next) == (3, None)
    assert [(row.partition, row.reason) for row in whole.untold] == [(5, "lost"), (6, "lost")]
