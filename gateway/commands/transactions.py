"""`seqgate transactions`: transactional ids, what their transactions hold up, and how to end them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.commands.options import AsJson, ConfigFile, DataDir, asking, stop

if TYPE_CHECKING:
    from gateway.control.messages import AbortHangingRequest, AbortTransactionRequest
    from gateway.control.transaction_results import HangingTransaction, TransactionAbort

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

HELP = """Look at transactions, and end those that hang.

A producer with a transactional.id writes to many partitions, and commits what it consumed, all or nothing. Until its
transaction ends, readers of committed records wait before the first record of it in every partition.

The commands ask the gateway that runs on --data-dir; list and describe also tell what lies there when none runs.
"""

Name = Annotated[str, typer.Argument(metavar="NAME", help="The transactional.id of the producer.")]
Topic = Annotated[
    str | None, typer.Option("--topic", metavar="TOPIC", help="Of this topic.", show_default=False)
]
Partition = Annotated[
    int | None,
    typer.Option("--partition", metavar="N", help="Of this partition.", min=0, show_default=False),
]


@app.command("list")
def list_transactions(
    states: Annotated[
        list[str] | None,
        typer.Option(
            "--state", metavar="STATE", help="Only in this state; may be repeated.", show_default="all"
        ),
    ] = None,
    producer_ids: Annotated[
        list[int] | None,
        typer.Option(
            "--producer-id", metavar="ID", help="Only of this producer; may be repeated.", show_default="all"
        ),
    ] = None,
    longer_than: Annotated[
        str | None,
        typer.Option(
            "--longer-than",
            metavar="TIME",
            help="Only with a transaction that takes longer: 500ms, 30s, 5m, 2h, 1d.",
            show_default=False,
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            "--pattern",
            metavar="REGEX",
            help="Only ids that this regular expression (RE2) matches whole.",
            show_default=False,
        ),
    ] = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """List the transactional ids.

    \b
    Columns:
      epoch        the producer's epoch; a higher one fences it off
      partitions   that the present transaction writes to
      age          for how long it is under way
      time-out     after so long it is aborted

    \b
    States:
      Empty            a producer has begun, no transaction has
      Ongoing          a transaction is open
      PrepareCommit    it is to be committed; its end is being written to its partitions
      PrepareAbort     it is to be aborted; its end is being written to its partitions
      CompleteCommit   the last one was committed
      CompleteAbort    the last one was aborted
    """  # noqa: D301 - \b keeps the lines of the list apart
    from gateway.commands import printing, transaction_access, transaction_tables
    from gateway.control.messages import ListTransactionsRequest

    request = ListTransactionsRequest(states or [], producer_ids or [], _duration_ms(longer_than), pattern)
    with asking(config_file, data_dir) as directory:
        listing = transaction_access.list_transactions(directory, request)
    if as_json:
        printing.print_json(listing)
    else:
        transaction_tables.print_transactions(listing)


@app.command("describe")
def describe(
    name: Name,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show a transactional id: its producer, its transaction, and what that holds up.

    \b
    Columns of the partitions:
      first offset   of the transaction's first record; `-`: it has written nothing there yet
      last stable    where readers of committed records wait, for this transaction or another one
      log end        after the newest record that other consumers can see (the high watermark)

    Then the offsets that the transaction holds: they are committed with it, or vanish with it. One that is superseded
    never counts, because the group has committed another one since.
    """  # noqa: D301 - \b keeps the lines of the list apart
    from gateway.commands import printing, transaction_access, transaction_tables

    with asking(config_file, data_dir) as directory:
        gateway, description = transaction_access.describe_transaction(directory, name)
    if as_json:
        printing.print_json(description)
    else:
        transaction_tables.print_description(gateway, description)


@app.command("find-hanging")
def find_hanging(
    topic: Topic = None,
    partition: Partition = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Find open transactions that nobody will end. Exits with 1 when there are any.

    \b
    Reasons:
      unknown producer   no transactional id has this producer id
      not part           its transactional id has, but the partition takes no part in its transaction
      overdue            it is open for longer than its time-out, and will be aborted by itself

    End an overdue one everywhere with `seqgate transactions abort NAME`, the others one by one with
    `seqgate transactions abort --topic TOPIC --partition N --start-offset FIRST_OFFSET`.
    """  # noqa: D301 - \b keeps the lines of the list apart
    from gateway.commands import printing, transaction_tables
    from gateway.control.client import hanging_pages

    if partition is not None and topic is None:
        raise stop("--partition needs --topic", code=2)
    with asking(config_file, data_dir) as directory:
        pages = list(hanging_pages(directory, topic, partition))
    rows: list[HangingTransaction] = [row for page in pages for row in page.hanging]
    offline = pages[-1].offline_partitions
    if as_json:
        printing.print_json({"hanging": rows, "offline_partitions": offline})
    else:
        transaction_tables.print_hanging(rows, offline)
    if rows:
        raise typer.Exit(1)


@app.command("abort")
def abort(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="The transactional.id whose transaction is aborted, and whose producer is fenced.",
            show_default=False,
        ),
    ] = None,
    topic: Topic = None,
    partition: Partition = None,
    start_offset: Annotated[
        int | None,
        typer.Option(
            "--start-offset",
            metavar="OFFSET",
            help="Of the transaction that begins here in this partition.",
            min=0,
            show_default=False,
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Abort an open transaction. Shows it first, and asks.

    With NAME in all its partitions; its producer is fenced and finds out with its next request. With --topic, --partition
    and --start-offset in this one partition, for a transaction that the coordinator does not know (find-hanging), as
    `kafka-transactions.sh abort` does. With --json it never asks: without --yes it only tells what it would do.

    \b
    For example:
      seqgate transactions abort billing-7
      seqgate transactions abort --topic orders --partition 3 --start-offset 1042 --yes
    """  # noqa: D301 - \b keeps the lines of the list apart
    from gateway.commands import printing, transaction_tables

    request = _abort_request(name, topic, partition, start_offset)
    with asking(config_file, data_dir) as directory:
        if as_json:
            printing.print_json(_abort(directory, request, execute=yes))
            return
        planned = _abort(directory, request, execute=False)
        transaction_tables.print_abort(planned)
        if not yes and not _is_confirmed():
            printing.print_lines("Nothing is changed.")
            raise typer.Exit(1)
        transaction_tables.print_aborted(_abort(directory, request, execute=True, planned=planned))


def _abort_request(
    name: str | None, topic: str | None, partition: int | None, start_offset: int | None
) -> AbortTransactionRequest | AbortHangingRequest:
    from gateway.control.messages import AbortHangingRequest, AbortTransactionRequest

    place = (topic, partition, start_offset)
    if name is not None and place == (None, None, None):
        return AbortTransactionRequest(name)
    if name is None and topic is not None and partition is not None and start_offset is not None:
        return AbortHangingRequest(topic, partition, start_offset)
    raise stop("name either a transactional id, or --topic, --partition and --start-offset", code=2)


def _abort(
    data_dir: Path,
    request: AbortTransactionRequest | AbortHangingRequest,
    *,
    execute: bool,
    planned: TransactionAbort | None = None,
) -> TransactionAbort:
    """Abort, or only tell what that would do; of what was `planned`, nothing that has begun since."""
    import msgspec

    from gateway.control.client import ask
    from gateway.control.messages import AbortTransactionRequest
    from gateway.control.transaction_results import TransactionAbort

    request = msgspec.structs.replace(request, execute=execute)
    if planned is not None and isinstance(request, AbortTransactionRequest):
        request = msgspec.structs.replace(request, start_ms=planned.start_ms)
    return ask(data_dir, request, TransactionAbort)


def _is_confirmed() -> bool:
    sys.stdout.flush()  # what it is about comes before the question, also where stdout is no terminal
    try:
        return typer.confirm("Abort it?", err=True)
    except typer.Abort:
        return False  # nobody is there to answer


def _duration_ms(text: str | None) -> int | None:
    from gateway.commands.durations import duration_ms

    try:
        return None if text is None else duration_ms(text)
    except ValueError as error:
        raise stop(str(error), code=2) from None
