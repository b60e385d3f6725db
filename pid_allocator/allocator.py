"""Hands out producer ids from claimed blocks, and claims the next block ahead of need."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from seqgate.pid_allocator.blocks import BlockStore, BlockStoreError, ProducerIdBlock, UsageStore


class NoProducerIds(Exception):
    """The claimed ids are used up, and no new block is claimed yet. Retriable: the allocator keeps trying."""


class AllocatorState(msgspec.Struct, frozen=True):
    """An allocator's state: the block in use, its ids used and left, the next block, the last claim error."""

    current: ProducerIdBlock | None
    used: int
    left: int
    prefetched: ProducerIdBlock | None
    last_error: str | None


class ProducerIdAllocator:
    """The source of a gateway's producer ids; it hands out each id once.

    A claimed block is durable, so its ids can be handed out at once; after a crash the rest of the block is
    lost. One claim runs at a time, in a task. While the store is unavailable, the allocator hands out the ids
    of its blocks. After a failed claim, the first call that comes `retry_ms` later starts the next claim.
    `clock` returns milliseconds; it only paces the retries and dates the claims. An allocator belongs to one
    event loop. `block_size` and `prefetch_at` may be changed while the allocator is in use.
    """

    def __init__(
        self,
        store: BlockStore,
        block_size: int = 1_000,
        *,
        owner: str,
        clock: Callable[[], int],
        prefetch_at: float = 0.9,
        retry_ms: int = 1_000,
        usage: UsageStore | None = None,
    ) -> None:
        """Begin without ids. Raises ValueError: `block_size` is below 1, `prefetch_at` outside of 0 to 1."""
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1, not {block_size}")
        if not 0 <= prefetch_at <= 1:
            raise ValueError(f"prefetch_at must be between 0 and 1, not {prefetch_at}")
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
        self.first_of_this_run: int | None = None
        """The first claimed id that was not given up; None before the first block."""
        self.claimed_blocks = 0
        self.failed_claims = 0

    async def start(self) -> bool:
        """Claim the first block; return True when there are ids. An unavailable store stops no gateway."""
        if self._current is None:
            await asyncio.wait({self._begin_claim()})
            self._advance()
        return self._current is not None

    async def close(self) -> None:
        """Cancel the claim and the report in flight. The unused ids of the claimed blocks are lost."""
        self._closed = True
        tasks = {task for task in (self._claim, self._report) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def next_producer_id(self) -> int:
        """Return an id that was never handed out before. Wait for the store only when no claimed id is left.
        Raises NoProducerIds when no claimed id is left and no new block can be claimed.
        """
        while True:
            if self._advance():
                producer_id = self._next_producer_id
                self._next_producer_id += 1
                self._prefetch()
                self._begin_report()
                return producer_id
            if self._closed or (self._claim is None and self._is_pausing()):
                raise self._no_producer_ids()
            await asyncio.wait({self._begin_claim()})
            if self._last_error is not None and not self._advance():
                raise self._no_producer_ids()

    def give_up_below(self, producer_id: int) -> None:
        """Stop handing out ids below `producer_id`; such ids of the claimed blocks are lost."""
        self._lowest_producer_id = max(self._lowest_producer_id, producer_id)
        if self.first_of_this_run is not None:
            self.first_of_this_run = max(self.first_of_this_run, producer_id)
        if self._current is not None:
            self._next_producer_id = max(self._next_producer_id, producer_id)
            if self._current.last_producer_id < producer_id:
                self._current = None
        if not self._advance() and not self._closed:
            self._begin_claim()

    def state(self) -> AllocatorState:
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
        """Begin with the next block when the current block is used up; return True when an id is left."""
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
            and not self._is_pausing()
        ):
            self._begin_claim()

    def _is_pausing(self) -> bool:
        """Return True when the last claim failed less than `retry_ms` ago."""
        if self._last_error is None:
            return False
        # The lower bound: a clock that was set back must not stop the retries.
        return 0 <= self._clock() - self._failed_at_ms < self._retry_ms

    def _begin_claim(self) -> asyncio.Task[None]:
        if self._claim is None:
            self._claim = asyncio.create_task(self._claim_block(), name="claim producer ids")
        return self._claim

    async def _claim_block(self) -> None:
        try:
            self._prefetched = await self._store.claim(self.block_size, self._owner, self._clock())
            if self.first_of_this_run is None:
                self.first_of_this_run = self._prefetched.first_producer_id
            self._last_error = None
            self.claimed_blocks += 1
        except Exception as error:  # noqa: BLE001 - after any error, the claim is retried, and ids go out
            self._last_error = error
            self.failed_claims += 1
            self._failed_at_ms = self._clock()
        finally:
            self._claim = None

    def _no_producer_ids(self) -> NoProducerIds:
        reason = "the allocator is closed" if self._last_error is None else self._last_error
        return NoProducerIds(f"No producer id is left, and no new block could be claimed: {reason}")

    def _begin_report(self) -> None:
        if self._usage is not None and self._report is None:
            self._report = asyncio.create_task(
                self._report_used(self._usage), name="report used producer ids"
            )

    async def _report_used(self, usage: UsageStore) -> None:
        """Report the usage until the newest is reported: one report at a time, however fast ids go out."""
        reported: tuple[int, int] | None = None
        try:
            while self._current is not None:
                first_producer_id = self._current.first_producer_id
                latest = (first_producer_id, self._next_producer_id - first_producer_id)
                if latest == reported:
                    return
                await usage.report_used(*latest)
                reported = latest
        except BlockStoreError:
            # Usage is only shown to operators, and the next id handed out starts a new report.
            return
        finally:
            self._report = None
