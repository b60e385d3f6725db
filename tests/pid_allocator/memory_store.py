"""A block store in memory. A test can hold back, fail and count its claims."""

from __future__ import annotations

import asyncio

from seqgate.pid_allocator import NextIdBehind, ProducerIdBlock, StoreUnavailable, block_at


class MemoryStore:
    def __init__(self) -> None:
        self.claimed: list[ProducerIdBlock] = []
        self.moved_to = 0
        self.counts: dict[int, int] = {}
        self.calls = 0
        self.away = False
        self.error: Exception = StoreUnavailable("the store is away")
        self.open = asyncio.Event()
        self.open.set()
        self.running = 0
        self.refused_reports = 0
        self.most_running = 0

    async def claim(self, size: int, owner: str, now_ms: int) -> ProducerIdBlock:
        self.calls += 1
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        try:
            await self.open.wait()
            if self.away:
                raise self.error
            block = block_at(self._next(), size, owner, now_ms)
            self.claimed.append(block)
            return block
        finally:
            self.running -= 1

    async def blocks(self) -> list[ProducerIdBlock]:
        return list(self.claimed)

    async def move_next(self, producer_id: int) -> int:
        previous = self._next()
        if producer_id < previous:
            raise NextIdBehind(f"the next id is {previous}")
        self.moved_to = producer_id
        return previous

    async def next_producer_id(self) -> int:
        return self._next()

    def _next(self) -> int:
        return max([self.moved_to, *(block.next_producer_id for block in self.claimed)])

    async def report_used(self, first_producer_id: int, used: int) -> None:
        await self.open.wait()
        if self.away:
            self.refused_reports += 1
            raise self.error
        self.counts[first_producer_id] = used

    async def used(self) -> dict[int, int]:
        return self.counts
