"""The stores of producer-id blocks: that of a running gateway, a data directory that no gateway has open, or
Redis.

Reading a data directory needs no lock and changes nothing: it replays the batches of the metadata log up to
the first torn one. Claiming and moving take the directory's lock and write as a gateway does, so that the
answer comes after the records are durable. Only the metadata log is opened; the partitions stay as they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from seqgate.gateway.admin.operation import StoppedGateway
from seqgate.gateway.admin.pids import EMBEDDED, REDIS
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.stored import metadata_directory, open_metadata, read_image
from seqgate.gateway.config import Config
from seqgate.gateway.config.packages import install
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.runtime.topics.producer_ids import SEEN_FILE, EmbeddedBlockStore, blocks_of
from seqgate.pid_allocator import (
    BlockStore,
    LastSeen,
    LastSeenPort,
    ProducerIdAllocator,
    ProducerIdBlock,
    StoreUnavailable,
    UsageStore,
)

_OR_REDIS: Final = ", or Redis with --redis"


@dataclass(slots=True)
class BlockSource:
    """A store of blocks, and the running gateway's knowledge of them.

    In a `shared` store several gateways claim blocks, so a block may belong to another gateway. `allocator`
    and `owner`, the name under which the running gateway claims blocks, are None without a running gateway.
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


# Of a gateway that does not run.


def stopped_source(gateway: StoppedGateway, *, changes: bool) -> AbstractAsyncContextManager[BlockSource]:
    """Return a context that yields the store of a stopped gateway, opened for changes or only to be read."""
    if gateway.config.str("seqgate.producer.id.store") == REDIS:
        return _in_redis(gateway)
    if changes:
        return open_embedded(gateway.data_dir, gateway.config.int("node.id"))
    return contextlib.nullcontext(read_embedded(gateway.data_dir))


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


def read_embedded(data_dir: Path) -> BlockSource:
    """Return the blocks in a data directory, without the lock and without a change. Raises ControlError."""
    image = read_image(metadata_directory(data_dir, _OR_REDIS))
    _check_is_embedded(data_dir, image)
    return _source(_ReadOnlyBlocks(blocks_of(image)), image)


@contextlib.asynccontextmanager
async def open_embedded(data_dir: Path, node_id: int) -> AsyncIterator[BlockSource]:
    """Yield the blocks in a data directory, under its lock. Raises ControlError, also when it is taken."""
    async with open_metadata(data_dir, _OR_REDIS) as metadata_log:
        _check_is_embedded(data_dir, metadata_log.image)
        yield _source(EmbeddedBlockStore(metadata_log, node_id), metadata_log.image)


class _ReadOnlyBlocks:
    """A store that lists its blocks and refuses to change them."""

    def __init__(self, stored: list[ProducerIdBlock]) -> None:
        self._stored = stored

    async def blocks(self) -> list[ProducerIdBlock]:
        return self._stored

    async def claim(self, size: int, owner: str, now_ms: int) -> ProducerIdBlock:  # noqa: ARG002 - interface
        raise StoreUnavailable("the data directory is open for reading only")

    async def move_next(self, producer_id: int) -> int:  # noqa: ARG002 - interface
        raise StoreUnavailable("the data directory is open for reading only")


def _source(store: _ReadOnlyBlocks | EmbeddedBlockStore, image: MetadataImage) -> BlockSource:
    async def next_producer_id() -> int:
        return image.next_producer_id

    return BlockSource(name=EMBEDDED, store=store, next_producer_id=next_producer_id, shared=False)


def _check_is_embedded(data_dir: Path, image: MetadataImage) -> None:
    """Refuse a data directory whose gateway takes its ids from Redis: it would never use the claim."""
    if not image.producer_id_blocks and (data_dir / SEEN_FILE).exists():
        raise ControlError(
            f"the gateway of {data_dir} takes its producer ids from Redis; name the Redis with --redis, or "
            "the gateway's settings file with --config"
        )


# Of a running gateway, and Redis.


class _SeenByTheGateway:
    """The highest id that a gateway saw in the shared store; an operator's claim never changes it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def load(self) -> LastSeen | None:
        """Return the highest id that the gateway has saved, or None if it has saved none."""
        from seqgate.pid_allocator.seen_file import load_seen  # noqa: PLC0415 - only with Redis

        return await load_seen(self._path)

    async def save(self, last_seen: LastSeen) -> None:
        """Save nothing: only the gateway writes the file, and the gateway may be claiming a block now."""


def gateway_source(services: Services) -> BlockSource:
    """Return the store of a running gateway."""
    config = services.node.config
    owner = f"node-{services.node.node_id}"
    allocator = services.coordinators.producer_ids
    current = allocator.state().current
    if config.str("seqgate.producer.id.store") == EMBEDDED:
        image = services.topics.metadata_log.image

        async def next_producer_id() -> int:
            return image.next_producer_id

        return BlockSource(
            name=EMBEDDED,
            store=EmbeddedBlockStore(services.topics.metadata_log, services.node.node_id),
            next_producer_id=next_producer_id,
            shared=False,
            others_run=lambda: len(services.node.brokers.live_ids) > 1,
            allocator=allocator,
            owner=owner,
            first_of_this_run=None if current is None else current.first_producer_id,
        )
    source = redis_source(config, last_seen=_SeenByTheGateway(Path(config.str("log.dirs")) / SEEN_FILE))
    source.allocator = allocator
    source.owner = owner
    return source


def redis_source(config: Config, *, last_seen: LastSeenPort | None = None) -> BlockSource:
    """Return the store in the settings' Redis. Raises ValueError: bad address, ControlError: no client."""
    try:
        from seqgate.pid_allocator.redis_store import RedisBlockStore  # noqa: PLC0415 - only with Redis
    except ModuleNotFoundError as error:
        raise ControlError(install(error.name, "seqgate.producer.id.store=redis", REDIS)) from None

    timeout_ms = config.int("seqgate.redis.timeout.ms")
    store = RedisBlockStore(
        config.str("seqgate.redis.url"),
        key_prefix=config.str("seqgate.redis.prefix"),
        connect_timeout_ms=timeout_ms,
        request_timeout_ms=timeout_ms,
        last_seen=last_seen,
    )
    return BlockSource(
        name=REDIS,
        store=store,
        next_producer_id=store.next_producer_id,
        shared=True,
        usage=store,
        close=store.close,
    )
