"""The blocks of producer ids of a gateway that does not run: in its data directory, or in Redis.

Reading needs no lock and changes nothing: it replays the batches of the metadata log up to the first torn one. Claiming and
moving take the directory's lock and write as a gateway does, so that the answer comes after the records are durable. Only the
metadata log is opened; the partitions stay as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, TypeVar

from gateway.admin.pids import blocks
from gateway.admin.pids.blocks import BlockSource
from gateway.admin.pids.messages import (
    EMBEDDED,
    REDIS,
    BlockPage,
    BlockRow,
    ClaimBlockRequest,
    FindOverlapsRequest,
    FindOwnerRequest,
    ListBlocksRequest,
    Moved,
    MoveNextRequest,
    Overlaps,
    Owner,
)
from gateway.admin.pids.sources import redis_source
from gateway.admin.request import ControlError
from gateway.admin.stopped_gateway import StoppedGateway
from gateway.admin.stored import metadata_directory, open_metadata, read_image
from gateway.metadata.image import MetadataImage
from gateway.runtime.topics.embedded_block_store import EmbeddedBlockStore, blocks_of
from gateway.runtime.topics.producer_id_source import SEEN_FILE
from pid_allocator import ProducerIdBlock, StoreUnavailable

_OR_REDIS: Final = ", or Redis with --redis"
T = TypeVar("T")


def list_blocks(gateway: StoppedGateway, request: ListBlocksRequest) -> BlockPage:
    """Return all blocks from a position on. Raises ControlError."""
    return _run(_reading(gateway), lambda source: blocks.list_blocks(source, request.position, sys.maxsize))


def find_owner(gateway: StoppedGateway, request: FindOwnerRequest) -> Owner:
    """Return the block that holds an id. Raises ControlError."""
    return _run(_reading(gateway), lambda source: blocks.find_owner(source, request.producer_id))


def find_overlaps(gateway: StoppedGateway, _: FindOverlapsRequest) -> Overlaps:
    """Return the blocks that share ids. Raises ControlError."""
    return _run(_reading(gateway), blocks.find_overlaps)


def claim_block(gateway: StoppedGateway, request: ClaimBlockRequest) -> BlockRow:
    """Claim a block for use outside the gateways. Raises ControlError."""
    return _run(
        _changing(gateway),
        lambda source: blocks.claim_block(source, request.size, request.owner, gateway.now_ms),
    )


def move_next(gateway: StoppedGateway, request: MoveNextRequest) -> Moved:
    """Move the next id forward. Raises ControlError."""
    return _run(_changing(gateway), lambda source: blocks.move_next(source, request.producer_id))


def _run(opened: AbstractAsyncContextManager[BlockSource], work: Callable[[BlockSource], Awaitable[T]]) -> T:
    async def run() -> T:
        async with opened as source:
            return await work(source)

    return asyncio.run(run())


def _reading(gateway: StoppedGateway) -> AbstractAsyncContextManager[BlockSource]:
    return _in_redis(gateway) if _takes_ids_from_redis(gateway) else _read_embedded(gateway.data_dir)


def _changing(gateway: StoppedGateway) -> AbstractAsyncContextManager[BlockSource]:
    if _takes_ids_from_redis(gateway):
        return _in_redis(gateway)
    return open_embedded(gateway.data_dir, gateway.config.int("node.id"))


def _takes_ids_from_redis(gateway: StoppedGateway) -> bool:
    return gateway.config.str("seqgate.producer.id.store") == REDIS


@contextlib.asynccontextmanager
async def _in_redis(gateway: StoppedGateway) -> AsyncIterator[BlockSource]:
    """Yield the blocks in the Redis of the settings. Raises ControlError."""
    try:
        source = redis_source(gateway.config)
    except ValueError as error:
        raise ControlError(f"the address of Redis is malformed: {error}") from error
    try:
        yield source
    finally:
        if source.close is not None:
            await source.close()


@contextlib.asynccontextmanager
async def _read_embedded(data_dir: Path) -> AsyncIterator[BlockSource]:
    yield read_embedded(data_dir)


def read_embedded(data_dir: Path) -> BlockSource:
    """Return the blocks in a data directory, without the lock and without a change. Raises ControlError."""
    image = read_image(metadata_directory(data_dir, _OR_REDIS))
    _check_is_embedded(data_dir, image)
    return _source(_ReadOnlyBlocks(blocks_of(image)), image)


@contextlib.asynccontextmanager
async def open_embedded(data_dir: Path, node_id: int) -> AsyncIterator[BlockSource]:
    """Yield the blocks in a data directory, under its lock. Raises ControlError, also when a gateway holds the lock."""
    async with open_metadata(data_dir, _OR_REDIS) as metadata_log:
        _check_is_embedded(data_dir, metadata_log.image)
        yield _source(EmbeddedBlockStore(metadata_log, node_id), metadata_log.image)


class _ReadOnlyBlocks:
    """A store that lists its blocks and refuses to change them."""

    def __init__(self, stored: list[ProducerIdBlock]) -> None:
        self._stored = stored

    async def blocks(self) -> list[ProducerIdBlock]:
        return self._stored

    async def claim(self, size: int, owner: str, now_ms: int) -> ProducerIdBlock:  # noqa: ARG002 - part of the port
        raise StoreUnavailable("the data directory is open for reading only")

    async def move_next(self, producer_id: int) -> int:  # noqa: ARG002 - part of the port
        raise StoreUnavailable("the data directory is open for reading only")


def _source(store: _ReadOnlyBlocks | EmbeddedBlockStore, image: MetadataImage) -> BlockSource:
    async def next_producer_id() -> int:
        return image.next_producer_id

    return BlockSource(name=EMBEDDED, store=store, next_producer_id=next_producer_id, shared=False)


def _check_is_embedded(data_dir: Path, image: MetadataImage) -> None:
    """Refuse a data directory whose gateway takes its ids from Redis: its gateway would never use a claim made here."""
    if not image.producer_id_blocks and (data_dir / SEEN_FILE).exists():
        raise ControlError(
            f"the gateway of {data_dir} takes its producer ids from Redis; name the Redis with --redis, or the gateway's "
            "settings file with --config"
        )
