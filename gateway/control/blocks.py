"""Operations on the blocks of producer ids, over any store: a running gateway's, a stopped one's, or Redis itself."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final

from gateway.control.errors import ControlError
from gateway.control.messages import MAX_PAGE_ROWS
from gateway.control.results import BlockPage, BlockRow, Moved, OverlapRow, Overlaps, Owner
from pid_allocator import (
    BlockStore,
    BlockStoreError,
    BlockUsage,
    ProducerIdAllocator,
    ProducerIdBlock,
    ProducerIdsExhausted,
    UsageStore,
    administration,
)

IN_USE: Final = "in use"
"""The running gateway takes its ids from here."""
NEXT: Final = "next"
"""Claimed ahead by the running gateway."""
USED_UP: Final = "used up"
GIVEN_UP: Final = "given up"
"""A gateway that took ids from here has stopped since: the rest is never handed out."""
CLAIMED: Final = "claimed"
"""Some gateway's; which of its blocks it uses is not known here."""
BY_HAND: Final = "by hand"
"""Claimed with `seqgate pids claim`."""

_GATEWAY_NAME = re.compile(r"node-\d+")
MAX_OWNER_LENGTH: Final = 200


@dataclass(slots=True)
class BlockSource:
    """A store of blocks with what is known beside it.

    `allocator` is the running gateway's. In a `shared` store several gateways claim, so a block that is not this
    gateway's may be in use by another one. `owner` is the name under which this gateway claims.
    """

    name: str
    store: BlockStore
    next_producer_id: Callable[[], Awaitable[int]]
    shared: bool
    usage: UsageStore | None = None
    close: Callable[[], Awaitable[None]] | None = None
    """Gives back what `store` holds open."""
    allocator: ProducerIdAllocator | None = None
    owner: str | None = None
    first_of_this_run: int | None = None
    """The first id of the first block this run of the gateway took ids from; later ones of it are used up or at hand."""


async def list_blocks(source: BlockSource, position: int, limit: int) -> BlockPage:
    """One page of the blocks in the order of their claims. Raises ControlError."""
    if position < 0 or not 1 <= limit <= MAX_PAGE_ROWS:
        raise ControlError(f"a page begins at 0 or later and has 1 to {MAX_PAGE_ROWS} rows")
    with _told_in_a_sentence():
        usages = await administration.list_blocks(source.store, source.usage)
        next_producer_id = await source.next_producer_id()
    page = usages[position : position + limit]
    return BlockPage(source.name, next_producer_id, len(usages), [_row(source, usage) for usage in page])


async def find_owner(source: BlockSource, producer_id: int) -> Owner:
    """The block that holds an id. Raises ControlError."""
    with _told_in_a_sentence():
        block = await administration.find_owner(source.store, producer_id)
        next_producer_id = await source.next_producer_id()
        used = {} if block is None or source.usage is None else await source.usage.used()
    if block is None:
        return Owner(producer_id, None, False, next_producer_id)
    row = _row(source, administration.with_usage([block], used)[0])
    handed_out = None if row.used is None else producer_id < row.first_producer_id + row.used
    return Owner(producer_id, row, handed_out, next_producer_id)


async def find_overlaps(source: BlockSource) -> Overlaps:
    """Compare all blocks with each other. Raises ControlError."""
    with _told_in_a_sentence():
        found = await administration.find_overlaps(source.store)
        checked = len(await source.store.blocks())
    return Overlaps(
        checked,
        [
            OverlapRow(
                overlap.first_producer_id,
                overlap.last_producer_id,
                _row(source, BlockUsage(overlap.lower, None, None)),
                _row(source, BlockUsage(overlap.upper, None, None)),
            )
            for overlap in found
        ],
    )


async def claim_block(source: BlockSource, size: int, owner: str, now_ms: int) -> BlockRow:
    """Claim a block for use outside the gateways. Raises ControlError."""
    if size < 1:
        raise ControlError(f"a block holds at least one producer id, not {size}")
    if not 0 < len(owner) <= MAX_OWNER_LENGTH or not owner.isprintable():
        raise ControlError(f"an owner is 1 to {MAX_OWNER_LENGTH} printable characters")
    if _GATEWAY_NAME.fullmatch(owner):
        raise ControlError(f"{owner} is the name of a gateway, which claims for itself; choose another owner")
    with _told_in_a_sentence():
        return _row(
            source,
            BlockUsage(await administration.claim_block(source.store, size, owner, now_ms), None, None),
        )


async def move_next(source: BlockSource, producer_id: int) -> Moved:
    """Hand out no id below `producer_id` any more; a running gateway gives up what it holds below. Raises ControlError."""
    with _told_in_a_sentence():
        moved = await administration.move_next(source.store, producer_id)
    if source.allocator is not None:
        source.allocator.give_up_below(producer_id)
        if source.first_of_this_run is not None:
            source.first_of_this_run = max(source.first_of_this_run, producer_id)
    return Moved(moved.previous, moved.current)


@contextlib.contextmanager
def _told_in_a_sentence() -> Iterator[None]:
    """Turn what a store raises into a ControlError."""
    try:
        yield
    except (BlockStoreError, ProducerIdsExhausted, ValueError) as error:
        raise ControlError(str(error)) from error


def _row(source: BlockSource, usage: BlockUsage) -> BlockRow:
    used, left, state = _usage_and_state(source, usage)
    block = usage.block
    return BlockRow(
        block.first_producer_id, block.last_producer_id, block.owner, block.claimed_at_ms, used, left, state
    )


def _usage_and_state(source: BlockSource, usage: BlockUsage) -> tuple[int | None, int | None, str]:
    block = usage.block
    if source.allocator is not None:
        state = source.allocator.state()
        if block == state.current:
            return state.used, state.left, IN_USE if state.left else USED_UP
        if block == state.prefetched:
            return 0, block.size, NEXT
    if not _GATEWAY_NAME.fullmatch(block.owner):
        return usage.used, usage.left, BY_HAND
    if _is_of_this_run(source, block):
        return block.size, 0, USED_UP
    if usage.left == 0:
        return usage.used, 0, USED_UP
    # A gateway that runs knows its blocks; one that does not run has given up all of them.
    given_up = not source.shared or block.owner == source.owner
    return usage.used, usage.left, GIVEN_UP if given_up else CLAIMED


def _is_of_this_run(source: BlockSource, block: ProducerIdBlock) -> bool:
    return (
        source.first_of_this_run is not None
        and block.owner == source.owner
        and block.first_producer_id >= source.first_of_this_run
    )
