"""Operations on the blocks of producer ids, over any store: that of a running gateway, of a stopped one, or Redis itself."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final

from gateway.admin.pids.messages import BlockPage, BlockRow, Moved, OverlapRow, Overlaps, Owner
from gateway.admin.request import ControlError
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
"""The running gateway takes its ids from this block."""
NEXT: Final = "next"
"""The running gateway has claimed this block ahead."""
USED_UP: Final = "used up"
"""Every id of this block is handed out."""
GIVEN_UP: Final = "given up"
"""The gateway that used this block has stopped since. The remaining ids are never handed out."""
CLAIMED: Final = "claimed"
"""Another gateway has claimed this block, and may use it."""
BY_HAND: Final = "by hand"
"""An operator has claimed this block with `seqgate pids claim`."""

_GATEWAY_NAME = re.compile(r"node-\d+")
MAX_OWNER_LENGTH: Final = 200
"""Characters of an owner's name; a claim for a longer name is refused."""


@dataclass(slots=True)
class BlockSource:
    """A store of blocks, and the running gateway's knowledge of them.

    In a `shared` store several gateways claim blocks, so a block may belong to another gateway. `allocator` and
    `owner`, the name under which the running gateway claims blocks, are None without a running gateway.
    """

    name: str
    store: BlockStore
    next_producer_id: Callable[[], Awaitable[int]]
    shared: bool
    usage: UsageStore | None = None
    others_run: Callable[[], bool] = lambda: False
    """Returns whether other gateways of a cluster claim blocks in the store now."""
    close: Callable[[], Awaitable[None]] | None = None
    """Close the connections of `store`."""
    allocator: ProducerIdAllocator | None = None
    owner: str | None = None
    first_of_this_run: int | None = None
    """The first id that this run of the gateway has claimed; its later blocks are used up, in use or next."""


async def list_blocks(source: BlockSource, position: int, limit: int) -> BlockPage:
    """Return one page of the blocks, in the order of their claims. Raises ControlError."""
    if position < 0:
        raise ControlError(f"position must be 0 or higher, not {position}")
    with _as_control_error():
        usages = await administration.list_blocks(source.store, source.usage)
        next_producer_id = await source.next_producer_id()
    page = usages[position : position + limit]
    return BlockPage(source.name, next_producer_id, len(usages), [_row(source, usage) for usage in page])


async def find_owner(source: BlockSource, producer_id: int) -> Owner:
    """Return the block that holds an id. Raises ControlError."""
    with _as_control_error():
        block = await administration.find_owner(source.store, producer_id)
        next_producer_id = await source.next_producer_id()
        used = {} if block is None or source.usage is None else await source.usage.used()
    if block is None:
        return Owner(producer_id, None, False, next_producer_id)
    row = _row(source, administration.with_usage([block], used)[0])
    handed_out = None if row.used is None else producer_id < row.first_producer_id + row.used
    return Owner(producer_id, row, handed_out, next_producer_id)


async def find_overlaps(source: BlockSource) -> Overlaps:
    """Return the blocks that share ids. Raises ControlError."""
    with _as_control_error():
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
        raise ControlError(f"size must be at least 1, not {size}")
    if not 0 < len(owner) <= MAX_OWNER_LENGTH or not owner.isprintable():
        raise ControlError(f"owner must be 1 to {MAX_OWNER_LENGTH} printable characters, not {owner!r:.60}")
    if _GATEWAY_NAME.fullmatch(owner):
        raise ControlError(f"{owner} is the name of a gateway, which claims for itself; choose another owner")
    with _as_control_error():
        return _row(
            source,
            BlockUsage(await administration.claim_block(source.store, size, owner, now_ms), None, None),
        )


async def move_next(source: BlockSource, producer_id: int) -> Moved:
    """Move the next id forward; a running gateway gives up the lower ids that it holds. Raises ControlError."""
    with _as_control_error():
        moved = await administration.move_next(source.store, producer_id)
    if source.allocator is not None:
        source.allocator.give_up_below(producer_id)
        if source.first_of_this_run is not None:
            source.first_of_this_run = max(source.first_of_this_run, producer_id)
    return Moved(moved.previous, moved.current)


@contextlib.contextmanager
def _as_control_error() -> Iterator[None]:
    """Turn errors of a store into ControlError."""
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
    # A running gateway knows its blocks. A stopped one has given up all of its own.
    is_of_others = block.owner != source.owner
    given_up = not (is_of_others and (source.shared or source.others_run()))
    return usage.used, usage.left, GIVEN_UP if given_up else CLAIMED


def _is_of_this_run(source: BlockSource, block: ProducerIdBlock) -> bool:
    return (
        source.first_of_this_run is not None
        and block.owner == source.owner
        and block.first_producer_id >= source.first_of_this_run
    )
