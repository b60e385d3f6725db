from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from seqgate.pid_allocator import NoProducerIds, ProducerIdAllocator, StoreWentBack
from tests.pid_allocator.memory_store import MemoryStore


class Clock:
    def __init__(self) -> None:
        self.now_ms = 10_000

    def __call__(self) -> int:
        return self.now_ms


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks run until the condition holds."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


async def take(allocator: ProducerIdAllocator, count: int) -> list[int]:
    return [await allocator.next_producer_id() for _ in range(count)]


@pytest.mark.parametrize("bad", [{"block_size": 0}, {"prefetch_at": 1.5}, {"prefetch_at": -0.1}])
def test_arguments_are_checked(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="not"):
        ProducerIdAllocator(None, owner="a", clock=Clock(), **bad)  # type: ignore[arg-type]


async def test_ids_come_one_after_the_other() -> None:
    allocator = ProducerIdAllocator(MemoryStore(), 10, owner="a", clock=Clock())
    assert await allocator.start()
    assert await allocator.start()
    assert await take(allocator, 35) == list(range(35))


async def test_the_next_block_is_claimed_at_nine_tenths() -> None:
    store = MemoryStore()
    allocator = ProducerIdAllocator(store, 10, owner="a", clock=Clock())
    await allocator.start()
    await take(allocator, 8)
    await asyncio.sleep(0)
    assert store.calls == 1
    store.open.clear()
    await take(allocator, 2)
    await until(lambda: store.calls == 2)
    store.open.set()
    await until(lambda: allocator.state().prefetched is not None)
    store.open.clear()
    assert await take(allocator, 5) == [10, 11, 12, 13, 14]
    state = allocator.state()
    assert (state.used, state.left) == (5, 5)


async def test_many_wait_for_one_claim() -> None:
    store = MemoryStore()
    store.open.clear()
    allocator = ProducerIdAllocator(store, 7, owner="a", clock=Clock())
    waiting = [asyncio.create_task(allocator.next_producer_id()) for _ in range(50)]
    await until(lambda: store.calls == 1)
    waiting[0].cancel()
    store.open.set()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    ids = [answer for answer in answers if isinstance(answer, int)]
    assert sorted(ids) == list(range(49))
    assert store.most_running == 1


async def test_claimed_ids_go_out_while_the_store_is_unavailable() -> None:
    store, clock = MemoryStore(), Clock()
    allocator = ProducerIdAllocator(store, 10, owner="a", clock=clock, retry_ms=500)
    await allocator.start()
    store.away = True
    assert await take(allocator, 10) == list(range(10))
    with pytest.raises(NoProducerIds, match="the store is away"):
        await allocator.next_producer_id()
    calls = store.calls
    with pytest.raises(NoProducerIds):
        await allocator.next_producer_id()
    assert store.calls == calls
    store.away = False
    clock.now_ms += 500
    assert await allocator.next_producer_id() == 10
    assert allocator.state().last_error is None


async def test_a_clock_set_back_does_not_stop_the_retries() -> None:
    store, clock = MemoryStore(), Clock()
    store.away = True
    allocator = ProducerIdAllocator(store, 10, owner="a", clock=clock)
    assert not await allocator.start()
    assert allocator.state().left == 0
    store.away = False
    clock.now_ms -= 5_000
    assert await allocator.next_producer_id() == 0


@pytest.mark.parametrize("error", [StoreWentBack("set back"), OSError("disk full")])
async def test_every_failure_is_reported_and_retriable(error: Exception) -> None:
    store = MemoryStore()
    store.away, store.error = True, error
    allocator = ProducerIdAllocator(store, owner="a", clock=Clock())
    with pytest.raises(NoProducerIds, match=str(error)):
        await allocator.next_producer_id()


async def test_close_cancels_a_claim_in_flight() -> None:
    store = MemoryStore()
    store.open.clear()
    allocator = ProducerIdAllocator(store, owner="a", clock=Clock())
    waiting = asyncio.create_task(allocator.next_producer_id())
    await until(lambda: store.calls == 1)
    await allocator.close()
    with pytest.raises(NoProducerIds):
        await waiting
    assert store.running == 0
    await allocator.close()


async def test_usage_is_reported_in_the_background() -> None:
    store = MemoryStore()
    allocator = ProducerIdAllocator(store, 10, owner="a", clock=Clock(), usage=store)
    await take(allocator, 13)
    await until(lambda: store.counts.get(10) == 3)
    store.away = True
    await take(allocator, 1)
    await until(lambda: store.refused_reports == 1)
    store.away = False
    await take(allocator, 1)
    await until(lambda: store.counts[10] == 5)
    await allocator.close()


async def test_close_cancels_a_report_in_flight() -> None:
    store = MemoryStore()
    allocator = ProducerIdAllocator(store, 10, owner="a", clock=Clock(), usage=store)
    await allocator.start()
    store.open.clear()
    await take(allocator, 2)
    await allocator.close()
    assert store.counts == {}


async def test_claims_are_counted() -> None:
    store, clock = MemoryStore(), Clock()
    allocator = ProducerIdAllocator(store, 10, owner="a", clock=clock)
    assert (allocator.claimed_blocks, allocator.failed_claims) == (0, 0)
    await allocator.start()
    assert (allocator.claimed_blocks, allocator.failed_claims) == (1, 0)
    store.away = True
    await take(allocator, 10)
    await until(lambda: allocator.failed_claims == 1)
    with pytest.raises(NoProducerIds):
        await allocator.next_producer_id()
    failed = allocator.failed_claims
    store.away = False
    clock.now_ms += 60_000
    assert await allocator.next_producer_id() == 10
    assert (allocator.claimed_blocks, allocator.failed_claims) == (2, failed)
