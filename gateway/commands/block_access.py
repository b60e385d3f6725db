"""Finds the blocks of producer ids for `seqgate pids`: a running gateway's, a stopped one's, or those in Redis."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from gateway.config import Config
from gateway.control import blocks
from gateway.control.blocks import BlockSource
from gateway.control.client import ask
from gateway.control.errors import ControlError, NotRunning
from gateway.control.messages import (
    MAX_PAGE_ROWS,
    PAGE_ROWS,
    ClaimBlockRequest,
    FindOverlapsRequest,
    FindOwnerRequest,
    ListBlocksRequest,
    MoveNextRequest,
)
from gateway.control.results import BlockPage, BlockRow, Moved, Overlaps, Owner
from gateway.control.sources import REDIS

RUNNING = "running"
STOPPED = "stopped"
T = TypeVar("T")


class BlockListing(msgspec.Struct, frozen=True):
    """All blocks of a store. `gateway` is "running" or "stopped", None for Redis, which knows no gateway."""

    store: str
    gateway: str | None
    next_producer_id: int
    total: int
    blocks: list[BlockRow]


class BlockAccess(Protocol):
    """What the commands ask and do. All methods raise ControlError."""

    def list(self, last: int | None) -> BlockListing: ...
    def owner(self, producer_id: int) -> Owner: ...
    def overlaps(self) -> Overlaps: ...
    def claim(self, size: int, owner: str) -> BlockRow: ...
    def move(self, producer_id: int) -> Moved: ...


def find_blocks(config: Config, data_dir: Path, redis: str | None, prefix: str | None) -> BlockAccess:
    """Redis when it is named, else the gateway that runs on the data directory, else what lies there."""
    if redis is not None or prefix is not None:
        return _redis_blocks(config, redis, prefix)
    running = RunningBlocks(data_dir)
    try:
        running.page(0, 1)
    except NotRunning:
        if config.str("seqgate.producer.id.store") == REDIS:
            return _redis_blocks(config, None, None)
        return _stopped_blocks(config, data_dir)
    return running


@dataclass(frozen=True, slots=True)
class RunningBlocks:
    """Asks the gateway that runs on `data_dir`."""

    data_dir: Path

    def page(self, position: int, limit: int) -> BlockPage:
        return ask(self.data_dir, ListBlocksRequest(position, limit), BlockPage)

    def list(self, last: int | None) -> BlockListing:
        page = self.page(0, 1)
        position = 0 if last is None else max(0, page.total - last)
        rows: list[BlockRow] = []
        while position + len(rows) < page.total:
            page = self.page(position + len(rows), PAGE_ROWS)
            rows += page.blocks
        return BlockListing(page.store, RUNNING, page.next_producer_id, page.total, rows)

    def owner(self, producer_id: int) -> Owner:
        return ask(self.data_dir, FindOwnerRequest(producer_id), Owner)

    def overlaps(self) -> Overlaps:
        return ask(self.data_dir, FindOverlapsRequest(), Overlaps)

    def claim(self, size: int, owner: str) -> BlockRow:
        return ask(self.data_dir, ClaimBlockRequest(size, owner), BlockRow)

    def move(self, producer_id: int) -> Moved:
        return ask(self.data_dir, MoveNextRequest(producer_id), Moved)


@dataclass(frozen=True, slots=True)
class StoredBlocks:
    """Works on a store without a gateway; each of the two opens it for one operation."""

    gateway: str | None
    to_look: Callable[[], AbstractAsyncContextManager[BlockSource]]
    to_change: Callable[[], AbstractAsyncContextManager[BlockSource]]

    def list(self, last: int | None) -> BlockListing:
        async def work(source: BlockSource) -> BlockListing:
            rows: list[BlockRow] = []
            page = await blocks.list_blocks(source, 0, 1)
            position = 0 if last is None else max(0, page.total - last)
            while position + len(rows) < page.total:
                page = await blocks.list_blocks(source, position + len(rows), MAX_PAGE_ROWS)
                rows += page.blocks
            return BlockListing(page.store, self.gateway, page.next_producer_id, page.total, rows)

        return _run(self.to_look, work)

    def owner(self, producer_id: int) -> Owner:
        return _run(self.to_look, lambda source: blocks.find_owner(source, producer_id))

    def overlaps(self) -> Overlaps:
        return _run(self.to_look, blocks.find_overlaps)

    def claim(self, size: int, owner: str) -> BlockRow:
        now_ms = time.time_ns() // 1_000_000
        return _run(self.to_change, lambda source: blocks.claim_block(source, size, owner, now_ms))

    def move(self, producer_id: int) -> Moved:
        return _run(self.to_change, lambda source: blocks.move_next(source, producer_id))


def _run(
    opener: Callable[[], AbstractAsyncContextManager[BlockSource]],
    work: Callable[[BlockSource], Awaitable[T]],
) -> T:
    async def opened() -> T:
        async with opener() as source:
            return await work(source)

    return asyncio.run(opened())


def _stopped_blocks(config: Config, data_dir: Path) -> StoredBlocks:
    from gateway.control.stopped import look_at, open_to_change

    @contextlib.asynccontextmanager
    async def looking() -> AsyncIterator[BlockSource]:
        yield look_at(data_dir)

    return StoredBlocks(STOPPED, looking, lambda: open_to_change(data_dir, config.int("node.id")))


def _redis_blocks(config: Config, url: str | None, prefix: str | None) -> StoredBlocks:
    from gateway.control.sources import redis_source

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[BlockSource]:
        try:
            source = redis_source(config, url=url, prefix=prefix)
        except ValueError as error:
            raise ControlError(f"the address of Redis is not understood: {error}") from error
        try:
            yield source
        finally:
            if source.close is not None:
                await source.close()

    return StoredBlocks(None, opened, opened)
