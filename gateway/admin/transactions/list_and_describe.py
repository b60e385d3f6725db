"""`seqgate transactions list` and `describe`: transactional ids, and what their transactions hold back.

The requests and rows, the commands, and the answers: any cluster's over the Kafka protocol, a running
gateway's on the control socket, and what a data directory holds that no gateway has open. All three yield the
coordinator's own `Transaction`, from which rows and refusals are made. Functions that answer raise
ControlError. `hanging.py` has the commands that find and abort transactions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec

from seqgate.gateway.admin.commands import Commands, Output, argument, asks, option
from seqgate.gateway.admin.operation import LiveGateway, StoppedGateway, as_control_error
from seqgate.gateway.admin.options import Asker, Opened, gateway_or_cluster, parsed_or_exit_2
from seqgate.gateway.admin.producers import active_producers
from seqgate.gateway.admin.request import (
    MAX_PAGE_ROWS,
    STOPPED,
    ClusterAnswers,
    ControlError,
    Elsewhere,
    PagedRequest,
    from_source,
    in_words,
    page,
)
from seqgate.gateway.admin.tables import (
    NONE,
    Block,
    ClientOrNone,
    Column,
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
from seqgate.gateway.admin.transactions.pending_offsets import (
    PendingOffset,
    ProducerEpoch,
    ProducerId,
    in_order,
    pending_offset,
)
from seqgate.gateway.security.principals import ClientIdentity

if TYPE_CHECKING:
    from pathlib import Path

    from seqgate.gateway.admin.remote.cluster import Cluster
    from seqgate.gateway.coordinator.places import TopicPartition
    from seqgate.gateway.coordinator.transaction.records import Transaction
    from seqgate.gateway.handlers.transactions.transactions import IsWanted
    from seqgate.gateway.runtime.coordinators.shards import Codec

# The requests about transactions, and what `seqgate transactions … --json` prints.
# Times are milliseconds since the Unix epoch. A value that nobody knows is None.


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

    asks_every_worker = True
    rows = "transactions"
    key = "transactional_id"
    states: list[str] = msgspec.field(default_factory=list)
    producer_ids: list[int] = msgspec.field(default_factory=list)
    longer_than_ms: int | None = None
    pattern: str | None = None
    after: str | None = None


class TransactionPartition(msgspec.Struct, frozen=True):
    """A partition that a transaction writes to; `first_offset` is the offset of its first record there, None
    without one, or where the partition can't be asked.

    Readers of committed records wait at `last_stable_offset`, the first offset of the partition's open
    transactions (`Transactions.last_stable_offset` in `log/state/transactions.py`), other readers at
    `high_watermark`. Both are None when the partition is gone, another gateway leads it, or the gateway is
    stopped.
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


# The commands.

app = Commands("""Look at transactions, and end those that hang.

A producer with a transactional.id writes to many partitions, and commits what it consumed, \
all or nothing. Until its
transaction ends, readers of committed records wait before the first record of it in every partition.

The commands ask the gateway that runs on --data-dir, or the cluster at --bootstrap; \
list and describe also read that directory when no gateway runs.
""")

Name = Annotated[str, argument("NAME", "The transactional.id of the producer.")]


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
        states or [], producer_ids or [], parsed_or_exit_2(duration_ms, longer_than, "--longer-than"), pattern
    )
    with opened as client:
        gateway, page = client.ask_running_or_data_directory(request)
    document = {
        "gateway": gateway,
        "transactions": page.transactions,
        "offline_partitions": page.offline_partitions,
        "partitions_elsewhere": page.partitions_elsewhere,
    }
    return Output(document, _listing_text(gateway, page))


@app.command("describe")
@asks(gateway_or_cluster)
def describe(opened: Opened[Asker], name: Name) -> Output:
    """Show a transactional id: its producer, its transaction, and what the transaction holds back.

    \b
    Columns of the partitions:
      first offset   of the transaction's first record; `-`: no record there yet, or not known here
      last stable    the offset at which readers of committed records wait, for this or another transaction
      log end        after the newest record that other consumers can see (the high watermark)

    Then the offsets that the transaction holds, which are committed or dropped with the transaction. A
    superseded offset never takes effect, because the group has committed another one since.
    """  # noqa: D301 - \b keeps the lines of the list apart
    with opened as client:
        gateway, description = client.ask_running_or_data_directory(DescribeTransactionRequest(name))
    return Output(description, _description_text(gateway, description))


# The text for people. Names that clients choose are escaped for the terminal.


def _listing_text(gateway: str, page: TransactionPage) -> Iterator[Block]:
    yield table(
        TransactionRow,
        page.transactions,
        "transactional_id state producer_id producer_epoch partition_count age_ms timeout_ms client",
    )
    yield f"{counted(len(page.transactions), 'transactional id')}."
    yield from offline_text("Transactional ids are missing", page.offline_partitions)
    if page.partitions_elsewhere:
        led = counted(len(page.partitions_elsewhere), "partition")
        yield (
            f"Transactional ids are missing: other gateways lead {led} of __transaction_state; ask the "
            "cluster with --bootstrap."
        )
    yield from _stopped(gateway)


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


def offline_text(what: str, offline_partitions: Sequence[int]) -> Iterator[str]:
    """Yield what is missing while partitions of `__transaction_state` are out of service."""
    if offline_partitions:
        names = ", ".join(map(str, offline_partitions))
        yield f"{what}: {names} of __transaction_state is offline (seqgate status)."


# The answers, from what any source knows of a transaction.

MAX_TOLD: Final = MAX_PAGE_ROWS
"""Rows of a list that comes complete with the first page; further rows are only counted."""


class OpenProducer(NamedTuple):
    """A producer with an open transaction in a partition, which the gateway `broker_id` leads.
    `last_active_ms` is when its last batch came, where the source knows it, otherwise its newest timestamp.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int
    last_timestamp: int
    last_active_ms: int
    broker_id: int

    @property
    def place(self) -> TopicPartition:
        """The topic and the partition."""
        return self.topic, self.partition


def rows_of_ids(
    transactions: Iterable[tuple[str, Transaction]],
    request: ListTransactionsRequest,
    now_ms: int,
    client_of: Callable[[int, int], ClientIdentity | None] = lambda _id, _epoch: None,
) -> tuple[list[TransactionRow], bool]:
    """Return a page of the requested rows in order, and whether these are the last ones. `client_of` returns
    the client of a producer id and epoch.
    """
    is_wanted = _filter(request, now_ms)
    found = (item for item in transactions if is_wanted(*item))
    items, complete = page(found, request.after, request.limit, key=lambda item: item[0])
    rows = [
        row_of(name, known, client_of(known.producer_id, known.producer_epoch), now_ms)
        for name, known in items
    ]
    return rows, complete


def _filter(request: ListTransactionsRequest, now_ms: int) -> IsWanted:
    """Return Kafka's filter (`transaction_filter` in `handlers/transactions/transactions.py`): by state,
    producer, pattern, and whether the transaction began more than `longer_than_ms` ago. Raises ControlError.
    """
    from seqgate.gateway.handlers.transactions import transactions  # noqa: PLC0415 - slow to import

    longer_than_ms = transactions.NO_DURATION if request.longer_than_ms is None else request.longer_than_ms
    try:
        passes = transactions.transaction_filter(
            [state_of(name) for name in request.states],
            request.producer_ids,
            longer_than_ms,
            request.pattern,
            now_ms,
        )
    except transactions.InvalidPattern as error:
        raise ControlError(f"{request.pattern} is not a regular expression: {error}") from error
    may_be_listed = _has_transaction_if_it_must(request)
    return lambda name, transaction: may_be_listed(transaction.state.text) and passes(name, transaction)


def _has_transaction_if_it_must(request: ListTransactionsRequest) -> Callable[[str], bool]:
    """Return a function from an id's state to whether the id may be listed: with `longer_than_ms` it must
    have a transaction. Kafka's filter also passes an id whose last transaction began so long ago, or that
    never had any.
    """
    from seqgate.gateway.coordinator.transaction.records import BY_NAME, IDLE  # noqa: PLC0415 - slow

    if request.longer_than_ms is None:
        return lambda _: True
    return lambda state: BY_NAME.get(state) not in IDLE


def states() -> tuple[str, ...]:
    """Return the states of a transactional id."""
    from seqgate.gateway.coordinator.transaction.records import MAY_FOLLOW  # noqa: PLC0415 - slow to import

    return tuple(state.text for state in MAY_FOLLOW)


def state_of(name: str) -> str:
    """Return the state with a name, such as `prepare-commit`. Raises ControlError."""
    wanted = name.lower().replace("-", "").replace("_", "")
    state = next((each for each in states() if each.lower() == wanted), None)
    if state is None:
        raise ControlError(
            f"{name} is not a state of a transactional id; the states are {', '.join(states())}"
        )
    return state


def row_of(
    transactional_id: str, transaction: Transaction, client: ClientIdentity | None, now_ms: int
) -> TransactionRow:
    """Return the row of a transactional id."""
    return TransactionRow(**_fields(transactional_id, transaction, client, now_ms))


def _fields(
    transactional_id: str, transaction: Transaction, client: ClientIdentity | None, now_ms: int
) -> dict[str, Any]:
    from seqgate.gateway.coordinator.transaction.records import IDLE, NO_TIME  # noqa: PLC0415 - slow

    is_open = transaction.state not in IDLE and transaction.start_ms != NO_TIME
    updated_ms = transaction.last_update_ms
    return {
        "transactional_id": transactional_id,
        "state": transaction.state.text,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "timeout_ms": transaction.timeout_ms,
        "last_update_ms": None if updated_ms == NO_TIME else updated_ms,
        "start_ms": transaction.start_ms if is_open else None,
        "age_ms": max(0, now_ms - transaction.start_ms) if is_open else None,
        "partition_count": len(transaction.partitions),
        "client": client,
    }


async def describe_transaction(
    source: ClusterTransactions | LiveTransactions | StoredTransactions, request: DescribeTransactionRequest
) -> TransactionDescription:
    """Return an id with one page of its partitions; the first has the offsets that its transaction holds."""
    transaction = source.find(request.transactional_id)
    places, complete = page(transaction.partitions, request.after, request.limit, key=lambda place: place)
    pending: list[PendingOffset] | None = []
    if request.after is None:
        pending = source.pending(request.transactional_id, transaction.producer_id)
    partitions = source.taking_part(places, transaction.producer_id)
    client = source.client(transaction.producer_id, transaction.producer_epoch)
    return TransactionDescription(
        **_fields(request.transactional_id, transaction, client, source.now_ms),
        partitions=partitions,
        pending_offsets=(pending or [])[:MAX_TOLD],
        pending_offset_count=None if pending is None else len(pending),
        complete=complete,
    )


# Over the Kafka protocol: any cluster's transactions. Raises ControlError.

IDS_AT_ONCE: Final = 500
"""Transactional ids in one request; the rest go with the next one."""
_NOT_BEGUN: Final = -1


def list_transactions_remote(cluster: Cluster, request: ListTransactionsRequest) -> TransactionPage:
    """Return all transactional ids that pass the filters, in order."""
    from kio.schema.errors import ErrorCode  # noqa: PLC0415 - slow to import

    from seqgate.gateway.admin.remote.cluster import Refused  # noqa: PLC0415

    request = msgspec.structs.replace(request, states=[state_of(state) for state in request.states])
    try:
        ids = sorted({row.transactional_id for row in listed_ids(cluster, request)})
    except Refused as error:
        if error.code != ErrorCode.invalid_regular_expression:
            raise
        raise ControlError(f"{request.pattern} is not a regular expression (RE2)") from error
    return TransactionPage(rows_of(cluster, ids), True, ClusterTransactions(cluster).offline_partitions)


class ListedId(NamedTuple):
    """A transactional id without its transaction."""

    transactional_id: str
    producer_id: int
    state: str


def listed_ids(cluster: Cluster, wanted: ListTransactionsRequest) -> set[ListedId]:
    """Return the transactional ids that pass the filters, as every broker lists them; an empty filter lets
    all pass.
    """
    may_be_listed = _has_transaction_if_it_must(wanted)
    needed = 2 if wanted.pattern is not None else 0 if wanted.longer_than_ms is None else 1
    asked = cluster.request(
        66,
        2,
        needed,
        state_filters=tuple(wanted.states),
        producer_id_filters=tuple(wanted.producer_ids),
        duration_filter=-1 if wanted.longer_than_ms is None else wanted.longer_than_ms,
        transactional_id_pattern=wanted.pattern,
    )
    return {
        ListedId(str(row.transactional_id), int(row.producer_id), str(row.transaction_state))
        for answer in cluster.ask_all(asked)
        for row in answer.transaction_states
        if may_be_listed(row.transaction_state)
    }


def rows_of(cluster: Cluster, ids: Sequence[str]) -> list[TransactionRow]:
    """Return these ids with their transactions, without ids that are gone by now."""
    found = _described(cluster, ids)
    told_ms = now_ms()
    return [row_of(name, *found[name], told_ms) for name in ids if name in found]


def described_ids(cluster: Cluster, producer_ids: Sequence[int]) -> dict[str, Described]:
    """Return the transactional ids of producers, with their transactions."""
    listed = listed_ids(cluster, ListTransactionsRequest(producer_ids=list(producer_ids)))
    return _described(cluster, sorted({row.transactional_id for row in listed}))


class Described(NamedTuple):
    """A transaction, and the client of its producer."""

    transaction: Transaction
    client: ClientIdentity | None


def _described(cluster: Cluster, ids: Sequence[str]) -> dict[str, Described]:
    """Return the transactions of ids, without ids that are gone."""
    from kio.schema.errors import ErrorCode  # noqa: PLC0415 - slow to import

    from seqgate.gateway.admin.remote.broker import TRANSACTION  # noqa: PLC0415
    from seqgate.gateway.admin.remote.cluster import check  # noqa: PLC0415

    found: dict[str, Described] = {}
    for first in range(0, len(ids), IDS_AT_ONCE):
        rows = cluster.ask_coordinators(
            TRANSACTION,
            ids[first : first + IDS_AT_ONCE],
            lambda some: cluster.request(65, 0, transactional_ids=tuple(some)),
        )
        for name, row in rows.items():
            if row.error_code != ErrorCode.transactional_id_not_found:
                check(row, f"transactional id {name}: ")
                found[name] = _told(row)
    return found


def _told(row: Any) -> Described:
    from seqgate.gateway.coordinator.transaction import records  # noqa: PLC0415 - slow to import
    from seqgate.gateway.protocol.messages import milliseconds  # noqa: PLC0415

    start = row.transaction_start_time
    transaction = records.Transaction(
        row.producer_id,
        row.producer_epoch,
        milliseconds(row.transaction_timeout),
        records.BY_NAME[row.transaction_state],
        frozenset((topic.topic, partition) for topic in row.topics for partition in topic.partitions),
        records.NO_TIME,
        _NOT_BEGUN if start is None else round(start.timestamp() * 1000),
    )
    return Described(transaction, ClientIdentity.from_json(row.client))


def now_ms() -> int:
    """Return the time by this machine's clock."""
    return time.time_ns() // 1_000_000


class ClusterTransactions:
    """The transactions of a cluster. The Kafka protocol does not report which offsets of groups a transaction
    holds.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._clients: dict[tuple[int, int], ClientIdentity | None] = {}
        """The clients of producers, by producer id and epoch."""

    @property
    def now_ms(self) -> int:
        """The time by which ages are told."""
        return now_ms()

    @property
    def offline_partitions(self) -> list[int]:
        """The partitions of `__transaction_state` without a leader: nobody lists their transactions."""
        # The name is Kafka's, as in `offline_text`: a list needs nothing else of the module of the metadata.
        return self._cluster.unled_partitions("__transaction_state")

    def find(self, transactional_id: str) -> Transaction:
        """Return the transaction of an id that must exist."""
        found = _described(self._cluster, [transactional_id]).get(transactional_id)
        if found is None:
            raise ControlError(f"there is no transactional id {transactional_id}")
        transaction, client = found
        self._clients[transaction.producer_id, transaction.producer_epoch] = client
        return transaction

    def taking_part(self, places: Sequence[TopicPartition], producer_id: int) -> list[TransactionPartition]:
        """Return partitions with the offsets of the producer's transaction in them."""
        led = sorted(set(places).intersection(self._cluster.leaders()))  # a topic may be gone meanwhile
        stable, ends = self._cluster.ends(led, "read_committed"), self._cluster.ends(led)
        first = {
            producer.place: producer.first_offset
            for producer in self.opened(led)
            if producer.producer_id == producer_id
        }
        return [
            TransactionPartition(*place, first.get(place), stable.get(place), ends.get(place))
            for place in places
        ]

    def pending(self, _transactional_id: str | None, _producer_id: int) -> list[PendingOffset] | None:
        """Return None: the Kafka protocol does not report the offsets."""
        return None

    def opened(self, places: Sequence[TopicPartition]) -> list[OpenProducer]:
        """Return the producers with an open transaction in partitions, in order."""
        active = active_producers(self._cluster, places) if places else []
        self._clients |= {(row.producer_id, row.producer_epoch): row.client for row in active if row.client}
        return sorted(
            OpenProducer(
                producer.topic,
                producer.partition,
                producer.producer_id,
                producer.producer_epoch,
                producer.coordinator_epoch,
                producer.current_txn_start_offset,
                producer.last_timestamp,
                producer.last_timestamp,
                broker_id=-1,
            )
            for producer in active
            if producer.current_txn_start_offset >= 0
        )

    def client(self, producer_id: int, producer_epoch: int) -> ClientIdentity | None:
        """Return the client as the answers so far told it; Kafka itself tells none."""
        return self._clients.get((producer_id, producer_epoch))


OPERATIONS: Final[ClusterAnswers] = {
    ListTransactionsRequest: list_transactions_remote,
    DescribeTransactionRequest: from_source(ClusterTransactions, describe_transaction),
}


# In the gateway: its transactions, from its own objects.


def list_transactions_live(gateway: LiveGateway, request: ListTransactionsRequest) -> TransactionPage:
    """Return one page of the transactional ids. Raises ControlError."""
    services = gateway.services
    now_ms = services.node.clock.now_ms()
    source = LiveTransactions(gateway)
    rows, complete = rows_of_ids(services.coordinators.transactions.all(), request, now_ms, source.client)
    return TransactionPage(rows, complete, source.offline_partitions, source.partitions_elsewhere())


class LiveTransactions:
    """The transactions coordinated by this gateway, and the partitions it leads."""

    def __init__(self, gateway: LiveGateway) -> None:
        services = gateway.services
        self._services = services
        self._partitions = services.partitions.registry
        self._transactions = services.coordinators.transactions

    @property
    def now_ms(self) -> int:
        return self._services.node.clock.now_ms()

    @property
    def offline_partitions(self) -> list[int]:
        return self._transactions.shards.missing()

    def partitions_elsewhere(self) -> list[int]:
        """Return the partitions of `__transaction_state` that other gateways lead, or that none leads now."""
        from seqgate.gateway.metadata.image import TRANSACTION_STATE_TOPIC  # noqa: PLC0415 - slow to import

        topic = self._services.topics.metadata_log.image.topics_by_name.get(TRANSACTION_STATE_TOPIC)
        brokers = self._services.node.brokers
        return [
            index
            for index, partition in sorted(topic.partitions.items() if topic is not None else ())
            if not brokers.leads(partition)
        ]

    def advice(self) -> str:
        """Return what to do where another gateway knows the answer."""
        advertised = self._services.node.brokers.advertised.values()
        address = next((place.shown for place in advertised), "HOST:PORT")
        return f"ask the cluster with --bootstrap {address}"

    def find(self, transactional_id: str) -> Transaction:
        from seqgate.gateway.metadata.image import TRANSACTION_STATE_TOPIC  # noqa: PLC0415 - slow to import

        found = None
        if TRANSACTION_STATE_TOPIC in self._partitions.by_name:
            self._check_is_here(transactional_id)
            with as_control_error(f"transactional id {transactional_id}", TRANSACTION_STATE_TOPIC):
                found = self._transactions.find(transactional_id)
        if found is None:
            raise ControlError(f"there is no transactional id {transactional_id}")
        return found

    def _check_is_here(self, transactional_id: str) -> None:
        node_id = self._services.coordinators.elsewhere.coordinator_of(transactional_id)
        if node_id is None:
            return
        if node_id < 0:
            raise ControlError(
                f"no live gateway coordinates transactional id {transactional_id} now; try again later"
            )
        raise Elsewhere(f"gateway {node_id} coordinates transactional id {transactional_id}; {self.advice()}")

    def taking_part(self, places: Sequence[TopicPartition], producer_id: int) -> list[TransactionPartition]:
        return [self._taking_part(place, producer_id) for place in places]

    def _taking_part(self, place: TopicPartition, producer_id: int) -> TransactionPartition:
        partition = self._partitions.get(*place)
        if partition is None:
            return TransactionPartition(*place, None, None, None)
        log = partition.log
        found = log.transactions.open_transaction(producer_id)
        first_offset = None if found is None else found.first_offset
        return TransactionPartition(*place, first_offset, log.last_stable_offset, log.high_watermark)

    def pending(self, transactional_id: str | None, producer_id: int) -> list[PendingOffset] | None:
        """Return the offsets that the producer's transaction holds, in order; None where other gateways hold
        some of them.
        """
        from seqgate.gateway.metadata.image import OFFSETS_TOPIC  # noqa: PLC0415 - slow to import

        topic = self._partitions.by_name.get(OFFSETS_TOPIC)
        if topic is not None and sum(1 for _ in topic.served_here()) < topic.count:
            return None
        return in_order(
            pending_offset(held, transactional_id)
            for shard in self._services.coordinators.groups.loaded_shards()
            for held in shard.offsets.pending.of_producer(producer_id)
        )

    def client(self, producer_id: int, producer_epoch: int) -> ClientIdentity | None:
        return self._services.partitions.counters.clients.find(producer_id, producer_epoch)


# In a data directory that no gateway has open, read without a lock and without a change. The offsets that
# only open partition logs know are missing.


def list_transactions_stopped(gateway: StoppedGateway, request: ListTransactionsRequest) -> TransactionPage:
    """Return all requested transactional ids, in order. Raises ControlError."""
    found = _stored_transactions(gateway.data_dir)
    rows, complete = rows_of_ids(found.items(), request, gateway.now_ms)
    return TransactionPage(rows, complete, [])


def describe_transaction_stopped(
    gateway: StoppedGateway, request: DescribeTransactionRequest
) -> TransactionDescription:
    """Return a transactional id with all its partitions, and the offsets it holds. Raises ControlError."""
    from seqgate.gateway.admin.remote.cluster import finished  # noqa: PLC0415 - slow to import

    return finished(describe_transaction(StoredTransactions(gateway.data_dir, gateway.now_ms), request))


class StoredTransactions(NamedTuple):
    """The transactions that a data directory holds. Their coroutines wait for nothing."""

    data_dir: Path
    now_ms: int

    def find(self, transactional_id: str) -> Transaction:
        found = _stored_transactions(self.data_dir).get(transactional_id)
        if found is None:
            raise ControlError(f"there is no transactional id {transactional_id}")
        return found

    def taking_part(self, places: Sequence[TopicPartition], _producer_id: int) -> list[TransactionPartition]:
        return [TransactionPartition(*place, None, None, None) for place in places]

    def pending(self, transactional_id: str, producer_id: int) -> list[PendingOffset]:
        return _stored_pending(self.data_dir, transactional_id, producer_id)

    def client(self, _producer_id: int, _producer_epoch: int) -> None:
        """Return None: only a running gateway knows the clients."""
        return


def _stored_transactions(data_dir: Path) -> dict[str, Transaction]:
    from seqgate.gateway.admin.stored import partition_directories, whole_state  # noqa: PLC0415 - slow
    from seqgate.gateway.coordinator.transaction import records  # noqa: PLC0415
    from seqgate.gateway.coordinator.transaction.rules import TransactionShard  # noqa: PLC0415
    from seqgate.gateway.metadata.image import TRANSACTION_STATE_TOPIC  # noqa: PLC0415

    whole_state(data_dir)
    shard = TransactionShard()
    for directory in partition_directories(data_dir, TRANSACTION_STATE_TOPIC):
        for record in _stored_records(directory, records):
            if isinstance(record, records.TransactionRecord):
                shard.replay(record, 0)
    return shard.transactions


def _stored_pending(data_dir: Path, transactional_id: str, producer_id: int) -> list[PendingOffset]:
    from seqgate.gateway.admin.stored import partition_directories  # noqa: PLC0415 - slow
    from seqgate.gateway.coordinator.group import records  # noqa: PLC0415
    from seqgate.gateway.coordinator.group.offsets import GroupOffsets, OffsetRecord  # noqa: PLC0415
    from seqgate.gateway.metadata.image import OFFSETS_TOPIC  # noqa: PLC0415

    pending: list[PendingOffset] = []
    for directory in partition_directories(data_dir, OFFSETS_TOPIC):
        offsets = GroupOffsets()
        for record in _stored_records(directory, records):
            if isinstance(record, OffsetRecord):
                offsets.replay(record)
        pending += (
            pending_offset(held, transactional_id) for held in offsets.pending.of_producer(producer_id)
        )
    return in_order(pending)


def _stored_records(directory: Path, codec: Codec) -> Iterator[Any]:
    from seqgate.gateway.runtime.coordinators.shards import decoded  # noqa: PLC0415 - slow to import
    from seqgate.log import IncompatibleFormat, LogError, Storage  # noqa: PLC0415
    from seqgate.log.stopped import stored_batches  # noqa: PLC0415

    try:
        for header, batch in stored_batches(Storage(), directory):
            yield from decoded(codec, header, batch, directory.name)
    except (LogError, IncompatibleFormat, OSError) as error:
        raise ControlError(f"{directory} can't be read: {in_words(error)}") from error
