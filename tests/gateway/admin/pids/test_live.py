"""The blocks of producer ids of a running gateway."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqgate.gateway.admin.pids import (
    BY_HAND,
    IN_USE,
    ClaimBlockRequest,
    FindOverlapsRequest,
    FindOwnerRequest,
    ListBlocksRequest,
    MoveNextRequest,
)
from seqgate.gateway.admin.request import ControlError
from tests.gateway.admin.answers import all_pages, answer
from tests.gateway.handlers.support import NOW_MS, open_node

BLOCK = "seqgate.producer.id.block.size=10"


async def test_blocks_come_in_pages(tmp_path: Path) -> None:
    async with open_node(tmp_path, BLOCK) as node:
        await node.services.coordinators.producer_ids.start()
        for size in (5, 6, 7):
            await answer(node, ClaimBlockRequest(size, "loader"))
        pages = await all_pages(node, ListBlocksRequest(limit=3))
        rows = [(row.first_producer_id, row.state) for page in pages for row in page.blocks]
        assert rows == [(0, IN_USE), (10, BY_HAND), (15, BY_HAND), (21, BY_HAND)]
        assert [(len(page.blocks), page.total) for page in pages] == [(3, 4), (1, 4)]
        assert (pages[0].store, pages[0].next_producer_id) == ("embedded", 28)
        assert [len(page.blocks) for page in await all_pages(node, ListBlocksRequest(2, limit=100))] == [2]


async def test_an_empty_store_has_one_empty_page(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        (page,) = await all_pages(node, ListBlocksRequest())
        assert (page.blocks, page.total) == ([], 0)


async def test_a_claim_is_by_the_gateways_clock(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        block = await answer(node, ClaimBlockRequest(5, "loader"))
        assert (block.owner, block.claimed_at_ms, block.last_producer_id) == ("loader", NOW_MS, 4)
        assert (await answer(node, FindOwnerRequest(4))).block == block
        assert (await answer(node, FindOwnerRequest(5))).block is None
        found = await answer(node, FindOverlapsRequest())
        assert (found.checked, found.overlaps) == (1, [])


async def test_the_gateway_hands_out_no_id_below_the_next_one(tmp_path: Path) -> None:
    async with open_node(tmp_path, BLOCK) as node:
        await node.services.coordinators.producer_ids.start()
        moved = await answer(node, MoveNextRequest(1_000))
        assert (moved.previous, moved.current) == (10, 1_000)
        assert await node.services.coordinators.producer_ids.next_producer_id() == 1_000
        with pytest.raises(ControlError):
            await answer(node, MoveNextRequest(5))
