"""The active producers of a running gateway, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seqgate.gateway.admin.producers import ListProducersRequest, ProducerRow
from seqgate.gateway.admin.request import ControlError
from tests.gateway.admin.answers import all_pages, answer
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.log.support import batch


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path) as opened:
        await create(opened, "a", 3)
        await create(opened, "b", 2)
        yield opened


def write(
    node: Node, topic: str, index: int, producer_id: int, base_sequence: int = 0, count: int = 1
) -> None:
    partition = node.services.partitions.registry.get(topic, index)
    assert partition is not None
    data = batch(count, producer_id=producer_id, base_sequence=base_sequence, timestamp=NOW_MS - 50_000)
    partition.append(data, node.clock.now_ms())


async def places(node: Node, request: ListProducersRequest) -> list[tuple[str, int, int]]:
    pages = await all_pages(node, request)
    assert all(len(page.producers) <= request.limit for page in pages)
    return [(row.topic, row.partition, row.producer_id) for page in pages for row in page.producers]


async def test_a_row_tells_all_that_the_partition_remembers(node: Node) -> None:
    write(node, "a", 0, 1000, count=10)
    node.clock.time_ms += 1_000
    write(node, "a", 0, 1000, base_sequence=10, count=5)
    node.clock.time_ms += 2_000
    page = await answer(node, ListProducersRequest())
    assert page.producers == [
        ProducerRow(
            topic="a",
            partition=0,
            producer_id=1000,
            producer_epoch=0,
            last_sequence=14,
            last_offset=14,
            last_timestamp=NOW_MS - 50_000,
            coordinator_epoch=-1,
            current_txn_start_offset=-1,
            age_ms=2_000,
            retained_batches=2,
        )
    ]
    assert page.complete


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
async def test_pages_hold_every_producer_once_and_in_order(node: Node, limit: int) -> None:
    expected = [("a", 0, 7), ("a", 0, 9), ("a", 2, 1), ("b", 0, 1), ("b", 0, 2), ("b", 0, 3), ("b", 1, 1)]
    for place in expected:
        write(node, *place)
    write(node, "b", 0, 1, base_sequence=1)
    assert await places(node, ListProducersRequest(limit=limit)) == expected


async def test_of_one_topic_or_partition_only(node: Node) -> None:
    for topic, index in [("a", 0), ("a", 1), ("b", 0)]:
        write(node, topic, index, 5)
    assert await places(node, ListProducersRequest("a")) == [("a", 0, 5), ("a", 1, 5)]
    assert await places(node, ListProducersRequest("a", 1)) == [("a", 1, 5)]


@pytest.mark.parametrize(
    ("request_", "words"),
    [(ListProducersRequest("nothing"), "no topic nothing"), (ListProducersRequest("a", 7), "no partition 7")],
)
async def test_what_is_not_there_is_refused(node: Node, request_: ListProducersRequest, words: str) -> None:
    with pytest.raises(ControlError, match=words):
        await answer(node, request_)


async def test_a_topic_deleted_between_pages_is_skipped(node: Node) -> None:
    for topic in ("a", "b"):
        write(node, topic, 0, 5)
    page = await answer(node, ListProducersRequest(after=("aa", 0, 5)))
    assert [row.topic for row in page.producers] == ["b"]


async def test_counters_come_with_every_page(node: Node) -> None:
    node.services.partitions.counters.duplicates, node.services.partitions.counters.rejections = 3, 2
    write(node, "a", 0, 5)
    counters = (await answer(node, ListProducersRequest())).counters
    assert (counters.duplicates, counters.rejections) == (3, 2)
    assert (counters.evictions, counters.refusals, counters.remembered) == (0, 0, 1)
