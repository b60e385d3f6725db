"""`seqgate transactions`: transactional ids, what their transactions hold back, and how to end them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Final, TypeAlias

import msgspec

from seqgate.gateway.admin.commands import AsJson, Commands, Output, argument, asks, option, stop
from seqgate.gateway.admin.completion import topic_names
from seqgate.gateway.admin.options import Asker, DryRun, Opened, Yes, gateway_or_cluster, must_agree, parsed
from seqgate.gateway.admin.printing import print_blocks, print_json, print_lines
from seqgate.gateway.admin.request import STOPPED, PagedRequest, Request
from seqgate.gateway.admin.tables import (
    NONE,
    Block,
    ClientOrNone,
    Column,
    Offset,
    PartitionNumber,
    TopicName,
    count,
    counted,
    duration,
    moment,
    number,
    shown,
    table,
)
from seqgate.gateway.admin.times import duration_ms

app = Commands("""Look at transactions, and end those that hang.

A producer with a transactional.id writes to many partitions, and commits what it consumed, \
all or nothing. Until its
transaction ends, readers of committed records wait before the first record of it in every partition.

The commands ask the gateway that runs on --data-dir, or the cluster at --bootstrap; \
list and describe also read that directory when no gateway runs.
""")

Name = Annotated[str, argument("NAME", "The transactional.id of the producer.")]
Topic = Annotated[str | None, option("--topic", "TOPIC", "In this topic.", autocompletion=topic_names)]
Partition = Annotated[int | None, option("--partition", "N", "In this partition.", min=0)]


@app.command("list")
@asks(gateway_or_cluster)
def list_transactions(
    opened: Opened[Asker],
    states: list[str] | None = option(
        "--state", "STATE", "Only in this state; may be repeated.", show_default="all"
    ),
    producer_ids: list[int] | None = option(
        "--producer-id", "ID", "Only of this producer; may be repeated.", show_default="all"
    ),
    longer_than: str | None = option(
        "--longer-than", "TIME", "Only with a transaction that takes longer: 500ms, 30s, 5m, 2h, 1d."
    ),
    pattern: str | None = option(
        "--pattern", "REGEX", "Only ids that this regular expression (RE2) matches whole."
    ),
) -> Output:
    """List the transactional ids.

    \b
    Columns:
      epoch        the producer's epoch; a higher one fences the producer
      partitions   that the open transaction writes to
      age          time since the transaction began
      timeout      age at which the gateway aborts the transaction
      client       client id, address, library and principal of the producer's client; `-`: unknown, as after
                   a restart of the gateway

    \b
    States:
      Empty            a producer has begun, no transaction has
      Ongoing          a transaction is open
      PrepareCommit    the commit is decided; the gateway is writing it to the partitions
      PrepareAbort     the abort is decided; the gateway is writing it to the partitions
      CompleteCommit   the last one was committed
      CompleteAbort    the last one was aborted
    """  # noqa: D301 - \b keeps the lines of the list apart
    request = ListTransactionsRequest(
        states or [], producer_ids or [], parsed(duration_ms, longer_than), pattern
    )
    with opened as client:
        gateway, page = client.ask_or_read(request)
    listing = TransactionListing(
        gateway, page.transactions, page.offline_partitions, page.partitions_elsewhere
    )
    return Output(listing, _listing_text(listing))


@app.command("describe")
@asks(gateway_or_cluster)
def describe(opened: Opened[Asker], name: Name) -> Output:
    """Show a transactional id: its producer, its transaction, and what the transaction holds back.

    \b
    Columns of the partitions:
      first offset   of the transaction's first record; `-`: no record there yet
      last stable    the offset at which readers of committed records wait, for this or another transaction
      log end        after the newest record that other consumers can see (the high watermark)

    Then the offsets that the transaction holds, which are committed or dropped with the transaction. A
    superseded offset never takes effect, because the group has committed another one since.
    """  # noqa: D301 - \b keeps the lines of the list apart
    with opened as client:
        gateway, description = client.ask_or_read(DescribeTransactionRequest(name))
    return Output(description, _description_text(gateway, description))


@app.command("find-hanging")
@asks(gateway_or_cluster)
def find_hanging(opened: Opened[Asker], topic: Topic = None, partition: Partition = None) -> Output:
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
    with opened as client:
        page = client.ask(FindHangingRequest(topic, partition))
    document = {"hanging": page.hanging, "offline_partitions": page.offline_partitions}
    return Output(document, _hanging_text(page), code=1 if page.hanging else 0)


@app.command("abort")
@asks(gateway_or_cluster)
def abort(
    opened: Opened[Asker],
    name: str | None = argument(
        "NAME",
        "The transactional.id whose transaction is aborted, and whose producer is fenced.",
        default=None,
    ),
    topic: Topic = None,
    partition: Partition = None,
    start_offset: int | None = option(
        "--start-offset", "OFFSET", "The offset at which the transaction begins in this partition.", min=0
    ),
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Abort an open transaction. Shows the transaction first, and asks for confirmation.

    With NAME: aborts in all partitions of the transaction, and fences its producer, whose next request fails.
    With --topic, --partition and --start-offset: aborts in this one partition, for a transaction that the
    coordinator does not know (find-hanging), as `kafka-transactions.sh abort` does. With --json the command
    never asks: without --yes it only reports what it would do.

    \b
    For example:
      seqgate transactions abort billing-7
      seqgate transactions abort --topic orders --partition 3 --start-offset 1042 --yes
    """  # noqa: D301 - \b keeps the lines of the list apart
    request = _abort_request(name, topic, partition, start_offset)
    with opened as client:
        if as_json:
            print_json(_abort(client, request, execute=yes and not dry_run))
            return
        planned = _abort(client, request, execute=False)
        print_blocks(_abort_text(planned))
        if dry_run:
            return
        if not yes:
            must_agree("Abort it?")
        print_lines(_aborted(_abort(client, request, execute=True, planned=planned)))


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
    """Abort a transaction, or only report the abort. Never abort a later one than the `planned` one."""
    if isinstance(request, AbortHangingRequest):
        return client.ask(msgspec.structs.replace(request, execute=execute))
    start_ms = None if planned is None else planned.start_ms
    return client.ask(msgspec.structs.replace(request, execute=execute, start_ms=start_ms))


# The text for people. Names that clients choose are escaped for the terminal.


def _listing_text(listing: TransactionListing) -> Iterator[Block]:
    yield table(
        TransactionRow,
        listing.transactions,
        "transactional_id state producer_id producer_epoch partition_count age_ms timeout_ms client",
    )
    yield f"{counted(len(listing.transactions), 'transactional id')}."
    yield from _offline("Transactional ids are missing", listing.offline_partitions)
    if listing.partitions_elsewhere:
        led = counted(len(listing.partitions_elsewhere), "partition")
        yield (
            f"Transactional ids are missing: other gateways lead {led} of __transaction_state; ask the "
            "cluster with --bootstrap."
        )
    yield from _stopped(listing.gateway)


def _description_text(gateway: str, description: TransactionDescription) -> Iterator[Block]:
    yield (
        f"Transactional id {shown(description.transactional_id)}: {description.state}, "
        f"producer {description.producer_id}, epoch {description.producer_epoch}, "
        f"timeout {duration(description.timeout_ms)}."
    )
    if description.client is not None:
        yield f"Its client is {shown(str(description.client))}."
    if description.last_update_ms is not None:
        yield f"Last heard of {moment(description.last_update_ms)}."
    if description.start_ms is not None:
        age = NONE if description.age_ms is None else duration(description.age_ms)
        yield f"Its transaction began {moment(description.start_ms)}, {age} ago."
        yield ""
        yield table(TransactionPartition, description.partitions)
        yield from _pending_text(description.pending_offsets, description.pending_offset_count)
    yield from _stopped(gateway)


def _hanging_text(page: HangingPage) -> Iterator[Block]:
    yield table(
        HangingTransaction,
        page.hanging,
        "topic partition first_offset producer_id producer_epoch transactional_id age_ms reason client",
    )
    yield f"{counted(len(page.hanging), 'hanging transaction')}."
    yield from _offline("Transactions of unknown producers are missing", page.offline_partitions)


def _abort_text(planned: TransactionAbort) -> Iterator[Block]:
    yield table(TransactionPartition, planned.partitions)
    more = planned.partition_count - len(planned.partitions)
    if more:
        yield f"and {more:,} more."
    name, ago = planned.transactional_id, duration(planned.age_ms)
    producer = f"producer {planned.producer_id}, epoch {planned.producer_epoch}"
    if planned.client is not None:
        producer += f", {shown(str(planned.client))}"
    offsets = planned.pending_offset_count
    with_them = f", and {counted(offsets, 'offset')} of groups with them" if offsets else ""
    if planned.start_ms is None:
        whose = "of no transactional id" if name is None else f"of {shown(name)}"
        yield f"Open here only: {producer}, {whose}, which last wrote {ago} ago."
        yield f"An abort ends its records in this partition{with_them}."
        return
    yield f"The transaction of {shown(name or '')} ({producer}) is open for {ago}."
    yield (
        f"An abort ends its records in {counted(planned.partition_count, 'partition')}{with_them}, "
        "and fences its producer."
    )


def _aborted(done: TransactionAbort) -> str:
    partitions = counted(done.partition_count, "partition")
    if done.fenced_by is None:
        return f"Aborted in {partitions}."
    return (
        f"Aborted in {partitions}; the producer is fenced by producer {done.fenced_by.producer_id}, "
        f"epoch {done.fenced_by.producer_epoch}."
    )


def pending_of_group(pending: Sequence[PendingOffset]) -> Iterator[Block]:
    """Yield the offsets of one group that open transactions hold."""
    if pending:
        yield ""
        yield "Held by open transactions, to be committed with them:"
        columns = "topic partition offset transactional_id producer_id producer_epoch note"
        yield table(PendingOffset, pending, columns)


def _pending_text(pending: Sequence[PendingOffset], total: int | None) -> Iterator[Block]:
    if total == 0:
        yield "It holds no offsets of groups."
    elif total is not None:
        yield ""
        yield "Offsets that it holds, to be committed with it:"
        yield table(PendingOffset, pending, "group topic partition offset note")
        if len(pending) < total:
            yield f"and {total - len(pending):,} more."


def _stopped(gateway: str) -> Iterator[str]:
    if gateway == STOPPED:
        yield "The gateway is not running; this is what its data directory holds."


def _offline(what: str, offline_partitions: Sequence[int]) -> Iterator[str]:
    if offline_partitions:
        names = ", ".join(map(str, offline_partitions))
        yield f"{what}: {names} of __transaction_state is offline (seqgate status)."


# The requests about transactions, and what `seqgate transactions … --json` prints.
# Times are milliseconds since the Unix epoch. A value that nobody knows is None.


ProducerId: TypeAlias = Annotated[int, Column("producer", number)]
ProducerEpoch: TypeAlias = Annotated[int, Column("epoch", number)]
TransactionalId: TypeAlias = Annotated[str | None, Column("transactional id")]


class PendingOffset(msgspec.Struct, frozen=True):
    """An offset that an open transaction holds; it is committed or dropped with the transaction.

    `transactional_id` is None where nobody knows the producer. A `superseded` offset never takes effect,
    because a later commit has replaced it.
    """

    group: Annotated[str, Column("group")]
    topic: TopicName
    partition: PartitionNumber
    offset: Offset
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    transactional_id: TransactionalId
    superseded: bool

    @property
    def note(self) -> Annotated[str, Column("note")]:
        """The remark on an offset that never takes effect."""
        return "superseded" if self.superseded else ""


class TransactionRow(msgspec.Struct, frozen=True):
    """A transactional id, its producer, and its present transaction.

    Without a transaction `start_ms` and `age_ms` are None and `partition_count` is 0. `last_update_ms` is
    when the state of the id changed last, `timeout_ms` how long its transactions may take. `client` is the
    producer's client.
    """

    transactional_id: Annotated[str, Column("transactional id")]
    state: Annotated[str, Column("state")]
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    timeout_ms: Annotated[int, Column("timeout", duration)]
    last_update_ms: int | None
    start_ms: int | None
    age_ms: Annotated[int | None, Column("age", duration)]
    partition_count: Annotated[int, Column("partitions", count)]
    client: ClientOrNone

    @property
    def is_overdue(self) -> bool:
        """Whether the transaction is open for longer than its timeout."""
        return self.age_ms is not None and self.age_ms > self.timeout_ms


class TransactionPage(msgspec.Struct, frozen=True):
    """Some of the transactional ids; `complete`: no id comes after the last row.

    `offline_partitions` are the partitions of `__transaction_state` that are out of service, and
    `partitions_elsewhere` those that other gateways lead; their ids are missing.
    """

    transactions: list[TransactionRow]
    complete: bool
    offline_partitions: list[int]
    partitions_elsewhere: list[int] = []


class ListTransactionsRequest(PagedRequest[TransactionPage], tag="transactions.list"):
    """The transactional ids that pass every filter given, in order, from the first one after `after` on.
    `longer_than_ms` passes ids whose open transaction is older than that, `pattern` (RE2) the ids that it
    matches whole.
    """

    is_spread = True
    rows = "transactions"
    key = "transactional_id"
    states: list[str] = msgspec.field(default_factory=list)
    producer_ids: list[int] = msgspec.field(default_factory=list)
    longer_than_ms: int | None = None
    pattern: str | None = None
    after: str | None = None


class TransactionListing(msgspec.Struct, frozen=True):
    """All requested transactional ids. `gateway` is "running" or "stopped"; the ids of `offline_partitions`
    and of `partitions_elsewhere` are missing.
    """

    gateway: str
    transactions: list[TransactionRow]
    offline_partitions: list[int]
    partitions_elsewhere: list[int] = []


class TransactionPartition(msgspec.Struct, frozen=True):
    """A partition that a transaction writes to; `first_offset` is the offset of its first record there, None
    without one.

    Readers of committed records wait at `last_stable_offset`, other readers at `high_watermark`. Both are
    None when the partition is gone, another gateway leads it, or the gateway is stopped.
    """

    topic: TopicName
    partition: PartitionNumber
    first_offset: Annotated[int | None, Column("first\noffset", number)]
    last_stable_offset: Annotated[int | None, Column("last\nstable", number)]
    high_watermark: Annotated[int | None, Column("log\nend", number)]


class TransactionDescription(TransactionRow, frozen=True):
    """A transactional id with some of its partitions; `complete`: no partition comes after the last row.

    `pending_offsets` are the offsets of groups that its transaction holds. They come with the first
    partitions only, and are at most 10,000 of `pending_offset_count`.
    """

    partitions: list[TransactionPartition]
    pending_offsets: list[PendingOffset]
    pending_offset_count: int | None
    complete: bool


class DescribeTransactionRequest(PagedRequest[TransactionDescription], tag="transactions.describe"):
    """One transactional id, with its partitions from the first one after `after` (topic, partition) on."""

    rows = "partitions"
    key = "topic partition"
    transactional_id: str
    after: tuple[str, int] | None = None


class HangingTransaction(msgspec.Struct, frozen=True):
    """A transaction that a partition has open from `first_offset` on, and why it counts as hanging.

    `reason` is one of REASONS. `age_ms` is the time since the producer last wrote to the partition, by the
    gateway's clock; `last_timestamp` is the timestamp of its newest record.
    """

    broker_id: int
    topic: TopicName
    partition: PartitionNumber
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    coordinator_epoch: int
    first_offset: Annotated[int, Column("first\noffset", number)]
    last_timestamp: int
    age_ms: Annotated[int, Column("age", duration)]
    transactional_id: TransactionalId
    reason: Annotated[str, Column("reason")]
    client: ClientOrNone


class HangingPage(msgspec.Struct, frozen=True):
    """Some of the hanging transactions; `complete`: no transaction comes after the last row.

    While `offline_partitions` of `__transaction_state` are out of service, one of them may know an unknown
    producer. The transactions of unknown producers are missing then.
    """

    hanging: list[HangingTransaction]
    complete: bool
    offline_partitions: list[int]


class FindHangingRequest(PagedRequest[HangingPage], tag="transactions.hanging"):
    """The open transactions that no coordinator will end, by topic, partition and producer id. `after` is
    topic, partition and producer id of the last row of the page before.
    """

    is_spread = True
    rows = "hanging"
    key = "topic partition producer_id"
    topic: str | None = None
    partition: int | None = None
    after: tuple[str, int, int] | None = None


class FencedBy(msgspec.Struct, frozen=True):
    """The producer id and epoch that replace a fenced producer; the gateway refuses the old ones."""

    producer_id: int
    producer_epoch: int


class TransactionAbort(msgspec.Struct, frozen=True):
    """An abort, `executed` or only planned, with the transaction as it was before.

    `partitions` are at most 10,000 of `partition_count`. A transaction that only one partition has open may
    have no known `transactional_id` or `start_ms`, and its abort fences no producer.
    """

    executed: bool
    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    start_ms: int | None
    age_ms: int
    partitions: list[TransactionPartition]
    partition_count: int
    pending_offset_count: int | None
    fenced_by: FencedBy | None
    client: ClientOrNone = None


class AbortTransactionRequest(Request[TransactionAbort], tag="transactions.abort"):
    """Fence a producer and abort its open transaction; without `execute` only report what the abort would do.
    With `start_ms` the gateway aborts only the transaction that began then, not a later one.
    """

    transactional_id: str
    start_ms: int | None = None
    execute: bool = False


class AbortHangingRequest(Request[TransactionAbort], tag="transactions.abort-hanging"):
    """Abort a transaction that a partition has open from `first_offset` on; without `execute` report it."""

    topic: str
    partition: int
    first_offset: int
    execute: bool = False


# The reasons for which an open transaction counts as hanging.

UNKNOWN_PRODUCER: Final = "unknown producer"
NOT_PART: Final = "not part"
OVERDUE: Final = "overdue"
REASONS: Final = (UNKNOWN_PRODUCER, NOT_PART, OVERDUE)
