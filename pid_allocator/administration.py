"""The operations of `seqgate pids`, as plain functions over the ports: the command only prints their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pid_allocator import blocks as arithmetic
from pid_allocator.block_store import BlockStore, UsageStore
from pid_allocator.blocks import MAX_PRODUCER_ID, Overlap, ProducerIdBlock


@dataclass(frozen=True, slots=True)
class BlockUsage:
    """One claimed block, with the number of ids handed out and left; None when no gateway has reported usage."""

    block: ProducerIdBlock
    used: int | None
    left: int | None


@dataclass(frozen=True, slots=True)
class NextMoved:
    """The next producer id of the store before and after the move."""

    previous: int
    current: int


async def list_blocks(store: BlockStore, usage: UsageStore | None = None) -> list[BlockUsage]:
    """Return all blocks in the order of their claims, with the usage that gateways reported. Raises StoreUnavailable."""
    used = {} if usage is None else await usage.used()
    return with_usage(await store.blocks(), used)


def with_usage(claimed: list[ProducerIdBlock], used: Mapping[int, int]) -> list[BlockUsage]:
    """Return the blocks with their usage. `used` maps the first id of a block to the number of ids handed out."""
    lines = []
    for block in claimed:
        count = used.get(block.first_producer_id)
        lines.append(BlockUsage(block, count, None if count is None else block.size - count))
    return lines


async def claim_block(store: BlockStore, size: int, owner: str, now_ms: int) -> ProducerIdBlock:
    """Claim a block by hand, for use outside of the gateways. Raises the errors of `BlockStore.claim`."""
    return await store.claim(size, owner, now_ms)


async def find_owner(store: BlockStore, producer_id: int) -> ProducerIdBlock | None:
    """Return the block that holds `producer_id`; None when no such block was claimed. Raises StoreUnavailable."""
    return arithmetic.owner_of(await store.blocks(), producer_id)


async def find_overlaps(store: BlockStore) -> list[Overlap]:
    """Return every pair of blocks that share ids; a sound store has no such pair. Raises StoreUnavailable."""
    return arithmetic.overlaps(await store.blocks())


async def move_next(store: BlockStore, producer_id: int) -> NextMoved:
    """Make the next block begin at `producer_id` or later.

    Raises ValueError for a number that is no producer id, NextIdBehind, and StoreUnavailable.
    """
    if not 0 <= producer_id <= MAX_PRODUCER_ID:
        raise ValueError(f"a producer id must be between 0 and {MAX_PRODUCER_ID}, not {producer_id}")
    return NextMoved(await store.move_next(producer_id), producer_id)
