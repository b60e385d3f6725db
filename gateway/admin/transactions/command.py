"""`seqgate transactions`: transactional ids, the readers and offsets that their transactions hold back, and how to end
them.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from gateway.admin.completion import topic_names
from gateway.admin.options import (
    AsJson,
    Asker,
    CommandConfig,
    ConfigFile,
    DataDir,
    OtherCluster,
    asking_either,
    is_confirmed,
    stop,
)
from gateway.admin.printing import print_json, print_lines
from gateway.admin.times import duration_ms
from gateway.admin.transactions import tables
from gateway.admin.transactions.messages import (
    AbortHangingRequest,
    AbortTransactionRequest,
    DescribeTransactionRequest,
    FindHangingRequest,
    ListTransactionsRequest,
    TransactionAbort,
    TransactionListing,
)

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

HELP = """Look at transactions, and end those that hang.

A producer with a transactional.id writes to many partitions, and commits what it consumed, all or nothing. Until its
transaction ends, readers of committed records wait before the first record of it in every partition.

The commands ask the gateway that runs on --data-dir, or the cluster at --bootstrap; list and describe also read that directory when no gateway runs.
"""

Name = Annotated[str, typer.Argument(metavar="NAME", help="The transactional.id of the producer.")]
Topic = Annotated[
    str | None,
    typer.Option(
        "--topic", metavar="TOPIC", help="In this topic.", autocompletion=topic_names, show_default=False
    ),
]
Partition = Annotated[
    int | None,
    typer.Option("--partition", metavar="N", help="In this partition.", min=0, show_default=False),
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
    bootstrap: OtherCluster = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """List the transactional ids.

    \b
    Columns:
      epoch        the producer's epoch; a higher one fences the producer
      partitions   that the open transaction writes to
      age          time since the transaction began
      timeout      age at which the gateway aborts the transaction

    \b
    States:
      Empty            a producer has begun, no transaction has
      Ongoing          a transaction is open
      PrepareCommit    the commit is decided; the gateway is writing it to the partitions
      PrepareAbort     the abort is decided; the gateway is writing it to the partitions
      CompleteCommit   the last one was committed
      CompleteAbort    the last one was aborted
    """  # noqa: D301 - \b keeps the lines of the list apart
    request = ListTransactionsRequest(states or [], producer_ids or [], _duration_ms(longer_than), pattern)
    with asking_either(bootstrap, config_file, data_dir, command_config) as client:
        gateway, pages = client.ask_or_read_all(request)
    rows = [row for page in pages for row in page.transactions]
    listing = TransactionListing(gateway, rows, pages[-1].offline_partitions, pages[-1].partitions_elsewhere)
    if as_json:
        print_json(listing)
    else:
        tables.print_transactions(listing)


@app.command("describe")
def describe(
    name: Name,
    bootstrap: OtherCluster = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show a transactional id: its producer, its transaction, and what the transaction holds back.

    \b
    Columns of the partitions:
      first offset   of the transaction's first record; `-`: no record there yet
      last stable    the offset at which readers of committed records wait, for this transaction or another one
      log end        after the newest record that other consumers can see (the high watermark)

    Then the offsets that the transaction holds, which are committed or dropped with the transaction. A superseded offset never
    takes effect, because the group has committed another one since.
    """  # noqa: D301 - \b keeps the lines of the list apart
    with asking_either(bootstrap, config_file, data_dir, command_config) as client:
        gateway, pages = client.ask_or_read_all(DescribeTransactionRequest(name))
    partitions = [row for page in pages for row in page.partitions]
    description = msgspec.structs.replace(pages[0], partitions=partitions, complete=True)
    if as_json:
        print_json(description)
    else:
        tables.print_description(gateway, description)


@app.command("find-hanging")
def find_hanging(
    topic: Topic = None,
    partition: Partition = None,
    bootstrap: OtherCluster = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Find open transactions that no coordinator will end. Exits with 1 when there are any.

    \b
    Reasons:
      unknown producer   no transactional id has this producer id
      not part           a transactional id has, but the partition takes no part in its transaction
      overdue            the transaction is open for longer than its timeout; the gateway will abort it

    End an overdue transaction everywhere with `seqgate transactions abort NAME`, the others one by one with
    `seqgate transactions abort --topic TOPIC --partition N --start-offset FIRST_OFFSET`.
    """  # noqa: D301 - \b keeps the lines of the list apart
    if partition is not None and topic is None:
        raise stop("--partition needs --topic", code=2)
    with asking_either(bootstrap, config_file, data_dir, command_config) as client:
        pages = client.ask_all(FindHangingRequest(topic, partition))
    rows = [row for page in pages for row in page.hanging]
    offline = pages[-1].offline_partitions
    if as_json:
        print_json({"hanging": rows, "offline_partitions": offline})
    else:
        tables.print_hanging(rows, offline)
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
            help="The offset at which the transaction begins in this partition.",
            min=0,
            show_default=False,
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    bootstrap: OtherCluster = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Abort an open transaction. Shows the transaction first, and asks for confirmation.

    With NAME: aborts in all partitions of the transaction, and fences its producer, whose next request fails. With --topic,
    --partition and --start-offset: aborts in this one partition, for a transaction that the coordinator does not know
    (find-hanging), as `kafka-transactions.sh abort` does. With --json the command never asks: without --yes it only reports what
    it would do.

    \b
    For example:
      seqgate transactions abort billing-7
      seqgate transactions abort --topic orders --partition 3 --start-offset 1042 --yes
    """  # noqa: D301 - \b keeps the lines of the list apart
    request = _abort_request(name, topic, partition, start_offset)
    with asking_either(bootstrap, config_file, data_dir, command_config) as client:
        if as_json:
            print_json(_abort(client, request, execute=yes))
            return
        planned = _abort(client, request, execute=False)
        tables.print_abort(planned)
        if not yes and not is_confirmed("Abort it?"):
            print_lines("Nothing is changed.")
            raise typer.Exit(1)
        tables.print_aborted(_abort(client, request, execute=True, planned=planned))


def _abort_request(
    name: str | None, topic: str | None, partition: int | None, start_offset: int | None
) -> AbortTransactionRequest | AbortHangingRequest:
    place = (topic, partition, start_offset)
    if name is not None and place == (None, None, None):
        return AbortTransactionRequest(name)
    if name is None and topic is not None and partition is not None and start_offset is not None:
        return AbortHangingRequest(topic, partition, start_offset)
    raise stop("name either a transactional id, or --topic, --partition and --start-offset", code=2)


def _abort(
    client: Asker,
    request: AbortTransactionRequest | AbortHangingRequest,
    *,
    execute: bool,
    planned: TransactionAbort | None = None,
) -> TransactionAbort:
    """Abort a transaction, or only report what the abort would do. Never abort a later transaction than the `planned`
    one.
    """
    if isinstance(request, AbortHangingRequest):
        return client.ask(msgspec.structs.replace(request, execute=execute))
    start_ms = None if planned is None else planned.start_ms
    return client.ask(msgspec.structs.replace(request, execute=execute, start_ms=start_ms))


def _duration_ms(text: str | None) -> int | None:
    try:
        return None if text is None else duration_ms(text)
    except ValueError as error:
        raise stop(str(error), code=2) from None
