"""Hands out producer ids from claimed blocks, and claims the next block ahead of need."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pid_allocator.block_store import BlockStore, BlockStoreError, UsageStore
from pid_allocator.blocks import ProducerIdBlock

DEFAULT_BLOCK_SIZE: Final = 1_000
DEFAULT_PREFETCH_AT: Final = 0.9
DEFAULT_RETRY_MS: Final = 1_000


class NoProducerIds(Exception):
    """The claimed ids are used up and no new block could be claimed yet. Retriable: the allocator keeps trying."""


@dataclass(frozen=True, slots=True)
class AllocatorState:
    """What the allocator holds now: the block in use, how much of it, the block waiting, the last claim's error."""

    current: ProducerIdBlock | None
    used: int
    left: int
    prefetched: ProducerIdBlock | None
    last_error: str | None


class ProducerIdAllocator:
    """Producer ids, each handed out once.

    A block comes from the store durable, so an id can be handed out at once; after a crash the rest of the block is
    given up. One claim runs at a time. With the store away, the ids at hand go on; after a failed claim the next one
    starts with the first call that comes `retry_ms` later. `clock` returns milliseconds and only paces these retries
    and dates the claims. Belongs to one event loop. `block_size` and `prefetch_at` may be changed while it is in use.
    """

    def __init__(
        self,
        store: BlockStore,
        block_size: int = DEFAULT_BLOCK_SIZE,
        *,
        owner: str,
        clock: Callable[[], int],
        prefetch_at: float = DEFAULT_PREFETCH_AT,
        retry_ms: int = DEFAULT_RETRY_MS,
        usage: UsageStore | None = None,
    ) -> None:
        """Begin without ids. Raises ValueError for a block size below 1 or a share outside 0 to 1."""
        if block_size < 1:
            raise ValueError(f"a block holds at least one producer id, not {block_size}")
        if not 0 <= prefetch_at <= 1:
            raise ValueError(f"prefetch_at is a share between 0 and 1, not {prefetch_at}")
        self._store = store
        self.block_size = block_size
        self.prefetch_at = prefetch_at
        self._owner = owner
        self._clock = clock
        self._retry_ms = retry_ms
        self._usage = usage
        self._current: ProducerIdBlock | None = None
        self._next_producer_id = 0
        self._lowest_producer_id = 0
        self._prefetched: ProducerIdBlock | None = None
        self._claim: asyncio.Task[None] | None = None
        self._report: asyncio.Task[None] | None = None
        self._last_error: Exception | None = None
        self._failed_at_ms = 0
        self._closed = False

    async def start(self) -> bool:
        """Claim the first block; tell whether there are ids now. A store that is away does not stop the gateway."""
        if self._current is None:
            await asyncio.wait({self._begin_claim()})
            self._advance()
        return self._current is not None

    async def close(self) -> None:
        """Stop a claim or report that is under way. The rest of the blocks at hand is given up."""
        self._closed = True
        tasks = {task for task in (self._claim, self._report) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def next_producer_id(self) -> int:
        """Return an id that was never handed out before. Waits for the store only when no id is at hand.

        Raises NoProducerIds when none is left and the store gives no new block.
        """
        while True:
            if self._advance():
                producer_id = self._next_producer_id
                self._next_producer_id += 1
                self._prefetch()
                self._begin_report()
                return producer_id
            if self._closed or (self._claim is None and self._pausing()):
                raise self._no_producer_ids()
            await asyncio.wait({self._begin_claim()})
            if self._last_error is not None and not self._advance():
                raise self._no_producer_ids()

    def give_up_below(self, producer_id: int) -> None:
        """Hand out no id below `producer_id` any more; what lies below in the blocks at hand is given up."""
        self._lowest_producer_id = max(self._lowest_producer_id, producer_id)
        if self._current is not None:
            self._next_producer_id = max(self._next_producer_id, producer_id)
            if self._current.last_producer_id < producer_id:
                self._current = None
        if not self._advance() and not self._closed:
            self._begin_claim()

    def state(self) -> AllocatorState:
        """Return what is at hand now."""
        current = self._current
        used = 0 if current is None else self._next_producer_id - current.first_producer_id
        return AllocatorState(
            current=current,
            used=used,
            left=0 if current is None else current.size - used,
            prefetched=self._prefetched,
            last_error=None if self._last_error is None else str(self._last_error),
        )

    def _advance(self) -> bool:
        """Take up the claimed block when the current one is used up; tell whether an id is at hand."""
        if self._current is not None and self._next_producer_id <= self._current.last_producer_id:
            return True
        block, self._prefetched = self._prefetched, None
        if block is None or block.last_producer_id < self._lowest_producer_id:
            return False
        self._current = block
        self._next_producer_id = max(block.first_producer_id, self._lowest_producer_id)
        return True

    def _prefetch(self) -> None:
        state = self.state()
        if (
            state.current is not None
            and state.used >= self.prefetch_at * state.current.size
            and self._prefetched is None
            and self._claim is None
            and not self._closed
            and not self._pausing()
        ):
            self._begin_claim()

    def _pausing(self) -> bool:
        if self._last_error is None:
            return False
        # A clock set back must not stop the retries.
        return 0 <= self._clock() - self._failed_at_ms < self._retry_ms

    def _begin_claim(self) -> asyncio.Task[None]:
        if self._claim is None:
            self._claim = asyncio.create_task(self._claim_block(), name="claim producer ids")
        return self._claim

    async def _claim_block(self) -> None:
        try:
            self._prefetched = await self._store.claim(self.block_size, self._owner, self._clock())
            self._last_error = None
        except Exception as error:  # noqa: BLE001 - whatever a store raises, the ids at hand go on and the claim is retried
            self._last_error = error
            self._failed_at_ms = self._clock()
        finally:
            self._claim = None

    def _no_producer_ids(self) -> NoProducerIds:
        return NoProducerIds(f"No producer id is left and no new block could be claimed: {self._last_error}")

    def _begin_report(self) -> None:
        if self._usage is not None and self._report is None:
            self._report = asyncio.create_task(
                self._report_used(self._usage), name="report used producer ids"
            )

    async def _report_used(self, usage: UsageStore) -> None:
        """Tell the usage until it is told as it is; one report at a time, whatever the pace of new ids."""
        told: tuple[int, int] | None = None
        try:
            while self._current is not None:
                first_producer_id = self._current.first_producer_id
                latest = (first_producer_id, self._next_producer_id - first_producer_id)
                if latest == told:
                    return
                await usage.report_used(*latest)
                told = latest
        except BlockStoreError:
            # Only a number in a table: the next id handed out tells it again.
            return
        finally:
            self._report = None
