"""The blocks of producer ids in a store of either kind: states, owners, claims and moves."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from seqgate.gateway.admin.pids import (
    BY_HAND,
    CLAIMED,
    GIVEN_UP,
    IN_USE,
    NEXT,
    USED_UP,
    BlockSource,
    ClaimBlockRequest,
    FindOverlapsRequest,
    FindOwnerRequest,
    ListBlocksRequest,
    MoveNextRequest,
    Overlaps,
    claim_block,
    find_overlaps,
    find_owner,
    joined_blocks,
    joined_overlaps,
    joined_owner,
    list_of_blocks,
    move_next_id,
)
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.stored import create_metadata
from seqgate.gateway.cli import app
from seqgate.pid_allocator import MAX_PRODUCER_ID, ProducerIdAllocator, ProducerIdBlock
from tests.pid_allocator.memory_store import MemoryStore

NOW_MS = 1_700_000_000_000


def source_of(store: MemoryStore, **more: Any) -> BlockSource:
    return BlockSource("embedded", store, store.next_producer_id, shared=False, **more)


async def running_source(store: MemoryStore, taken: int, owner: str = "node-0") -> BlockSource:
    """Return the source of a gateway that has handed out `taken` ids."""
    allocator = ProducerIdAllocator(store, 10, owner=owner, clock=lambda: NOW_MS)
    await allocator.start()
    for _ in range(taken):
        await allocator.next_producer_id()
    return source_of(store, allocator=allocator, owner=owner)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("move", str(MAX_PRODUCER_ID + 1)), f"a producer id must be between 0 and {MAX_PRODUCER_ID}"),
        (("claim", str(MAX_PRODUCER_ID + 2)), f"fewer than {MAX_PRODUCER_ID + 2} producer ids are left"),
    ],
)
def test_a_plan_refuses_what_the_change_refuses(tmp_path: Path, command: tuple[str, str], words: str) -> None:
    assert create_metadata(tmp_path / "data", 1)
    arguments = ["pids", *command, "--dry-run", "--data-dir", str(tmp_path / "data")]
    planned = CliRunner().invoke(app, arguments)
    assert planned.exit_code == 1
    assert words in planned.stderr


def test_a_plan_claims_nothing(tmp_path: Path) -> None:
    assert create_metadata(tmp_path / "data", 1)
    planned = CliRunner().invoke(
        app, ["pids", "claim", "5", "--dry-run", "--owner", "me", "--data-dir", str(tmp_path / "data")]
    )
    assert planned.stdout == "5 ids from 0 or later would be claimed for me.\n"


class TestStates:
    async def test_blocks_of_an_earlier_run_are_given_up(self) -> None:
        store = MemoryStore()
        await store.claim(10, "node-0", NOW_MS)
        page = await list_of_blocks(await running_source(store, 4), ListBlocksRequest(0, limit=100), NOW_MS)
        assert [(row.state, row.used, row.left) for row in page.blocks] == [
            (GIVEN_UP, None, None),
            (IN_USE, 4, 6),
        ]

    async def test_blocks_of_this_run_are_used_up_in_use_and_next(self) -> None:
        source = await running_source(MemoryStore(), 19)
        assert source.allocator is not None
        while source.allocator.state().prefetched is None:
            await asyncio.sleep(0)
        page = await list_of_blocks(source, ListBlocksRequest(0, limit=100), NOW_MS)
        assert [(row.state, row.used, row.left) for row in page.blocks] == [
            (USED_UP, 10, 0),
            (IN_USE, 9, 1),
            (NEXT, 0, 10),
        ]

    async def test_a_stopped_gateway_has_given_up_all_its_blocks(self) -> None:
        store = MemoryStore()
        await store.claim(10, "node-0", NOW_MS)
        await store.claim(5, "loader", NOW_MS)
        page = await list_of_blocks(source_of(store), ListBlocksRequest(0, limit=100), NOW_MS)
        assert [(row.state, row.used, row.left) for row in page.blocks] == [
            (GIVEN_UP, None, None),
            (BY_HAND, None, None),
        ]

    async def test_a_shared_store_tells_what_gateways_reported(self) -> None:
        store = MemoryStore()
        for _ in range(3):
            await store.claim(10, "node-7", NOW_MS)
        await store.report_used(0, 10)
        await store.report_used(10, 4)
        source = BlockSource("redis", store, store.next_producer_id, shared=True, usage=store)
        page = await list_of_blocks(source, ListBlocksRequest(0, limit=100), NOW_MS)
        assert [(row.state, row.used, row.left) for row in page.blocks] == [
            (USED_UP, 10, 0),
            (CLAIMED, 4, 6),
            (CLAIMED, None, None),
        ]

    async def test_other_gateways_of_the_cluster_may_use_their_blocks(self) -> None:
        store = MemoryStore()
        await store.claim(10, "node-0", NOW_MS)
        await store.claim(10, "node-1", NOW_MS)
        source = await running_source(store, 4)
        for others_run, state in ((True, CLAIMED), (False, GIVEN_UP)):
            source.others_run = lambda known=others_run: known  # type: ignore[misc]
            page = await list_of_blocks(source, ListBlocksRequest(0, limit=100), NOW_MS)
            assert [row.state for row in page.blocks] == [GIVEN_UP, state, IN_USE]


class TestPages:
    async def test_pages_follow_each_other(self) -> None:
        store = MemoryStore()
        for _ in range(5):
            await store.claim(10, "node-0", NOW_MS)
        source = source_of(store)
        first = await list_of_blocks(source, ListBlocksRequest(0, limit=2), NOW_MS)
        second = await list_of_blocks(source, ListBlocksRequest(2, limit=2), NOW_MS)
        third = await list_of_blocks(source, ListBlocksRequest(4, limit=2), NOW_MS)
        firsts = [row.first_producer_id for page in (first, second, third) for row in page.blocks]
        assert firsts == [0, 10, 20, 30, 40]
        assert {first.total, second.total, third.total} == {5}
        assert first.next_producer_id == 50

    async def test_a_negative_position_is_refused(self) -> None:
        with pytest.raises(ControlError, match="position must be 0 or higher, not -1"):
            await list_of_blocks(source_of(MemoryStore()), ListBlocksRequest(-1, limit=10), NOW_MS)


class TestOwner:
    async def test_of_an_id_in_use(self) -> None:
        source = await running_source(MemoryStore(), 4)
        handed_out = await find_owner(source, FindOwnerRequest(3), NOW_MS)
        assert handed_out.block is not None
        assert (handed_out.block.owner, handed_out.handed_out) == ("node-0", True)
        assert (await find_owner(source, FindOwnerRequest(4), NOW_MS)).handed_out is False

    async def test_of_an_id_of_an_earlier_run_is_known_but_not_whether_it_left(self) -> None:
        store = MemoryStore()
        await store.claim(10, "node-0", NOW_MS)
        found = await find_owner(source_of(store), FindOwnerRequest(9), NOW_MS)
        assert found.block is not None
        assert found.handed_out is None

    async def test_of_an_id_nobody_claimed(self) -> None:
        store = MemoryStore()
        await store.claim(10, "node-0", NOW_MS)
        found = await find_owner(source_of(store), FindOwnerRequest(10), NOW_MS)
        assert (found.block, found.handed_out, found.next_producer_id) == (None, False, 10)


class TestClaim:
    async def test_never_overlaps_what_the_gateway_takes(self) -> None:
        source = await running_source(MemoryStore(), 3)
        mine = await claim_block(source, ClaimBlockRequest(25, "loader"), NOW_MS)
        assert source.allocator is not None
        ids = {await source.allocator.next_producer_id() for _ in range(100)}
        assert not ids & set(range(mine.first_producer_id, mine.last_producer_id + 1))
        assert (mine.last_producer_id - mine.first_producer_id + 1, mine.state) == (25, BY_HAND)
        assert (await find_overlaps(source, FindOverlapsRequest(), NOW_MS)).overlaps == []

    @pytest.mark.parametrize("owner", ["", "node-3", "two\nlines", "x" * 300])
    async def test_owners_that_could_be_taken_for_something_else_are_refused(self, owner: str) -> None:
        store = MemoryStore()
        with pytest.raises(ControlError):
            await claim_block(source_of(store), ClaimBlockRequest(10, owner), NOW_MS)
        assert store.claimed == []

    @pytest.mark.parametrize("size", [0, -1, 2**63 + 1])
    async def test_sizes_that_do_not_fit_are_refused(self, size: int) -> None:
        with pytest.raises(ControlError):
            await claim_block(source_of(MemoryStore()), ClaimBlockRequest(size, "loader"), NOW_MS)

    async def test_a_store_that_is_away_is_told_in_a_sentence(self) -> None:
        store = MemoryStore()
        store.away = True
        with pytest.raises(ControlError, match="the store is away"):
            await claim_block(source_of(store), ClaimBlockRequest(10, "loader"), NOW_MS)


class TestMove:
    async def test_the_running_gateway_gives_up_what_lies_below(self) -> None:
        source = await running_source(MemoryStore(), 3)
        moved = await move_next_id(source, MoveNextRequest(1000), NOW_MS)
        assert (moved.previous, moved.current) == (10, 1000)
        assert source.allocator is not None
        assert await source.allocator.next_producer_id() == 1000
        states = [
            row.state
            for row in (await list_of_blocks(source, ListBlocksRequest(0, limit=100), NOW_MS)).blocks
        ]
        assert states == [GIVEN_UP, IN_USE]

    async def test_within_the_block_in_use_is_behind(self) -> None:
        source = await running_source(MemoryStore(), 3)
        with pytest.raises(ControlError, match="next id is 10"):
            await move_next_id(source, MoveNextRequest(5), NOW_MS)
        assert source.allocator is not None
        assert await source.allocator.next_producer_id() == 3

    @pytest.mark.parametrize("producer_id", [-1, 2**63])
    async def test_beyond_the_ids_there_are_is_refused(self, producer_id: int) -> None:
        with pytest.raises(ControlError):
            await move_next_id(source_of(MemoryStore()), MoveNextRequest(producer_id), NOW_MS)


class TestOverlaps:
    async def test_are_told_with_the_ids_that_are_shared(self) -> None:
        store = MemoryStore()
        store.claimed = [
            ProducerIdBlock(0, 9, "node-0", NOW_MS),
            ProducerIdBlock(5, 14, "node-1", NOW_MS + 1),
        ]
        found = await find_overlaps(source_of(store), FindOverlapsRequest(), NOW_MS)
        assert found.checked == 2
        (overlap,) = found.overlaps
        assert (overlap.first_producer_id, overlap.last_producer_id) == (5, 9)
        assert (overlap.lower.owner, overlap.upper.owner) == ("node-0", "node-1")


async def test_several_gateways_tell_each_block_once_as_its_owner_knows_it() -> None:
    store = MemoryStore()
    await store.claim(10, "node-1", NOW_MS)
    sources = [await running_source(store, taken, owner) for taken, owner in ((3, "node-0"), (4, "node-1"))]
    await store.claim(10, "loader", NOW_MS)
    await store.claim(10, "node-2", NOW_MS)
    store.claimed.append(ProducerIdBlock(5, 10, "loader", NOW_MS))
    for source in sources:
        source.others_run = lambda: True
    pages = [await list_of_blocks(source, ListBlocksRequest(), NOW_MS) for source in sources]
    pages[0] = msgspec.structs.replace(pages[0], total=5, blocks=pages[0].blocks[:5])  # asked a moment before
    found = joined_blocks(pages)
    assert [(row.first_producer_id, row.state, row.used) for row in found.blocks] == [
        (0, GIVEN_UP, None),
        (10, IN_USE, 3),
        (20, IN_USE, 4),
        (30, BY_HAND, None),
        (40, CLAIMED, None),
        (5, BY_HAND, None),
    ]
    assert (found.store, found.total, found.next_producer_id) == ("embedded", 6, pages[1].next_producer_id)
    for producer_id, handed_out in ((12, True), (13, False), (23, True), (40, None), (999, False)):
        asked = FindOwnerRequest(producer_id)
        owner = joined_owner([await find_owner(source, asked, NOW_MS) for source in sources])
        assert owner.handed_out is handed_out, producer_id
    told = [await find_overlaps(source, FindOverlapsRequest(), NOW_MS) for source in sources]
    assert len(told[0].overlaps) == 2
    overlaps = joined_overlaps([*told, Overlaps(5, [])])
    assert (overlaps.checked, overlaps.overlaps) == (6, told[1].overlaps)
