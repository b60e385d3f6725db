"""The Redis store against a real redis-server that is killed, hung, emptied and set back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack

import pytest

from seqgate.pid_allocator import (
    LastSeen,
    NextIdBehind,
    NoProducerIds,
    ProducerIdAllocator,
    ProducerIdBlock,
    ProducerIdsExhausted,
    StoreUnavailable,
    StoreWentBack,
    UnknownStoreVersion,
    overlaps,
)
from seqgate.pid_allocator.redis_store import RedisBlockStore
from tests.support.redis_server import RedisServer

STATE_KEY = "{seqgate:producer-ids}"


class Memory:
    """A gateway's durable memory of Redis, which outlives the store object."""

    def __init__(self) -> None:
        self.last_seen: LastSeen | None = None

    async def load(self) -> LastSeen | None:
        return self.last_seen

    async def save(self, last_seen: LastSeen) -> None:
        self.last_seen = last_seen


Gateway = Callable[..., RedisBlockStore]


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
async def gateway(server: RedisServer) -> AsyncIterator[Gateway]:
    async with AsyncExitStack() as stack:

        def connect(memory: Memory | None = None, timeout_ms: int = 2_000) -> RedisBlockStore:
            store = RedisBlockStore(
                server.url,
                key_prefix="seqgate",
                timeout_ms=timeout_ms,
                last_seen=Memory() if memory is None else memory,
            )
            stack.push_async_callback(store.close)
            return store

        yield connect


async def test_claims_follow_each_other(gateway: Gateway) -> None:
    memory = Memory()
    store = gateway(memory)
    first = await store.claim(1_000, "gateway 1, Köln", 5)
    second = await store.claim(10, "b", 6)
    assert first.size == 1_000
    assert second == ProducerIdBlock(first.next_producer_id, first.last_producer_id + 10, "b", 6)
    assert await store.blocks() == [first, second]
    assert await store.next_producer_id() == second.next_producer_id
    assert memory.last_seen is not None
    assert memory.last_seen.next_producer_id == second.next_producer_id


async def test_an_empty_store_has_no_blocks(gateway: Gateway) -> None:
    assert await gateway().blocks() == []
    assert await gateway().next_producer_id() == 0
    with pytest.raises(ValueError, match="must be at least 1"):
        await gateway().claim(0, "a", 1)


async def test_usage_is_stored_by_block(gateway: Gateway) -> None:
    store = gateway()
    block = await store.claim(10, "a", 1)
    await store.report_used(block.first_producer_id, 4)
    assert await store.used() == {block.first_producer_id: 4}


async def test_claims_of_many_gateways_never_overlap(gateway: Gateway) -> None:
    stores = [gateway() for _ in range(8)]
    claimed = await asyncio.gather(*(store.claim(7, f"{n}", n) for n in range(30) for store in stores[:1]))
    claimed += await asyncio.gather(
        *(store.claim(5, f"{n}", 0) for _ in range(20) for n, store in enumerate(stores))
    )
    ids = [
        producer_id
        for block in claimed
        for producer_id in range(block.first_producer_id, block.next_producer_id)
    ]
    assert len(ids) == len(set(ids)) == 30 * 7 + 160 * 5
    assert overlaps(await stores[0].blocks()) == []
    assert len(await stores[0].blocks()) == 190


async def test_allocators_of_many_gateways_never_share_an_id(gateway: Gateway) -> None:
    allocators = [ProducerIdAllocator(gateway(), 10, owner=f"{n}", clock=lambda: 0) for n in range(4)]

    async def take(allocator: ProducerIdAllocator) -> list[int]:
        return [await allocator.next_producer_id() for _ in range(95)]

    taken = await asyncio.gather(*(take(allocator) for allocator in allocators))
    await asyncio.gather(*(allocator.close() for allocator in allocators))
    assert len({producer_id for ids in taken for producer_id in ids}) == 4 * 95


async def test_after_a_kill_ids_continue_beyond_those_redis_lost(
    server: RedisServer, gateway: Gateway
) -> None:
    busy, quiet = gateway(), gateway()
    quiet_block = await quiet.claim(10, "quiet", 1)
    server.save()
    forgotten = [await busy.claim(10, "busy", 2) for _ in range(5)]
    server.kill()
    with pytest.raises(StoreUnavailable):
        await quiet.claim(10, "quiet", 3)
    server.start()
    # The idle gateway never saw the lost blocks, and still gets none of their ids.
    block = await quiet.claim(10, "quiet", 4)
    assert block.first_producer_id >= max(taken.next_producer_id for taken in (quiet_block, *forgotten))
    assert (await busy.claim(10, "busy", 5)).first_producer_id == block.next_producer_id


async def test_after_a_restart_without_loss_ids_continue(server: RedisServer, gateway: Gateway) -> None:
    store = gateway()
    before = await store.claim(10, "a", 1)
    server.save()
    server.restart()
    after = await store.claim(10, "a", 2)
    assert after.first_producer_id >= before.next_producer_id
    assert (await store.claim(10, "a", 3)).first_producer_id == after.next_producer_id


async def test_the_allocator_recovers_when_the_server_is_back(server: RedisServer, gateway: Gateway) -> None:
    now_ms = 0
    allocator = ProducerIdAllocator(gateway(), 10, owner="a", clock=lambda: now_ms, retry_ms=100)
    await allocator.start()
    server.save()
    server.kill()
    taken = [await allocator.next_producer_id() for _ in range(10)]
    with pytest.raises(NoProducerIds, match="Redis"):
        await allocator.next_producer_id()
    server.start()
    now_ms = 100
    taken.append(await allocator.next_producer_id())
    assert len(set(taken)) == 11
    await allocator.close()


async def test_a_call_to_a_hung_server_times_out(server: RedisServer, gateway: Gateway) -> None:
    store = gateway(timeout_ms=100)
    before = await store.claim(10, "a", 1)
    server.hang()
    async with asyncio.timeout(60):
        with pytest.raises(StoreUnavailable):
            await store.claim(10, "a", 2)
        with pytest.raises(StoreUnavailable):
            await gateway(timeout_ms=100).blocks()
    server.resume()
    patient = gateway()
    after = await patient.claim(10, "a", 3)
    assert after.first_producer_id >= before.next_producer_id
    assert overlaps(await patient.blocks()) == []


async def test_a_call_is_bounded_as_a_whole(server: RedisServer, gateway: Gateway) -> None:
    store = gateway(timeout_ms=20_000)
    await store.claim(10, "a", 1)
    store._timeout_s = 0.05
    server.hang()
    with pytest.raises(StoreUnavailable, match="did not answer within"):
        await store.claim(10, "a", 2)


async def test_an_operator_claims_without_a_memory(server: RedisServer) -> None:
    store = RedisBlockStore(server.url, key_prefix="other", timeout_ms=2_000)
    assert (await store.claim(10, "operator", 1)).owner == "operator"
    await store.close()


async def test_a_flushed_store_is_refused_until_the_next_id_is_moved(
    server: RedisServer, gateway: Gateway
) -> None:
    store = gateway()
    before = await store.claim(10, "a", 1)
    server.flush()
    for _ in range(2):
        with pytest.raises(StoreWentBack, match=f"lost.*{before.next_producer_id}"):
            await store.claim(10, "a", 2)
    assert server.client().dbsize() == 0
    assert await store.move_next(before.next_producer_id) == 0
    assert (await store.claim(10, "a", 3)).first_producer_id >= before.next_producer_id


async def test_a_store_recreated_by_another_gateway_is_refused(server: RedisServer, gateway: Gateway) -> None:
    old = gateway()
    before = await old.claim(10, "old", 1)
    server.flush()
    fresh_block = await gateway().claim(10, "fresh", 2)
    # The new gateway can not know that Redis lost its data, but its ids are above the old ids.
    assert fresh_block.first_producer_id >= before.next_producer_id
    with pytest.raises(StoreWentBack, match="another store"):
        await old.claim(10, "old", 3)
    await old.move_next(fresh_block.next_producer_id)
    assert (await old.claim(10, "old", 4)).first_producer_id >= fresh_block.next_producer_id


async def test_a_vouch_below_the_highest_seen_id_does_not_count(
    server: RedisServer, gateway: Gateway
) -> None:
    store = gateway()
    before = await store.claim(10, "a", 1)
    server.flush()
    await store.move_next(before.next_producer_id - 1)
    with pytest.raises(StoreWentBack, match="another store"):
        await store.claim(10, "a", 2)


async def test_an_older_backup_is_refused_by_gateways_that_saw_more(
    server: RedisServer, gateway: Gateway
) -> None:
    ahead, behind = gateway(), gateway()
    await behind.claim(10, "behind", 1)
    backup = server.backup()
    used = [await ahead.claim(10, "ahead", 2) for _ in range(3)]
    server.restore(backup)
    for _ in range(2):
        with pytest.raises(StoreWentBack, match="set back"):
            await ahead.claim(10, "ahead", 3)
    block = await behind.claim(10, "behind", 4)
    assert block.first_producer_id >= max(taken.next_producer_id for taken in used)
    assert (await ahead.claim(10, "ahead", 5)).first_producer_id >= block.next_producer_id


async def test_a_restored_store_is_used_after_the_next_id_is_moved(
    server: RedisServer, gateway: Gateway
) -> None:
    memory = Memory()
    store = gateway(memory)
    await store.claim(10, "a", 1)
    backup = server.backup()
    last = await store.claim(10, "a", 2)
    server.restore(backup)
    restarted_gateway = gateway(memory)
    with pytest.raises(StoreWentBack):
        await restarted_gateway.claim(10, "a", 3)
    await restarted_gateway.move_next(last.next_producer_id)
    assert (await restarted_gateway.claim(10, "a", 4)).first_producer_id >= last.next_producer_id


async def test_the_next_id_moves_forward_only(gateway: Gateway) -> None:
    store = gateway()
    block = await store.claim(10, "a", 1)
    target = block.next_producer_id + 1_000
    assert await store.move_next(target) == block.next_producer_id
    with pytest.raises(NextIdBehind, match="moved back"):
        await store.move_next(target - 1)
    assert (await store.claim(10, "a", 2)).first_producer_id == target


async def test_ids_are_exact_up_to_the_last_one(gateway: Gateway) -> None:
    store = gateway()
    await store.claim(1, "a", 1)
    await store.move_next(2**62 - 12)
    block = await store.claim(10, "a", 2)
    assert (block.first_producer_id, block.last_producer_id) == (2**62 - 12, 2**62 - 3)
    with pytest.raises(NextIdBehind):
        await store.move_next(2**62 - 13)
    with pytest.raises(ProducerIdsExhausted):
        await store.claim(10, "a", 3)
    assert len(await store.blocks()) == 2


async def test_a_foreign_value_under_the_key_is_reported(server: RedisServer, gateway: Gateway) -> None:
    server.client().set(STATE_KEY, "something else")
    with pytest.raises(StoreUnavailable, match="WRONGTYPE"):
        await gateway().claim(10, "a", 1)


async def test_a_damaged_next_id_is_reported(server: RedisServer, gateway: Gateway) -> None:
    store = gateway()
    await store.claim(10, "a", 1)
    server.client().hset(STATE_KEY, "next", "9999999999999999x")
    with pytest.raises(StoreUnavailable, match="not an integer"):
        await store.claim(10, "a", 1)


async def test_a_store_of_a_later_version_is_refused_and_unchanged(
    server: RedisServer, gateway: Gateway
) -> None:
    store = gateway(Memory())
    await store.claim(10, "a", 1)
    client = server.client()
    assert client.hget(STATE_KEY, "version") in {"1", b"1"}
    client.hset(STATE_KEY, "version", "2")
    before = client.hgetall(STATE_KEY), client.lrange(f"{STATE_KEY}:blocks", 0, -1)
    with pytest.raises(UnknownStoreVersion, match="in Redis have version 2; this program reads version 1"):
        await store.claim(10, "a", 1)
    with pytest.raises(UnknownStoreVersion, match="version 2"):
        await store.move_next(2**40)
    assert (client.hgetall(STATE_KEY), client.lrange(f"{STATE_KEY}:blocks", 0, -1)) == before


async def test_a_store_without_a_version_is_used(server: RedisServer, gateway: Gateway) -> None:
    store = gateway(Memory())
    first = await store.claim(10, "a", 1)
    client = server.client()
    client.hdel(STATE_KEY, "version")
    assert (await store.claim(10, "a", 1)).first_producer_id == first.last_producer_id + 1
    assert client.hget(STATE_KEY, "version") in {"1", b"1"}
