"""What is told and done about blocks of producer ids."""

from __future__ import annotations

import asyncio

import pytest

from gateway.control.blocks import (
    BY_HAND,
    CLAIMED,
    GIVEN_UP,
    IN_USE,
    NEXT,
    USED_UP,
    BlockSource,
    claim_block,
    find_overlaps,
    find_owner,
    list_blocks,
    move_next,
)
from gateway.control.errors import ControlError
from pid_allocator import ProducerIdBlock
from tests.gateway.control.fakes import NOW_MS, FakeStore, FakeUsage, fake_allocator, fake_source


async def running_source(store: FakeStore, taken: int) -> BlockSource:
    """A gateway in its first block, or later ones, after `taken` ids left it."""
    allocator = fake_allocator(store)
    await allocator.start()
    first = allocator.state().current
    assert first is not None
    for _ in range(taken):
        await allocator.next_producer_id()
    return fake_source(store, allocator=allocator, owner="node-0", first_of_this_run=first.first_producer_id)


class TestStates:
    async def test_blocks_of_an_earlier_run_are_given_up(self) -> None:
        store = FakeStore()
        await store.claim(10, "node-0", NOW_MS)
        page = await list_blocks(await running_source(store, 4), 0, 100)
        assert [(row.state, row.used, row.left) for row in page.blocks] == [
            (GIVEN_UP, None, None),
            (IN_USE, 4, 6),
        ]

    async def test_blocks_of_this_run_are_used_up_in_use_and_next(self) -> None:
        source = await running_source(FakeStore(), 19)
        assert source.allocator is not None
        while source.allocator.state().prefetched is None:
            await asyncio.sleep(0)
        page = await list_blocks(source, 0, 100)
        assert [(row.state, row.used, row.left) for row in page.blocks] == [
            (USED_UP, 10, 0),
            (IN_USE, 9, 1),
            (NEXT, 0, 10),
        ]

    async def test_a_stopped_gateway_has_given_up_all_its_blocks(self) -> None:
        store = FakeStore()
        await store.claim(10, "node-0", NOW_MS)
        await store.claim(5, "loader", NOW_MS)
        page = await list_blocks(fake_source(store), 0, 100)
        assert [(row.state, row.used, row.left) for row in page.blocks] == [
            (GIVEN_UP, None, None),
            (BY_HAND, None, None),
        ]

    async def test_a_shared_store_tells_what_gateways_reported(self) -> None:
        store = FakeStore()
        for _ in range(3):
            await store.claim(10, "node-7", NOW_MS)
        source = BlockSource(
            "redis", store, store.next_producer_id, shared=True, usage=FakeUsage({0: 10, 10: 4})
        )
        page = await list_blocks(source, 0, 100)
        assert [(row.state, row.used, row.left) for row in page.blocks] == [
            (USED_UP, 10, 0),
            (CLAIMED, 4, 6),
            (CLAIMED, None, None),
        ]


class TestPages:
    async def test_pages_follow_each_other(self) -> None:
        store = FakeStore()
        for _ in range(5):
            await store.claim(10, "node-0", NOW_MS)
        source = fake_source(store)
        first = await list_blocks(source, 0, 2)
        second = await list_blocks(source, 2, 2)
        third = await list_blocks(source, 4, 2)
        firsts = [row.first_producer_id for page in (first, second, third) for row in page.blocks]
        assert firsts == [0, 10, 20, 30, 40]
        assert {first.total, second.total, third.total} == {5}
        assert first.next_producer_id == 50

    @pytest.mark.parametrize(("position", "limit"), [(-1, 10), (0, 0), (0, 10**9)])
    async def test_absurd_pages_are_refused(self, position: int, limit: int) -> None:
        with pytest.raises(ControlError, match="page"):
            await list_blocks(fake_source(FakeStore()), position, limit)


class TestOwner:
    async def test_of_an_id_in_use(self) -> None:
        source = await running_source(FakeStore(), 4)
        handed_out = await find_owner(source, 3)
        assert handed_out.block is not None
        assert (handed_out.block.owner, handed_out.handed_out) == ("node-0", True)
        assert (await find_owner(source, 4)).handed_out is False

    async def test_of_an_id_of_an_earlier_run_is_known_but_not_whether_it_left(self) -> None:
        store = FakeStore()
        await store.claim(10, "node-0", NOW_MS)
        found = await find_owner(fake_source(store), 9)
        assert found.block is not None
        assert found.handed_out is None

    async def test_of_an_id_nobody_claimed(self) -> None:
        store = FakeStore()
        await store.claim(10, "node-0", NOW_MS)
        found = await find_owner(fake_source(store), 10)
        assert (found.block, found.handed_out, found.next_producer_id) == (None, False, 10)


class TestClaim:
    async def test_never_overlaps_what_the_gateway_takes(self) -> None:
        source = await running_source(FakeStore(), 3)
        mine = await claim_block(source, 25, "loader", NOW_MS)
        assert source.allocator is not None
        ids = {await source.allocator.next_producer_id() for _ in range(100)}
        assert not ids & set(range(mine.first_producer_id, mine.last_producer_id + 1))
        assert (mine.last_producer_id - mine.first_producer_id + 1, mine.state) == (25, BY_HAND)
        assert (await find_overlaps(source)).overlaps == []

    @pytest.mark.parametrize("owner", ["", "node-3", "two\nlines", "x" * 300])
    async def test_owners_that_could_be_taken_for_something_else_are_refused(self, owner: str) -> None:
        store = FakeStore()
        with pytest.raises(ControlError):
            await claim_block(fake_source(store), 10, owner, NOW_MS)
        assert store.claimed == []

    @pytest.mark.parametrize("size", [0, -1, 2**63 + 1])
    async def test_sizes_that_do_not_fit_are_refused(self, size: int) -> None:
        with pytest.raises(ControlError):
            await claim_block(fake_source(FakeStore()), size, "loader", NOW_MS)

    async def test_a_store_that_is_away_is_told_in_a_sentence(self) -> None:
        with pytest.raises(ControlError, match="the store is away"):
            await claim_block(fake_source(FakeStore(away=True)), 10, "loader", NOW_MS)


class TestMove:
    async def test_the_running_gateway_gives_up_what_lies_below(self) -> None:
        source = await running_source(FakeStore(), 3)
        moved = await move_next(source, 1000)
        assert (moved.previous, moved.current) == (10, 1000)
        assert source.allocator is not None
        assert await source.allocator.next_producer_id() == 1000
        states = [row.state for row in (await list_blocks(source, 0, 100)).blocks]
        assert states == [GIVEN_UP, IN_USE]

    async def test_within_the_block_in_use_is_behind(self) -> None:
        source = await running_source(FakeStore(), 3)
        with pytest.raises(ControlError, match="next id is 10"):
            await move_next(source, 5)
        assert source.allocator is not None
        assert await source.allocator.next_producer_id() == 3

    @pytest.mark.parametrize("producer_id", [-1, 2**63])
    async def test_beyond_the_ids_there_are_is_refused(self, producer_id: int) -> None:
        with pytest.raises(ControlError):
            await move_next(fake_source(FakeStore()), producer_id)


class TestOverlaps:
    async def test_are_told_with_the_ids_that_are_shared(self) -> None:
        store = FakeStore(
            [ProducerIdBlock(0, 9, "node-0", NOW_MS), ProducerIdBlock(5, 14, "node-1", NOW_MS + 1)], 15
        )
        found = await find_overlaps(fake_source(store))
        assert found.checked == 2
        (overlap,) = found.overlaps
        assert (overlap.first_producer_id, overlap.last_producer_id) == (5, 9)
        assert (overlap.lower.owner, overlap.upper.owner) == ("node-0", "node-1")
