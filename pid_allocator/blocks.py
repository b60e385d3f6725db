"""The arithmetic of producer id blocks: ranges, overlaps, owners. Pure.

Producer ids are non-negative 64-bit integers. A block is a range of ids that belongs to one gateway for good.
Ids that the owner of a block never used are lost, which does no harm: there are 2**62 ids. The ids above
are those that gateways derive for batches of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

import msgspec

from seqgate.seq_validator import FIRST_DERIVED_ID

MAX_PRODUCER_ID: Final = FIRST_DERIVED_ID - 1


class ProducerIdsExhausted(Exception):
    """No block of the wanted size is left below 2**62."""


class ProducerIdBlock(msgspec.Struct, frozen=True):
    """A claimed range of ids, `last_producer_id` inclusive; `claimed_at_ms` is by the claimant's clock."""

    first_producer_id: int
    last_producer_id: int
    owner: str
    claimed_at_ms: int

    def __post_init__(self) -> None:
        """Raise ValueError when the range is empty or lies outside of 0 to MAX_PRODUCER_ID."""
        if not 0 <= self.first_producer_id <= self.last_producer_id <= MAX_PRODUCER_ID:
            raise ValueError(
                f"a block of producer ids must not be empty and must lie between 0 and {MAX_PRODUCER_ID}, "
                f"not {self.first_producer_id} to {self.last_producer_id}"
            )

    @property
    def size(self) -> int:
        return self.last_producer_id - self.first_producer_id + 1

    @property
    def next_producer_id(self) -> int:
        """The first id after the block."""
        return self.last_producer_id + 1

    def __contains__(self, producer_id: int) -> bool:
        """Return True when `producer_id` lies in the block."""
        return self.first_producer_id <= producer_id <= self.last_producer_id


class Overlap(msgspec.Struct, frozen=True):
    """The ids that two blocks share. `last_producer_id` is inclusive; `lower` begins first."""

    lower: ProducerIdBlock
    upper: ProducerIdBlock
    first_producer_id: int
    last_producer_id: int


def block_at(next_producer_id: int, size: int, owner: str, now_ms: int) -> ProducerIdBlock:
    """Return the block of `size` ids that begins at `next_producer_id`. Raises ProducerIdsExhausted when the
    block would not end below 2**62, ValueError for a size below 1.
    """
    if size < 1:
        raise ValueError(f"the size of a block must be at least 1, not {size}")
    if next_producer_id + size - 1 > MAX_PRODUCER_ID:
        raise ProducerIdsExhausted(f"fewer than {size} producer ids are left from {next_producer_id} on")
    return ProducerIdBlock(next_producer_id, next_producer_id + size - 1, owner, now_ms)


def owner_of(blocks: Iterable[ProducerIdBlock], producer_id: int) -> ProducerIdBlock | None:
    """Return the block that holds `producer_id`, the first claimed one of several; None without one."""
    return min(
        (block for block in blocks if producer_id in block),
        key=lambda block: block.claimed_at_ms,
        default=None,
    )


def overlaps(blocks: Iterable[ProducerIdBlock]) -> list[Overlap]:
    """Return every pair of blocks that share ids, ordered by the upper block. Sound data has no such pair.
    Costs O(n log n + overlaps).
    """
    found: list[Overlap] = []
    reaching: list[ProducerIdBlock] = []
    for upper in sorted(blocks, key=lambda block: (block.first_producer_id, block.last_producer_id)):
        reaching = [lower for lower in reaching if lower.last_producer_id >= upper.first_producer_id]
        found.extend(
            Overlap(
                lower, upper, upper.first_producer_id, min(lower.last_producer_id, upper.last_producer_id)
            )
            for lower in reaching
        )
        reaching.append(upper)
    return found


# The ports of the allocator: the store that blocks come from, and a gateway's memory of a shared store.


class BlockStoreError(Exception):
    """A block store refused or failed an operation; the message is a sentence for the operator."""


class StoreUnavailable(BlockStoreError):
    """The store did not answer in time, or can't write now. Retry later."""


class StoreWentBack(BlockStoreError):
    """The store's data was lost, replaced, or set back to an older state.

    Nothing was claimed. The error stays until an operator moves the store's next id forward.
    """


class UnknownStoreVersion(BlockStoreError):
    """A later release wrote the data of the store, or of the gateway's memory of it. Nothing was claimed."""


class NextIdBehind(BlockStoreError):
    """The next id would move back; it can only move forward."""


class BlockStore(Protocol):
    """The store from which gateways claim blocks of producer ids. A block belongs to one owner for ever."""

    async def claim(self, size: int, owner: str, now_ms: int) -> ProducerIdBlock:
        """Claim and return a block that nobody had before. The claim is durable before this returns. Raises
        StoreUnavailable, StoreWentBack, UnknownStoreVersion, or ProducerIdsExhausted.
        """

    async def blocks(self) -> list[ProducerIdBlock]:
        """Return all claimed blocks, in the order of their claims. Raises StoreUnavailable."""

    async def move_next(self, producer_id: int) -> int:
        """Make the next block begin at `producer_id` or later; return the previous next id. Raises
        NextIdBehind when `producer_id` is below the current next id, and StoreUnavailable.
        """


class UsageStore(Protocol):
    """The store to which gateways report how many ids of a block went out. Only `seqgate pids` reads it."""

    async def report_used(self, first_producer_id: int, used: int) -> None:
        """Store that `used` ids of the block at `first_producer_id` went out. Raises BlockStoreError."""

    async def used(self) -> dict[int, int]:
        """Return the number of ids handed out, by the first id of the block. Raises BlockStoreError."""


class LastSeen(msgspec.Struct, frozen=True):
    """The highest state of a shared store that a gateway saw: identity and next id (end of all claims)."""

    store_id: str
    next_producer_id: int


class LastSeenPort(Protocol):
    """The gateway's own durable memory of a shared store."""

    async def load(self) -> LastSeen | None:
        """Return the saved LastSeen; None on a gateway that never claimed a block."""

    async def save(self, last_seen: LastSeen) -> None:
        """Save `last_seen`, durable before this returns."""
