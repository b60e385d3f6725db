"""The ports of the allocator: the store that blocks come from, and a gateway's memory of a shared store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pid_allocator.blocks import ProducerIdBlock


class BlockStoreError(Exception):
    """A block store refused or failed an operation; the message is a sentence for the operator."""


class StoreUnavailable(BlockStoreError):
    """The store did not answer in time, or can't write now. Retry later."""


class StoreWentBack(BlockStoreError):
    """The store's data was lost, replaced, or set back to an older state.

    Nothing was claimed. The error stays until an operator moves the store's next id forward.
    """


class UnknownStoreVersion(BlockStoreError):
    """A later release wrote the data of the store, or of the gateway's memory of the store. Nothing was claimed."""


class NextIdBehind(BlockStoreError):
    """The next id would move back; it can only move forward."""


class BlockStore(Protocol):
    """The store from which gateways claim blocks of producer ids. A block belongs to one owner for ever."""

    async def claim(self, size: int, owner: str, now_ms: int) -> ProducerIdBlock:
        """Claim and return a block that nobody had before. The claim is durable before this returns.

        Raises StoreUnavailable, StoreWentBack, UnknownStoreVersion, or ProducerIdsExhausted.
        """

    async def blocks(self) -> list[ProducerIdBlock]:
        """Return all claimed blocks, in the order of their claims. Raises StoreUnavailable."""

    async def move_next(self, producer_id: int) -> int:
        """Make the next block begin at `producer_id` or later; return the previous next id.

        Raises NextIdBehind when `producer_id` is below the current next id, and StoreUnavailable.
        """


class UsageStore(Protocol):
    """The store to which a gateway reports how many ids of its block were handed out. Only `seqgate pids` reads it."""

    async def report_used(self, first_producer_id: int, used: int) -> None:
        """Store that `used` ids of the block at `first_producer_id` were handed out. Raises BlockStoreError."""

    async def used(self) -> dict[int, int]:
        """Return the number of ids handed out, by the first id of the block. Raises BlockStoreError."""


@dataclass(frozen=True, slots=True)
class LastSeen:
    """The highest state of a shared store that a gateway saw: its identity and its next id (exclusive end of all claims)."""

    store_id: str
    next_producer_id: int


class LastSeenPort(Protocol):
    """The gateway's own durable memory of a shared store."""

    async def load(self) -> LastSeen | None:
        """Return the saved LastSeen; None on a gateway that never claimed a block."""

    async def save(self, last_seen: LastSeen) -> None:
        """Save `last_seen`, durable before this returns."""
