"""Moving the next id forward while a gateway still has blocks below the new next id."""

from __future__ import annotations

import asyncio

from seqgate.pid_allocator import ProducerIdAllocator, ProducerIdBlock, block_at


class Store:
    """A block store in memory. Claims wait while `gate` is closed."""

    def __init__(self) -> None:
        self.next_id = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = 0

    async def claim(self, size: int, owner: str, now_ms: int) -> ProducerIdBlock:
        block = block_at(self.next_id, size, owner, now_ms)
        self.next_id = block.next_producer_id
        self.waiting += 1
        await self.gate.wait()
        self.waiting -= 1
        return block

    async def blocks(self) -> list[ProducerIdBlock]:
        return []

    async def move_next(self, producer_id: int) -> int:
        previous, self.next_id = self.next_id, producer_id
        return previous


def allocator_on(store: Store) -> ProducerIdAllocator:
    return ProducerIdAllocator(store, 10, owner="node-1", clock=lambda: 0)


async def test_a_block_below_the_new_next_id_is_replaced_at_once() -> None:
    store = Store()
    allocator = allocator_on(store)
    await allocator.start()
    assert await allocator.next_producer_id() == 0
    await store.move_next(500)
    allocator.give_up_below(500)
    assert allocator.state().current is None
    while allocator.state().prefetched is None:
        await asyncio.sleep(0)
    assert await allocator.next_producer_id() == 500


async def test_a_claim_in_flight_below_the_new_next_id_is_dropped() -> None:
    store = Store()
    allocator = allocator_on(store)
    await allocator.start()
    store.gate.clear()
    for expected in range(9):
        assert await allocator.next_producer_id() == expected
    while not store.waiting:
        await asyncio.sleep(0)
    await store.move_next(500)
    allocator.give_up_below(500)
    store.gate.set()
    assert await allocator.next_producer_id() == 500


async def test_a_prefetched_block_below_the_new_next_id_is_dropped() -> None:
    store = Store()
    allocator = allocator_on(store)
    await allocator.start()
    for _ in range(9):
        await allocator.next_producer_id()
    while allocator.state().prefetched is None:
        await asyncio.sleep(0)
    await store.move_next(500)
    allocator.give_up_below(500)
    assert await allocator.next_producer_id() == 500


async def test_a_next_id_inside_the_current_block_leaves_its_rest() -> None:
    allocator = allocator_on(Store())
    await allocator.start()
    allocator.give_up_below(4)
    assert [await allocator.next_producer_id() for _ in range(3)] == [4, 5, 6]
    allocator.give_up_below(2)
    assert await allocator.next_producer_id() == 7


async def test_after_close_nothing_is_claimed() -> None:
    store = Store()
    allocator = allocator_on(store)
    await allocator.start()
    await allocator.close()
    allocator.give_up_below(500)
    await asyncio.sleep(0)
    assert store.next_id == 10
