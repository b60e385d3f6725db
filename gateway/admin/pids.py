"""`seqgate pids`: the blocks of producer ids."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from seqgate.gateway.admin.client import Client
from seqgate.gateway.admin.commands import Commands, Output, argument, asks, option
from seqgate.gateway.admin.operation import ControlOperation, LiveGateway, Q, StoppedGateway
from seqgate.gateway.admin.options import ConfigFile, Consented, DataDir, Opened, Timeout, asking
from seqgate.gateway.admin.request import POSITION, STOPPED, ControlError, PagedRequest, Request
from seqgate.gateway.admin.tables import UNKNOWN, Block, Column, count, counted, moment, number, table

if TYPE_CHECKING:
    from seqgate.gateway.config import Config
    from seqgate.gateway.metadata.image import MetadataImage
    from seqgate.gateway.runtime.services import Services
    from seqgate.gateway.runtime.topics.producer_ids import EmbeddedBlockStore
    from seqgate.pid_allocator import (
        BlockStore,
        LastSeenPort,
        ProducerIdAllocator,
        ProducerIdBlock,
        UsageStore,
    )

# The requests about blocks of producer ids, and what `seqgate pids … --json` prints.
# Times are milliseconds since the Unix epoch; ranges of producer ids are inclusive.


EMBEDDED: Final = "embedded"
"""The store in the gateway's own metadata log."""
REDIS: Final = "redis"
"""The store that several gateways share."""


class BlockRow(msgspec.Struct, frozen=True):
    """A block of producer ids. `used` and `left` are counts of ids, None where nobody knows them. `state` is
    one of the words of `seqgate pids list --help`.
    """

    first_producer_id: Annotated[int, Column("first id", number)]
    last_producer_id: Annotated[int, Column("last id", number)]
    owner: Annotated[str, Column("owner")]
    claimed_at_ms: Annotated[int, Column("claimed", moment)]
    used: Annotated[int | None, Column("used", count, UNKNOWN)]
    left: Annotated[int | None, Column("left", count, UNKNOWN)]
    state: Annotated[str, Column("state")]

    @property
    def range(self) -> Annotated[str, Column("block")]:
        """The ids of the block, both inclusive."""
        return f"{self.first_producer_id} to {self.last_producer_id}"


class BlockPage(msgspec.Struct, frozen=True):
    """Some of the `total` blocks of the store, and the lowest id at which the next block can begin."""

    store: str
    next_producer_id: int
    total: int
    blocks: list[BlockRow]


class ListBlocksRequest(PagedRequest[BlockPage], tag="pids.list"):
    """The claimed blocks from index `position` on, in the order of their claims."""

    network_right = "DESCRIBE"
    rows = "blocks"
    key = POSITION
    position: int = 0


class Owner(msgspec.Struct, frozen=True):
    """The block that holds a producer id; None if no block holds the id. `handed_out` says whether a producer
    received the id, None where nobody knows.
    """

    producer_id: int
    block: BlockRow | None
    handed_out: bool | None
    next_producer_id: int


class FindOwnerRequest(Request[Owner], tag="pids.owner"):
    """The block that holds a producer id."""

    network_right = "DESCRIBE"
    producer_id: int


class OverlapRow(msgspec.Struct, frozen=True):
    """Ids that two blocks share."""

    first_producer_id: int
    last_producer_id: int
    lower: BlockRow
    upper: BlockRow

    @property
    def shared(self) -> Annotated[str, Column("shared ids")]:
        """The shared ids, both inclusive."""
        return f"{self.first_producer_id} to {self.last_producer_id}"


class Overlaps(msgspec.Struct, frozen=True):
    """The check of all blocks: the store is sound when `overlaps` is empty."""

    checked: int
    overlaps: list[OverlapRow]


class FindOverlapsRequest(Request[Overlaps], tag="pids.overlaps"):
    """The blocks that share ids."""

    network_right = "DESCRIBE"


class ClaimBlockRequest(Request[BlockRow], tag="pids.claim"):
    """Claim a block for ids used outside the gateways."""

    size: int
    owner: str


class MovedNextId(msgspec.Struct, frozen=True):
    """The next id before and after the move."""

    previous: int
    current: int


class MoveNextRequest(Request[MovedNextId], tag="pids.move"):
    """The request to hand out no more ids below `producer_id`."""

    producer_id: int


# One answer from those of several gateways to one store, of which each knows the use of its own blocks.


def joined_blocks(pages: Sequence[BlockPage]) -> BlockPage:
    """Return each block once, as the gateway tells it that knows most of it."""
    found: dict[tuple[int, int, str, int], BlockRow] = {}
    for row in (row for page in pages for row in page.blocks):
        key = row.first_producer_id, row.last_producer_id, row.owner, row.claimed_at_ms
        found[key] = max(found.get(key, row), row, key=_knowledge)
    return BlockPage(
        store=", ".join(sorted({page.store for page in pages})),
        next_producer_id=max(page.next_producer_id for page in pages),
        total=max(page.total for page in pages),
        blocks=list(found.values()),
    )


def joined_owner(answers: Sequence[Owner]) -> Owner:
    """Return the block of an id as the gateway tells it that knows most of the block."""
    told = max(answers, key=lambda answer: (-1, -1) if answer.block is None else _knowledge(answer.block))
    return msgspec.structs.replace(told, next_producer_id=max(answer.next_producer_id for answer in answers))


def joined_overlaps(answers: Sequence[Overlaps]) -> Overlaps:
    """Return each pair of blocks that share ids once."""
    found = {
        (row.lower.first_producer_id, row.lower.owner, row.upper.first_producer_id, row.upper.owner): row
        for answer in answers
        for row in answer.overlaps
    }
    return Overlaps(max(answer.checked for answer in answers), list(found.values()))


def _knowledge(block: BlockRow) -> tuple[int, int]:
    """Return how much a row tells of its block: other gateways than the owner call a block claimed."""
    return _STATES.get(block.state, -1), -1 if block.used is None else block.used


# The commands.

app = Commands("""Look at and administer the blocks of producer ids.

A gateway takes the ids it hands out (InitProducerId) from blocks that it claims \
from a store: its own data directory,
or a Redis that several gateways share. An id is handed out once, ever.

With --redis the commands use that Redis. Without it they ask the gateway that runs on --data-dir; \
when no gateway runs, they read the
data directory itself (or the Redis of its --config file).
""")

Redis = Annotated[
    str | None,
    option(
        "--redis",
        "URL",
        "Use this Redis: redis://[user:password@]host:port/db. Better keep a password in SEQGATE_REDIS_URL.",
    ),
]
Prefix = Annotated[
    str | None,
    option(
        "--prefix",
        "PREFIX",
        "Prefix of the keys in Redis (seqgate.redis.prefix); implies Redis.",
        show_default="seqgate:",
    ),
]
ProducerId = Annotated[int, argument("PRODUCER_ID", "A producer id.", min=0)]

NOT_CLAIMED: Final = "would be claimed"
"""The state of a block in the plan of a claim."""
BLOCK: Final = "first_producer_id last_producer_id owner claimed_at_ms used left state"
_FORGOTTEN: Final = (
    (
        "The gateway is not running. How many ids of its blocks it handed out is not written down (?); the "
        "rest of"
    ),
    "each is given up: the next start claims a new block.",
)


def store(
    data_dir: DataDir = None,
    redis: Redis = None,
    prefix: Prefix = None,
    config_file: ConfigFile = None,
    timeout_s: Timeout = None,
) -> Opened[Client]:
    """Return a client for Redis if an option names it, otherwise for the gateway on `data_dir`."""
    limit = [] if timeout_s is None else [f"seqgate.redis.timeout.ms={timeout_s * 1000}"]
    settings = [] if redis is None else [f"seqgate.redis.url={redis}"]
    if prefix is not None:
        settings.append(f"seqgate.redis.prefix={prefix}")
    if not settings:
        return asking(config_file, data_dir, limit, timeout_s=timeout_s)
    return asking(
        config_file, data_dir, (f"seqgate.producer.id.store={REDIS}", *settings, *limit), asks_gateway=False
    )


@app.command("list")
@asks(store, first=True)
def list_blocks(
    opened: Opened[Client],
    last: int | None = option("--last", "N", "Only the last N claimed blocks.", show_default="all", min=1),
) -> Output:
    """List the blocks of producer ids.

    One line per block, in the order of their claims: its range, who claimed it when, how many of its ids are
    handed out, how many are left, and its state.

    \b
    State of a block:
      in use     the running gateway takes its ids from this block
      next       claimed ahead by the running gateway
      used up    every id is handed out
      given up   its gateway has stopped since; the other ids are never handed out
      claimed    claimed by another gateway of the same store, which may use it
      by hand    claimed with `seqgate pids claim`
    """  # noqa: D301 - \b keeps the lines of the list apart
    with opened as client:
        position = 0
        if last is not None:
            _, behind_all = client.ask_running_or_data_directory(ListBlocksRequest(sys.maxsize))
            position = max(0, behind_all.total - last)
        gateway, page = client.ask_running_or_data_directory(ListBlocksRequest(position))
    document = {
        "store": page.store,
        "gateway": None if gateway == STOPPED and page.store == REDIS else gateway,
        "next_producer_id": page.next_producer_id,
        "total": page.total,
        "blocks": page.blocks,
    }
    return Output(document, _listing_text(gateway, page))


@app.command("claim")
@asks(store)
def claim(
    opened: Opened[Client],
    *,
    size: int = argument("SIZE", "Number of ids.", show_default=True, min=1, default=1000),
    owner: str = option(
        "--owner", "OWNER", "Owner of the block, as the list shows it.", show_default=True, default="operator"
    ),
    consent: Consented,
) -> Output:
    """Claim a block for use outside the gateways. Says what it would claim, and asks.

    The gateways will never hand these ids out. Gateways claim their own blocks by themselves. A claim can't
    be taken back, and is refused where fewer ids are left. With --json the command never asks: without --yes
    it only reports.
    """
    from seqgate.pid_allocator import block_at  # noqa: PLC0415 - slow to import

    with opened as client:

        def claim_it(execute: bool) -> BlockRow:
            if execute:
                return client.ask_running_or_data_directory(ClaimBlockRequest(size, owner))[1]
            _check_owner(owner)
            first = client.ask_running_or_data_directory(ListBlocksRequest(sys.maxsize))[1].next_producer_id
            with _as_control_error():
                block = block_at(first, size, owner, 0)
            return BlockRow(first, block.last_producer_id, owner, 0, None, None, NOT_CLAIMED)

        block = consent.plan_ask_and_do(claim_it, _claim_text, "Claim them?")
    return Output(block, _claim_text(block))


@app.command("owner")
@asks(store)
def show_owner(opened: Opened[Client], producer_id: ProducerId) -> Output:
    """Show who owns a producer id.

    That is, who claimed the block of the id, and whether the id is handed out. Exits with 1 when no block
    holds the id.
    """
    with opened as client:
        _, found = client.ask_running_or_data_directory(FindOwnerRequest(producer_id))
    block = [] if found.block is None else [table(BlockRow, [found.block], BLOCK)]
    return Output(found, [*block, _about_owner(found)], code=0 if block else 1)


@app.command("move")
@asks(store)
def move_next(
    opened: Opened[Client],
    *,
    next_producer_id: int = argument("NEXT_ID", "The lowest id that may be handed out from now on.", min=0),
    consent: Consented,
) -> Output:
    """Move the next id forward. Says which ids of the blocks in use are given up, and asks.

    No later block begins below it. The next id never moves back. Needed when a store was lost or restored
    from a backup, and higher ids than the store knows may have been handed out. The running gateway gives up
    its lower ids at once; other gateways on the same Redis use their blocks up first. A move can't be taken
    back. With --json the command never asks: without --yes it only reports.
    """
    with opened as client:
        page = client.ask_running_or_data_directory(ListBlocksRequest())[1]
        lost = sum(_given_up(block, next_producer_id) for block in page.blocks)

        def move(execute: bool) -> MovedNextId:
            if execute:
                return client.ask_running_or_data_directory(MoveNextRequest(next_producer_id))[1]
            _check_producer_id(next_producer_id)
            if next_producer_id < page.next_producer_id:
                raise ControlError(
                    f"the next producer id can't be moved back from {page.next_producer_id} to "
                    f"{next_producer_id}"
                )
            return MovedNextId(page.next_producer_id, next_producer_id)

        def text(moved: MovedNextId) -> Iterator[Block]:
            yield f"The next block begins at {moved.current} or later; before, it was {moved.previous}."
            if lost:
                yield f"Given up, and never handed out: {counted(lost, 'id')} of the blocks in use."

        moved = consent.plan_ask_and_do(move, text, "Move the next id?")
    return Output(moved, text(moved))


def _given_up(block: BlockRow, next_producer_id: int) -> int:
    """Return how many ids of a block that are not handed out lie below the next id."""
    if not block.left or block.used is None:
        return 0
    return max(0, min(block.last_producer_id + 1, next_producer_id) - (block.first_producer_id + block.used))


def _claim_text(block: BlockRow) -> Iterator[Block]:
    size = block.last_producer_id - block.first_producer_id + 1
    if block.state == NOT_CLAIMED:
        first = f"{block.first_producer_id} or later"
        yield f"{counted(size, 'id')} from {first} {NOT_CLAIMED} for {block.owner}."
    else:
        yield f"Claimed {block.range} ({counted(size, 'id')}) for {block.owner}."


@app.command("check")
@asks(store)
def check(opened: Opened[Client]) -> Output:
    """Check that no two blocks overlap.

    Exits with 1 when blocks overlap.
    """
    with opened as client:
        _, result = client.ask_running_or_data_directory(FindOverlapsRequest())
    return Output(result, _overlaps_text(result), code=1 if result.overlaps else 0)


def _overlaps_text(result: Overlaps) -> Iterator[Block]:
    checked = f"{counted(result.checked, 'block')} checked"
    if not result.overlaps:
        yield f"{checked}: no id is in two of them."
        return
    yield table(OverlapRow, result.overlaps, "shared lower.range lower.owner upper.range upper.owner")
    yield f"{checked}: {counted(len(result.overlaps), 'pair')} of them share ids."
    yield "Ids from them may be in use twice. Restore the store, or move the next id beyond all blocks."


def _listing_text(gateway: str, page: BlockPage) -> Iterator[Block]:
    yield table(BlockRow, page.blocks, BLOCK)
    shown = "" if len(page.blocks) == page.total else f", the last {count(len(page.blocks))} shown"
    yield f"{counted(page.total, 'block')} in the {page.store} store{shown}."
    yield f"The next one begins at {page.next_producer_id} or later."
    if gateway == STOPPED and page.store != REDIS and page.blocks:
        yield from _FORGOTTEN


def _about_owner(found: Owner) -> str:
    if found.block is None:
        if found.producer_id >= found.next_producer_id:
            return (
                f"{found.producer_id} is not claimed yet; "
                f"the next block begins at {found.next_producer_id} or later."
            )
        return f"{found.producer_id} was skipped: no block holds it, and none will."
    outcome = {
        True: "It was handed out.",
        False: "It was not handed out so far.",
        None: "Whether it was handed out is not known.",
    }
    return f"{found.producer_id} belongs to {found.block.owner}. {outcome[found.handed_out]}"


# In the gateway, in a data directory, or in Redis: the answers, over a `BlockSource`.

IN_USE: Final = "in use"
NEXT: Final = "next"
USED_UP: Final = "used up"
GIVEN_UP: Final = "given up"
CLAIMED: Final = "claimed"
BY_HAND: Final = "by hand"
_STATES: Final = {
    state: number for number, state in enumerate((BY_HAND, CLAIMED, GIVEN_UP, USED_UP, NEXT, IN_USE))
}
"""The states, which `list_blocks` explains, the one that only the owner of a block knows last."""

_GATEWAY_NAME = re.compile(r"node-\d+")
MAX_OWNER_LENGTH: Final = 200
"""Characters of an owner's name; a claim for a longer name is refused."""


def operations() -> list[ControlOperation[Any]]:
    """Return the operations on a running gateway's blocks, and on those of one that does not run."""
    return [
        _operation(ListBlocksRequest, list_of_blocks),
        _operation(FindOwnerRequest, find_owner),
        _operation(FindOverlapsRequest, find_overlaps),
        _operation(ClaimBlockRequest, claim_block, changes=True),
        _operation(MoveNextRequest, move_next_id, changes=True),
    ]


def _operation(
    request: type[Q], work: Callable[[BlockSource, Q, int], Awaitable[Any]], *, changes: bool = False
) -> ControlOperation[Q]:
    """Return the operation of a request: `work` on the blocks, at a time in ms. Raises ControlError."""
    import asyncio  # noqa: PLC0415 - slow to import

    @functools.wraps(work)
    def run_live(gateway: LiveGateway, asked: Q) -> Awaitable[Any]:
        return work(gateway.blocks, asked, gateway.services.node.clock.now_ms())

    @functools.wraps(work)
    def run_stopped(gateway: StoppedGateway, asked: Q) -> Any:
        async def run() -> Any:
            async with stopped_source(gateway, changes=changes) as source:
                return await work(source, asked, gateway.now_ms)

        return asyncio.run(run())

    return ControlOperation(request, run_live, run_stopped, changes)


async def list_of_blocks(source: BlockSource, request: ListBlocksRequest, _: int) -> BlockPage:
    """Return one page of the blocks, in the order of their claims. Raises ControlError."""
    position = request.position
    if position < 0:
        raise ControlError(f"position must be 0 or higher, not {position}")
    with _as_control_error():
        used, blocks = await source.used(), await source.store.blocks()
        next_producer_id = await source.next_producer_id()
    page = blocks[position : position + request.limit]
    rows = [_row(source, block, used.get(block.first_producer_id)) for block in page]
    return BlockPage(source.name, next_producer_id, len(blocks), rows)


async def find_owner(source: BlockSource, request: FindOwnerRequest, _: int) -> Owner:
    """Return the block that holds an id. Raises ControlError."""
    from seqgate.pid_allocator import owner_of  # noqa: PLC0415 - slow to import

    producer_id = request.producer_id
    with _as_control_error():
        block = owner_of(await source.store.blocks(), producer_id)
        next_producer_id = await source.next_producer_id()
        used = {} if block is None else await source.used()
    if block is None:
        return Owner(producer_id, None, False, next_producer_id)
    row = _row(source, block, used.get(block.first_producer_id))
    handed_out = None if row.used is None else producer_id < row.first_producer_id + row.used
    return Owner(producer_id, row, handed_out, next_producer_id)


async def find_overlaps(source: BlockSource, _asked: FindOverlapsRequest, _: int) -> Overlaps:
    """Return the blocks that share ids. Raises ControlError."""
    from seqgate.pid_allocator import overlaps  # noqa: PLC0415 - slow to import

    with _as_control_error():
        blocks = await source.store.blocks()
    return Overlaps(
        len(blocks),
        [
            OverlapRow(
                overlap.first_producer_id,
                overlap.last_producer_id,
                _row(source, overlap.lower),
                _row(source, overlap.upper),
            )
            for overlap in overlaps(blocks)
        ],
    )


async def claim_block(source: BlockSource, request: ClaimBlockRequest, now_ms: int) -> BlockRow:
    """Claim a block for use outside the gateways. Raises ControlError."""
    size, owner = request.size, request.owner
    if size < 1:
        raise ControlError(f"size must be at least 1, not {size}")
    _check_owner(owner)
    with _as_control_error():
        return _row(source, await source.store.claim(size, owner, now_ms))


def _check_owner(owner: str) -> None:
    if not 0 < len(owner) <= MAX_OWNER_LENGTH or not owner.isprintable():
        raise ControlError(f"owner must be 1 to {MAX_OWNER_LENGTH} printable characters, not {owner!r:.60}")
    if _GATEWAY_NAME.fullmatch(owner):
        raise ControlError(f"{owner} is the name of a gateway, which claims for itself; choose another owner")


async def move_next_id(source: BlockSource, request: MoveNextRequest, _: int) -> MovedNextId:
    """Move the next id forward; a running gateway gives up its lower ids. Raises ControlError, also where the
    store refuses to move back (NextIdBehind).
    """
    producer_id = request.producer_id
    _check_producer_id(producer_id)
    with _as_control_error():
        previous = await source.store.move_next(producer_id)
    if source.allocator is not None:
        source.allocator.give_up_below(producer_id)
    return MovedNextId(previous, producer_id)


def _check_producer_id(producer_id: int) -> None:
    from seqgate.pid_allocator import MAX_PRODUCER_ID  # noqa: PLC0415 - slow to import

    if not 0 <= producer_id <= MAX_PRODUCER_ID:
        raise ControlError(f"a producer id must be between 0 and {MAX_PRODUCER_ID}, not {producer_id}")


@contextlib.contextmanager
def _as_control_error() -> Iterator[None]:
    """Turn errors of a store into ControlError."""
    from seqgate.pid_allocator import BlockStoreError, ProducerIdsExhausted  # noqa: PLC0415 - slow to import

    try:
        yield
    except (BlockStoreError, ProducerIdsExhausted, ValueError) as error:
        raise ControlError(str(error)) from error


def _row(source: BlockSource, block: ProducerIdBlock, reported: int | None = None) -> BlockRow:
    """Return the row of a block, of which `reported` ids are handed out; None: no gateway has reported it."""
    used, left, state = _usage_and_state(source, block, reported)
    return BlockRow(
        block.first_producer_id, block.last_producer_id, block.owner, block.claimed_at_ms, used, left, state
    )


def _usage_and_state(
    source: BlockSource, block: ProducerIdBlock, used: int | None
) -> tuple[int | None, int | None, str]:
    left = None if used is None else block.size - used
    if source.allocator is not None:
        state = source.allocator.state()
        if block == state.current:
            return state.used, state.left, IN_USE if state.left else USED_UP
        if block == state.prefetched:
            return 0, block.size, NEXT
    if not _GATEWAY_NAME.fullmatch(block.owner):
        return used, left, BY_HAND
    if _is_of_this_run(source, block):
        return block.size, 0, USED_UP
    if left == 0:
        return used, 0, USED_UP
    # A running gateway knows its blocks. A stopped one has given up all of its own.
    is_of_others = block.owner != source.owner
    given_up = not (is_of_others and (source.shared or source.others_run()))
    return used, left, GIVEN_UP if given_up else CLAIMED


def _is_of_this_run(source: BlockSource, block: ProducerIdBlock) -> bool:
    """Return whether the running gateway has claimed a block; in a shared store nobody knows."""
    first = None if source.allocator is None or source.shared else source.allocator.first_of_this_run
    return first is not None and block.owner == source.owner and block.first_producer_id >= first


# The stores of blocks.
#
# Reading a data directory needs no lock and changes nothing: it replays the batches of the metadata log up to
# the first torn one. Claiming and moving take the directory's lock and write as a gateway does, so that the
# answer comes after the records are durable. Only the metadata log is opened; the partitions stay as they
# are.

_OR_REDIS: Final = ", or Redis with --redis"


class BlockSource(msgspec.Struct):
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

    async def used(self) -> Mapping[int, int]:
        """Return how many ids are handed out of each block, by its first id, where gateways report it."""
        return {} if self.usage is None else await self.usage.used()


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
    from seqgate.gateway.admin.stored import read_image, whole_state  # noqa: PLC0415 - slow to import
    from seqgate.gateway.runtime.topics.producer_ids import blocks_of  # noqa: PLC0415

    image = read_image(whole_state(data_dir, _OR_REDIS))
    _check_is_embedded(data_dir, image)
    return _embedded(_ReadOnlyBlocks(blocks_of(image), image.next_producer_id))


@contextlib.asynccontextmanager
async def open_embedded(data_dir: Path, node_id: int) -> AsyncIterator[BlockSource]:
    """Yield the blocks in a data directory, under its lock. Raises ControlError, also when it is taken."""
    from seqgate.gateway.admin.stored import open_metadata  # noqa: PLC0415 - slow to import
    from seqgate.gateway.runtime.topics.producer_ids import EmbeddedBlockStore  # noqa: PLC0415

    async with open_metadata(data_dir, _OR_REDIS) as metadata_log:
        _check_is_embedded(data_dir, metadata_log.image)
        yield _embedded(EmbeddedBlockStore(metadata_log, node_id))


class _ReadOnlyBlocks:
    """A store that lists its blocks and refuses to change them."""

    def __init__(self, stored: list[ProducerIdBlock], next_producer_id: int) -> None:
        self._stored = stored
        self._next_producer_id = next_producer_id

    async def blocks(self) -> list[ProducerIdBlock]:
        return self._stored

    async def next_producer_id(self) -> int:
        return self._next_producer_id

    async def claim(self, size: int, owner: str, now_ms: int) -> ProducerIdBlock:  # noqa: ARG002 - interface
        from seqgate.pid_allocator import StoreUnavailable  # noqa: PLC0415 - slow to import

        raise StoreUnavailable("the data directory is open for reading only")

    async def move_next(self, producer_id: int) -> int:  # noqa: ARG002 - interface
        from seqgate.pid_allocator import StoreUnavailable  # noqa: PLC0415 - slow to import

        raise StoreUnavailable("the data directory is open for reading only")


def _embedded(store: _ReadOnlyBlocks | EmbeddedBlockStore) -> BlockSource:
    return BlockSource(EMBEDDED, store, store.next_producer_id, shared=False)


def _check_is_embedded(data_dir: Path, image: MetadataImage) -> None:
    """Refuse a data directory whose gateway takes its ids from Redis: it would never use the claim."""
    from seqgate.gateway.runtime.topics.producer_ids import SEEN_FILE  # noqa: PLC0415 - slow to import

    if not image.producer_id_blocks and (data_dir / SEEN_FILE).exists():
        raise ControlError(
            f"the gateway of {data_dir} takes its producer ids from Redis; name the Redis with --redis, or "
            "the gateway's settings file with --config"
        )


# Of a running gateway, and Redis.


def gateway_source(services: Services) -> BlockSource:
    """Return the store of a running gateway."""
    from seqgate.gateway.runtime.topics.producer_ids import SEEN_FILE, EmbeddedBlockStore  # noqa: PLC0415 - slow

    config = services.node.config
    if config.str("seqgate.producer.id.store") == EMBEDDED:
        source = _embedded(EmbeddedBlockStore(services.topics.metadata_log, services.node.node_id))
    else:
        from seqgate.pid_allocator.seen_file import SeenFile  # noqa: PLC0415 - only with Redis

        # Only the gateway writes the file, and the gateway may be claiming a block now.
        seen = SeenFile(Path(config.str("log.dirs")) / SEEN_FILE, lambda _path, _content: None)
        source = redis_source(config, last_seen=seen)
    return msgspec.structs.replace(
        source,
        others_run=lambda: len(services.node.brokers.live_ids) > 1,
        allocator=services.coordinators.producer_ids,
        owner=f"node-{services.node.node_id}",
    )


def redis_source(config: Config, *, last_seen: LastSeenPort | None = None) -> BlockSource:
    """Return the store in the settings' Redis. Raises ValueError: bad address, ControlError: no client."""
    from seqgate.gateway.config.packages import install  # noqa: PLC0415 - slow to import
    from seqgate.gateway.runtime.topics.producer_ids import open_redis_store  # noqa: PLC0415

    try:
        store = open_redis_store(config, last_seen)
    except ModuleNotFoundError as error:
        raise ControlError(install(error.name, "seqgate.producer.id.store=redis", REDIS)) from None
    return BlockSource(
        name=REDIS,
        store=store,
        next_producer_id=store.next_producer_id,
        shared=True,
        usage=store,
        close=store.close,
    )
