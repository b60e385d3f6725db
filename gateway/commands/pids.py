"""`seqgate pids`: the blocks of producer ids."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.commands.options import AsJson, ConfigFile, DataDir, configured, stop

if TYPE_CHECKING:
    from gateway.commands.block_access import BlockAccess, BlockListing
    from gateway.control.results import BlockRow, Owner

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

HELP = """Look at and administer the blocks of producer ids.

A gateway takes the ids it hands out (InitProducerId) from blocks that it claims from a store: its own data directory,
or a Redis that several gateways share. An id is handed out once, ever.

Where the commands look: with --redis, in that Redis; else at the gateway that runs on --data-dir; and when none
runs, into the data directory itself (or the Redis of its --config file).
"""

Redis = Annotated[
    str | None,
    typer.Option(
        "--redis",
        metavar="URL",
        help="Work on this Redis, redis://[user:password@]host:port/db. A password is better kept in SEQGATE_REDIS_URL.",
        show_default=False,
    ),
]
Prefix = Annotated[
    str | None,
    typer.Option(
        "--prefix",
        help="Beginning of the keys in Redis (seqgate.redis.prefix); implies Redis.",
        show_default="seqgate:",
    ),
]
ProducerId = Annotated[
    int, typer.Argument(metavar="PRODUCER_ID", help="A producer id.", min=0, show_default=False)
]

_FORGOTTEN = (
    "The gateway is not running. How many ids of its blocks it handed out is not written down (?); the rest of",
    "each is given up: the next start claims a new block.",
)


@app.command("list")
def list_blocks(
    data_dir: DataDir = None,
    redis: Redis = None,
    prefix: Prefix = None,
    config_file: ConfigFile = None,
    last: Annotated[
        int | None,
        typer.Option("--last", metavar="N", help="Only the N claimed last.", min=1, show_default="all"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the blocks of producer ids.

    One line per block, in the order of their claims: its range, who claimed it when, how many of its ids are handed
    out, how many are left, and its state.

    \b
    State of a block:
      in use     the running gateway takes its ids from here
      next       claimed ahead by the running gateway
      used up    every id is handed out
      given up   its gateway has stopped since; the rest is never handed out
      claimed    in Redis: some gateway's, which may be in use
      by hand    claimed with `seqgate pids claim`
    """  # noqa: D301 - \b keeps the lines of the list apart
    from gateway.commands import printing

    with _blocks(config_file, data_dir, redis, prefix) as blocks:
        listing = blocks.list(last)
    if as_json:
        printing.print_json(listing)
        return
    _print_blocks(listing.blocks)
    printing.print_lines(*_about(listing))


@app.command("claim")
def claim(
    size: Annotated[int, typer.Argument(metavar="SIZE", help="How many ids.", min=1)] = 1000,
    owner: Annotated[
        str, typer.Option("--owner", help="Who the block is for; shown in the list.")
    ] = "operator",
    data_dir: DataDir = None,
    redis: Redis = None,
    prefix: Prefix = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Claim a block for use outside the gateways.

    The gateways will never hand these ids out. Gateways claim their own blocks by themselves. A claim can't be taken back.
    """
    from gateway.commands import printing

    with _blocks(config_file, data_dir, redis, prefix) as blocks:
        block = blocks.claim(size, owner)
    if as_json:
        printing.print_json(block)
    else:
        printing.print_lines(f"Claimed {_range(block)} ({printing.counted(size, 'id')}) for {owner}.")


@app.command("owner")
def show_owner(
    producer_id: ProducerId,
    data_dir: DataDir = None,
    redis: Redis = None,
    prefix: Prefix = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show who owns a producer id.

    That is, who claimed the block it lies in, and whether it is handed out. Exits with 1 when it is nobody's.
    """
    from gateway.commands import printing

    with _blocks(config_file, data_dir, redis, prefix) as blocks:
        found = blocks.owner(producer_id)
    if as_json:
        printing.print_json(found)
    else:
        if found.block is not None:
            _print_blocks([found.block])
        printing.print_lines(_about_owner(found))
    raise typer.Exit(0 if found.block is not None else 1)


@app.command("move")
def move_next(
    next_producer_id: Annotated[
        int,
        typer.Argument(
            metavar="NEXT_ID",
            help="The lowest id that may be handed out from now on.",
            min=0,
            show_default=False,
        ),
    ],
    data_dir: DataDir = None,
    redis: Redis = None,
    prefix: Prefix = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Move the next id forward.

    No block will begin below it. It never moves back.
    Needed when a store was lost or restored from a backup and ids may have been handed out beyond what it knows. The
    gateway asked gives up what it holds below at once; other gateways on the same Redis use their blocks up first.
    """
    from gateway.commands import printing

    with _blocks(config_file, data_dir, redis, prefix) as blocks:
        moved = blocks.move(next_producer_id)
    if as_json:
        printing.print_json(moved)
    else:
        printing.print_lines(
            f"The next block begins at {moved.current} or later; before, it was {moved.previous}."
        )


@app.command("check")
def check(
    data_dir: DataDir = None,
    redis: Redis = None,
    prefix: Prefix = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Check that no two blocks overlap.

    Exits with 1 when some do.
    """
    from gateway.commands import printing

    with _blocks(config_file, data_dir, redis, prefix) as blocks:
        result = blocks.overlaps()
    if as_json:
        printing.print_json(result)
    elif not result.overlaps:
        printing.print_lines(f"{printing.counted(result.checked, 'block')} checked: no id is in two of them.")
    else:
        columns = [printing.Column(name) for name in ("shared ids", "block", "owner", "block", "owner")]
        printing.print_table(
            columns,
            [
                (
                    f"{overlap.first_producer_id} to {overlap.last_producer_id}",
                    _range(overlap.lower),
                    overlap.lower.owner,
                    _range(overlap.upper),
                    overlap.upper.owner,
                )
                for overlap in result.overlaps
            ],
        )
        printing.print_lines(
            f"{printing.counted(result.checked, 'block')} checked: {printing.counted(len(result.overlaps), 'pair')} of them share ids.",
            "Ids from them may be in use twice. Restore the store, or move the next id beyond all blocks.",
        )
    raise typer.Exit(1 if result.overlaps else 0)


@contextmanager
def _blocks(
    config_file: Path | None, data_dir: Path | None, redis: str | None, prefix: str | None
) -> Iterator[BlockAccess]:
    """The blocks that the options mean; an error ends the command with its sentence."""
    from gateway.commands.block_access import find_blocks
    from gateway.control.errors import ControlError

    config, directory = configured(config_file, data_dir)
    try:
        yield find_blocks(config, directory, redis, prefix)
    except ControlError as error:
        raise stop(str(error)) from None


def _print_blocks(blocks: list[BlockRow]) -> None:
    from gateway.commands import printing

    columns = [
        printing.Column("first id", number=True),
        printing.Column("last id", number=True),
        printing.Column("owner"),
        printing.Column("claimed"),
        printing.Column("used", number=True),
        printing.Column("left", number=True),
        printing.Column("state"),
    ]
    printing.print_table(
        columns,
        [
            (
                str(block.first_producer_id),
                str(block.last_producer_id),
                block.owner,
                printing.moment(block.claimed_at_ms),
                printing.count(block.used),
                printing.count(block.left),
                block.state,
            )
            for block in blocks
        ],
    )


def _about(listing: BlockListing) -> list[str]:
    from gateway.commands import printing
    from gateway.commands.block_access import STOPPED

    shown = (
        ""
        if len(listing.blocks) == listing.total
        else f", the last {printing.count(len(listing.blocks))} shown"
    )
    lines = [
        f"{printing.counted(listing.total, 'block')} in the {listing.store} store{shown}.",
        f"The next one begins at {listing.next_producer_id} or later.",
    ]
    if listing.gateway == STOPPED and listing.blocks:
        lines += _FORGOTTEN
    return lines


def _about_owner(found: Owner) -> str:
    if found.block is None:
        if found.producer_id >= found.next_producer_id:
            return f"{found.producer_id} is not claimed yet; the next block begins at {found.next_producer_id} or later."
        return f"{found.producer_id} was skipped: no block holds it, and none will."
    told = {
        True: "It was handed out.",
        False: "It was not handed out so far.",
        None: "Whether it was handed out is not known.",
    }
    return f"{found.producer_id} belongs to {found.block.owner}. {told[found.handed_out]}"


def _range(block: BlockRow) -> str:
    return f"{block.first_producer_id} to {block.last_producer_id}"
