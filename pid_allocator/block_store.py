"""The ports of the allocator: where blocks come from, and what a gateway remembers of a shared store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pid_allocator.blocks import ProducerIdBlock


class BlockStoreError(Exception):
    """A block store can't do what was asked; the message is a sentence for the operator."""


class StoreUnavailable(BlockStoreError):
    """The store did not answer in time, or can't write now. Trying again later is right."""


class StoreWentBack(BlockStoreError):
    """The store knows less than it did: its data was lost, replaced, or set back to an older state.

    Nothing was claimed. It stays so until an operator moves the store's next id forward.
    """


class UnknownStoreVersion(BlockStoreError):
    """A later release wrote what the store, or the gateway's memory of it, holds. Nothing was claimed."""


class NextIdBehind(BlockStoreError):
    """The next id can only be moved forward."""


class BlockStore(Protocol):
    """Where blocks of producer ids are claimed, for ever and by one owner each."""

    async def claim(self, size: int, owner: str, now_ms: int) -> ProducerIdBlock:
        """Return a block that nobody ever had, durable before it is returned.

        Raises StoreUnavailable, StoreWentBack, UnknownStoreVersion, or ProducerIdsExhausted.
        """

    async def blocks(self) -> list[ProducerIdBlock]:
        """Return all blocks claimed so far, in the order of their claims. Raises StoreUnavailable."""

    async def move_next(self, producer_id: int) -> int:
        """Let the next block begin at `producer_id` or later; return the next id as it was before.

        Raises NextIdBehind when `producer_id` lies before the present next id, and StoreUnavailable.
        """


class UsageStore(Protocol):
    """Where a gateway tells how many ids of its block it has handed out, for `seqgate pids` only."""

    async def report_used(self, first_producer_id: int, used: int) -> None:
        """Note that `used` ids of the block beginning at `first_producer_id` are handed out. Raises BlockStoreError."""

    async def used(self) -> dict[int, int]:
        """Return the number of ids handed out by the block's first id. Raises BlockStoreError."""


@dataclass(frozen=True, slots=True)
class LastSeen:
    """The furthest a gateway ever saw a shared store: its identity and its next id (exclusive end of all claims)."""

    store_id: str
    next_producer_id: int


class LastSeenPort(Protocol):
    """The gateway's own durable memory of a shared store."""

    async def load(self) -> LastSeen | None:
        """Return what was saved last; None on a gateway that never claimed."""

    async def save(self, last_seen: LastSeen) -> None:
        """Keep `last_seen`, durable before this returns."""
