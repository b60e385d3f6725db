from __future__ import annotations

import pytest

from seqgate.pid_allocator import BlockUsage, NextIdBehind, list_blocks, move_next
from tests.pid_allocator.memory_store import MemoryStore


async def test_blocks_are_listed_with_their_reported_usage() -> None:
    store = MemoryStore()
    first = await store.claim(10, "a", 1)
    second = await store.claim(10, "b", 2)
    await store.report_used(0, 7)
    assert await list_blocks(store, store) == [BlockUsage(first, 7, 3), BlockUsage(second, None, None)]
    assert await list_blocks(store) == [BlockUsage(first, None, None), BlockUsage(second, None, None)]


async def test_the_next_id_moves_forward_only() -> None:
    store = MemoryStore()
    await store.claim(10, "a", 1)
    assert await move_next(store, 500) == 10
    with pytest.raises(NextIdBehind):
        await move_next(store, 9)
    with pytest.raises(ValueError, match="must be between"):
        await move_next(store, 2**63)
