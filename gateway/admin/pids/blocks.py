"""The blocks of producer ids of a gateway, running or not: in its data directory, or in Redis.

Of a gateway that does not run, reading needs no lock and changes nothing: it replays the batches of the
metadata log up to the first torn one. Claiming and moving take the directory's lock and write as a gateway
does, so that the answer comes after the records are durable. Only the metadata log is opened; the partitions
stay as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from seqgate.gateway.admin.operation import ControlOperation, LiveGateway, Q, StoppedGateway
from seqgate.gateway.admin.pids.command import (
    EMBEDDED,
    REDIS,
    BlockPage,
    BlockRow,
    ClaimBlockRequest,
    FindOverlapsRequest,
    FindOwnerRequest,
    ListBlocksRequest,
    MovedNextId,
    MoveNextRequest,
    OverlapRow,
    Overlaps,
    Owner,
)
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.stored import metadata_directory, open_metadata, read_image
from seqgate.gateway.config import Config
from seqgate.gateway.config.packages import install
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.runtime.topics.producer_ids import SEEN_FILE, EmbeddedBlockStore, blocks_of
from seqgate.pid_allocator import (
    BlockStore,
    BlockStoreError,
    BlockUsage,
    LastSeen,
    LastSeenPort,
    ProducerIdAllocator,
    ProducerIdBlock,
    ProducerIdsExhausted,
    StoreUnavailable,
    UsageStore,
    overlaps,
    owner_of,
)
from seqgate.pid_allocator import allocator as administration

_OR_REDIS: Final = ", or Redis with --redis"


# The operations on a running gateway, and on one that does not run.


def operation(
    request: type[Q], work: Callable[[BlockSource, Q, int], Awaitable[Any]], *, changes: bool = False
) -> ControlOperation[Q]:
    """Return the operation of a request: `work` on the blocks, at a time in ms. Raises ControlError."""

    @functools.wraps(work)
    def run_live(gateway: LiveGateway, asked: Q) -> Awaitable[Any]:
        return work(gateway.blocks, asked, gateway.services.node.clock.now_ms())

    @functools.wraps(work)
    def run_stopped(gateway: StoppedGateway, asked: Q) -> Any:
        async def run() -> Any:
            async with _opened(gateway, changes=changes) as source:
                return await work(source, asked, gateway.now_ms)

        return asyncio.run(run())

    return ControlOperation(request, run_live, run_stopped, changes)


def _opened(gateway: StoppedGateway, *, changes: bool) -> AbstractAsyncContextManager[BlockSource]:
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


# The stores of producer-id blocks: that of a running gateway, and Redis.


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


# Operations on the blocks of producer ids, over any store: that of a running gateway, of a stopped one, or
# Redis itself.

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


async def list_blocks(source: BlockSource, request: ListBlocksRequest, _: int) -> BlockPage:
    """Return one page of the blocks, in the order of their claims. Raises ControlError."""
    position = request.position
    if position < 0:
        raise ControlError(f"position must be 0 or higher, not {position}")
    with _as_control_error():
        usages = await administration.list_blocks(source.store, source.usage)
        next_producer_id = await source.next_producer_id()
    page = usages[position : position + request.limit]
    return BlockPage(source.name, next_producer_id, len(usages), [_row(source, usage) for usage in page])


async def find_owner(source: BlockSource, request: FindOwnerRequest, _: int) -> Owner:
    """Return the block that holds an id. Raises ControlError."""
    producer_id = request.producer_id
    with _as_control_error():
        block = owner_of(await source.store.blocks(), producer_id)
        next_producer_id = await source.next_producer_id()
        used = {} if block is None or source.usage is None else await source.usage.used()
    if block is None:
        return Owner(producer_id, None, False, next_producer_id)
    row = _row(source, administration.with_usage([block], used)[0])
    handed_out = None if row.used is None else producer_id < row.first_producer_id + row.used
    return Owner(producer_id, row, handed_out, next_producer_id)


async def find_overlaps(source: BlockSource, _asked: FindOverlapsRequest, _: int) -> Overlaps:
    """Return the blocks that share ids. Raises ControlError."""
    with _as_control_error():
        blocks = await source.store.blocks()
    return Overlaps(
        len(blocks),
        [
            OverlapRow(
                overlap.first_producer_id,
                overlap.last_producer_id,
                _row(source, BlockUsage(overlap.lower, None, None)),
                _row(source, BlockUsage(overlap.upper, None, None)),
            )
            for overlap in overlaps(blocks)
        ],
    )


async def claim_block(source: BlockSource, request: ClaimBlockRequest, now_ms: int) -> BlockRow:
    """Claim a block for use outside the gateways. Raises ControlError."""
    size, owner = request.size, request.owner
    if size < 1:
        raise ControlError(f"size must be at least 1, not {size}")
    if not 0 < len(owner) <= MAX_OWNER_LENGTH or not owner.isprintable():
        raise ControlError(f"owner must be 1 to {MAX_OWNER_LENGTH} printable characters, not {owner!r:.60}")
    if _GATEWAY_NAME.fullmatch(owner):
        raise ControlError(f"{owner} is the name of a gateway, which claims for itself; choose another owner")
    with _as_control_error():
        return _row(source, BlockUsage(await source.store.claim(size, owner, now_ms), None, None))


async def move_next(source: BlockSource, request: MoveNextRequest, _: int) -> MovedNextId:
    """Move the next id forward; a running gateway gives up its lower ids. Raises ControlError."""
    producer_id = request.producer_id
    with _as_control_error():
        previous = await administration.move_next(source.store, producer_id)
    if source.allocator is not None:
        source.allocator.give_up_below(producer_id)
        if source.first_of_this_run is not None:
            source.first_of_this_run = max(source.first_of_this_run, producer_id)
    return MovedNextId(previous, producer_id)


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


OPERATIONS: Final[tuple[ControlOperation[Any], ...]] = (
    operation(ListBlocksRequest, list_blocks),
    operation(FindOwnerRequest, find_owner),
    operation(FindOverlapsRequest, find_overlaps),
    operation(ClaimBlockRequest, claim_block, changes=True),
    operation(MoveNextRequest, move_next, changes=True),
)
