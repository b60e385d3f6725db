"""`seqgate transactions`: transactional ids, the readers and offsets that their transactions hold back, and
how to end them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
import typer

from seqgate.gateway.admin.completion import topic_names
from seqgate.gateway.admin.options import (
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
from seqgate.gateway.admin.printing import (
    Column,
    count,
    counted,
    duration,
    moment,
    print_json,
    print_lines,
    print_table,
    shown,
)
from seqgate.gateway.admin.request import STOPPED
from seqgate.gateway.admin.times import duration_ms
from seqgate.gateway.admin.transactions.messages import (
    AbortHangingRequest,
    AbortTransactionRequest,
    DescribeTransactionRequest,
    FindHangingRequest,
    HangingTransaction,
    ListTransactionsRequest,
    PendingOffset,
    TransactionAbort,
    TransactionDescription,
    TransactionListing,
    TransactionPartition,
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
        print_transactions(listing)


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
        print_description(gateway, description)


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
        print_hanging(rows, offline)
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
        print_abort(planned)
        if not yes and not is_confirmed("Abort it?"):
            print_lines("Nothing is changed.")
            raise typer.Exit(1)
        print_aborted(_abort(client, request, execute=True, planned=planned))


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
    """Abort a transaction, or only report what the abort would do. Never abort a later transaction than the
    `planned` one.
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


# The tables of `seqgate transactions`. Names that clients choose are escaped for the terminal.

NONE: Final = "-"


def print_transactions(listing: TransactionListing) -> None:
    """Print a line for each transactional id."""
    columns = (
        Column("transactional id"),
        Column("state"),
        Column("producer", number=True),
        Column("epoch", number=True),
        Column("partitions", number=True),
        Column("age", number=True),
        Column("timeout", number=True),
    )
    print_table(
        columns,
        [
            (
                shown(row.transactional_id),
                row.state,
                str(row.producer_id),
                str(row.producer_epoch),
                count(row.partition_count),
                _length(row.age_ms),
                duration(row.timeout_ms),
            )
            for row in listing.transactions
        ],
    )
    print_lines(f"{counted(len(listing.transactions), 'transactional id')}.")
    _print_offline("Transactional ids are missing", listing.offline_partitions)
    if listing.partitions_elsewhere:
        led = counted(len(listing.partitions_elsewhere), "partition")
        print_lines(
            f"Transactional ids are missing: other gateways lead {led} of __transaction_state; ask the "
            "cluster with --bootstrap."
        )
    _print_stopped(listing.gateway)


def print_description(gateway: str, description: TransactionDescription) -> None:
    """Print a transactional id: its producer, its partitions, the offsets that its transaction holds."""
    print_lines(
        f"Transactional id {shown(description.transactional_id)}: {description.state}, "
        f"producer {description.producer_id}, epoch {description.producer_epoch}, "
        f"timeout {duration(description.timeout_ms)}.",
    )
    if description.last_update_ms is not None:
        print_lines(f"Last heard of {moment(description.last_update_ms)}.")
    if description.start_ms is not None:
        print_lines(
            f"Its transaction began {moment(description.start_ms)}, {_length(description.age_ms)} ago.", ""
        )
        _print_partitions(description.partitions)
        _print_pending(description.pending_offsets, description.pending_offset_count)
    _print_stopped(gateway)


def print_hanging(rows: Sequence[HangingTransaction], offline_partitions: Sequence[int]) -> None:
    """Print a line for each hanging transaction."""
    columns = (
        Column("topic"),
        Column("parti-\ntion", number=True),
        Column("first\noffset", number=True),
        Column("producer", number=True),
        Column("epoch", number=True),
        Column("transactional id"),
        Column("age", number=True),
        Column("reason"),
    )
    print_table(
        columns,
        [
            (
                shown(row.topic),
                str(row.partition),
                str(row.first_offset),
                str(row.producer_id),
                str(row.producer_epoch),
                _name(row.transactional_id),
                duration(row.age_ms),
                row.reason,
            )
            for row in rows
        ],
    )
    print_lines(f"{counted(len(rows), 'hanging transaction')}.")
    _print_offline("Transactions of unknown producers are missing", offline_partitions)


def print_abort(planned: TransactionAbort) -> None:
    """Print the transaction that an abort would end."""
    _print_partitions(planned.partitions)
    more = planned.partition_count - len(planned.partitions)
    if more:
        print_lines(f"and {more:,} more.")
    name, ago = planned.transactional_id, duration(planned.age_ms)
    producer = f"producer {planned.producer_id}, epoch {planned.producer_epoch}"
    offsets = planned.pending_offset_count
    with_them = f", and {counted(offsets, 'offset')} of groups with them" if offsets else ""
    if planned.start_ms is None:
        whose = "of no transactional id" if name is None else f"of {shown(name)}"
        print_lines(
            f"Open here only: {producer}, {whose}, which last wrote {ago} ago.",
            f"An abort ends its records in this partition{with_them}.",
        )
        return
    print_lines(
        f"The transaction of {shown(name or '')} ({producer}) is open for {ago}.",
        f"An abort ends its records in {counted(planned.partition_count, 'partition')}{with_them}, "
        "and fences its producer.",
    )


def print_aborted(done: TransactionAbort) -> None:
    """Print the outcome of an abort."""
    partitions = counted(done.partition_count, "partition")
    if done.fenced_by is None:
        print_lines(f"Aborted in {partitions}.")
        return
    print_lines(
        f"Aborted in {partitions}; the producer is fenced by producer {done.fenced_by.producer_id}, "
        f"epoch {done.fenced_by.producer_epoch}."
    )


def print_pending_of_group(pending: Sequence[PendingOffset]) -> None:
    """Print the offsets of one group that open transactions hold."""
    if not pending:
        return
    print_lines("", "Held by open transactions, to be committed with them:")
    columns = (
        Column("topic"),
        Column("parti-\ntion", number=True),
        Column("offset", number=True),
        Column("transactional id"),
        Column("producer", number=True),
        Column("epoch", number=True),
        Column("note"),
    )
    print_table(
        columns,
        [
            (
                shown(held.topic),
                str(held.partition),
                str(held.offset),
                _name(held.transactional_id),
                str(held.producer_id),
                str(held.producer_epoch),
                _note(held),
            )
            for held in pending
        ],
    )


def _print_partitions(partitions: Sequence[TransactionPartition]) -> None:
    columns = (
        Column("topic"),
        Column("parti-\ntion", number=True),
        Column("first\noffset", number=True),
        Column("last\nstable", number=True),
        Column("log\nend", number=True),
    )
    print_table(
        columns,
        [
            (
                shown(row.topic),
                str(row.partition),
                _known(row.first_offset),
                _known(row.last_stable_offset),
                _known(row.high_watermark),
            )
            for row in partitions
        ],
    )


def _print_pending(pending: Sequence[PendingOffset], total: int | None) -> None:
    if total is None:
        return
    if not total:
        print_lines("It holds no offsets of groups.")
        return
    print_lines("", "Offsets that it holds, to be committed with it:")
    columns = (
        Column("group"),
        Column("topic"),
        Column("parti-\ntion", number=True),
        Column("offset", number=True),
        Column("note"),
    )
    print_table(
        columns,
        [
            (shown(held.group), shown(held.topic), str(held.partition), str(held.offset), _note(held))
            for held in pending
        ],
    )
    if len(pending) < total:
        print_lines(f"and {total - len(pending):,} more.")


def _print_stopped(gateway: str) -> None:
    if gateway == STOPPED:
        print_lines("The gateway is not running; this is what its data directory holds.")


def _print_offline(what: str, offline_partitions: Sequence[int]) -> None:
    if offline_partitions:
        names = ", ".join(map(str, offline_partitions))
        print_lines(f"{what}: {names} of __transaction_state is offline (seqgate status).")


def _note(held: PendingOffset) -> str:
    return "superseded" if held.superseded else ""


def _name(transactional_id: str | None) -> str:
    return NONE if transactional_id is None else shown(transactional_id)


def _known(offset: int | None) -> str:
    return NONE if offset is None else str(offset)


def _length(length_ms: int | None) -> str:
    return NONE if length_ms is None else duration(length_ms)
