"""Answers what commands and the console ask about transactions: each question once, for every source.

A `TransactionSource` says what it knows: live.py has the one of a running gateway, and reads a data
directory; remote.py has the one of a cluster that is asked over the Kafka protocol. All three yield the
coordinator's own `Transaction`, from which this module makes rows, plans and refusals. Every function raises
ControlError.

A transaction hangs when no coordinator will end it:

    reason             the coordinator
    unknown producer   knows no transactional id with this producer id
    not part           knows the id, but the partition takes no part in its transaction
    overdue            knows the transaction, which is open for longer than its producer asked for

Readers of committed records wait before the first record of such a transaction. The coordinator aborts an
overdue transaction at its next check (`transaction.abort.timed.out.transaction.cleanup.interval.ms`); an
operator aborts the others one by one, as with `kafka-transactions abort`. Source: Kafka's
TransactionsCommand, KIP-664.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from seqgate.gateway.admin.request import MAX_PAGE_ROWS, ControlError, page
from seqgate.gateway.admin.transactions.command import (
    NOT_PART,
    OVERDUE,
    UNKNOWN_PRODUCER,
    AbortHangingRequest,
    AbortTransactionRequest,
    DescribeTransactionRequest,
    FencedBy,
    FindHangingRequest,
    HangingPage,
    HangingTransaction,
    ListTransactionsRequest,
    PendingOffset,
    TransactionAbort,
    TransactionDescription,
    TransactionPartition,
    TransactionRow,
)
from seqgate.gateway.coordinator.places import TopicPartition
from seqgate.gateway.coordinator.transaction.records import (
    DECIDED,
    IDLE,
    MAY_FOLLOW,
    NO_TIME,
    ONGOING,
    Transaction,
)
from seqgate.gateway.coordinator.transaction.rules import (
    NO_DURATION,
    InvalidPattern,
    IsWanted,
    transaction_filter,
)
from seqgate.gateway.metadata.image import OFFSETS_TOPIC
from seqgate.gateway.security.principals import ClientIdentity

STATES: Final = tuple(state.text for state in MAY_FOLLOW)
"""The states of a transactional id."""
_STATES: Final = {state.lower(): state for state in STATES}
MAX_TOLD: Final = MAX_PAGE_ROWS
"""Rows of a list that comes complete with the first page; further rows are only counted."""


class KnownTransaction(NamedTuple):
    """A transactional id and its transaction, as the coordinator knows them."""

    transactional_id: str
    transaction: Transaction


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


class TransactionSource(Protocol):
    """Finds and ends transactions of a gateway, a cluster or a data directory. Raises ControlError."""

    @property
    def now_ms(self) -> int:
        """The time by which ages are told."""

    @property
    def offline_partitions(self) -> list[int]:
        """The partitions of `__transaction_state` that are known to be out of service."""

    def find(self, transactional_id: str) -> Transaction:
        """Return the transaction of an id that must exist."""

    def taking_part(self, places: Sequence[TopicPartition], producer_id: int) -> list[TransactionPartition]:
        """Return partitions with the offsets of the producer's transaction in them."""

    def pending(self, transactional_id: str | None, producer_id: int) -> list[PendingOffset] | None:
        """Return the offsets that the producer's transaction holds, in order; None where nobody knows."""

    async def fence(self, transactional_id: str, before: Transaction) -> FencedBy:
        """Initialize a new producer of the id, which fences the old one and aborts its transaction."""

    def open_producers(self, request: FindHangingRequest) -> AsyncIterator[list[OpenProducer]]:
        """Yield the producers with an open transaction by topic, partition and producer id, from the last
        partition of the previous page on.
        """

    def open_in(self, topic: str, partition: int) -> list[OpenProducer]:
        """Return the producers that have an open transaction in a partition, which must exist."""

    def known(self, producer_ids: Iterable[int]) -> Callable[[int], KnownTransaction | None]:
        """Return a function that finds the transaction of each of these producers; None: nobody knows it."""

    def is_overdue(self, transaction: Transaction) -> bool:
        """Return whether a transaction is open for longer than its timeout."""

    def client(self, producer_id: int, producer_epoch: int) -> ClientIdentity | None:
        """Return the client of a producer; None where nobody knows it."""

    async def abort_in(self, producer: OpenProducer) -> None:
        """Write the marker that aborts the producer's transaction in its partition, and persist it."""


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
    longer_than_ms = NO_DURATION if request.longer_than_ms is None else request.longer_than_ms
    try:
        passes = transaction_filter(
            [state_of(name) for name in request.states],
            request.producer_ids,
            longer_than_ms,
            request.pattern,
            now_ms,
        )
    except InvalidPattern as error:
        raise ControlError(f"{request.pattern} is not a regular expression: {error}") from error
    if longer_than_ms < 0:
        return passes
    return lambda name, transaction: transaction.state not in IDLE and passes(name, transaction)


def state_of(name: str) -> str:
    """Return the state with a name, such as `prepare-commit`. Raises ControlError."""
    state = _STATES.get(name.lower().replace("-", "").replace("_", ""))
    if state is None:
        raise ControlError(f"{name} is not a state of a transactional id; the states are {', '.join(STATES)}")
    return state


def row_of(
    transactional_id: str, transaction: Transaction, client: ClientIdentity | None, now_ms: int
) -> TransactionRow:
    """Return the row of a transactional id."""
    return TransactionRow(**_fields(transactional_id, transaction, client, now_ms))


def _fields(
    transactional_id: str, transaction: Transaction, client: ClientIdentity | None, now_ms: int
) -> dict[str, Any]:
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
    source: TransactionSource, request: DescribeTransactionRequest
) -> TransactionDescription:
    """Return an id with one page of its partitions; the first has the offsets that its transaction holds."""
    transaction = source.find(request.transactional_id)
    places, complete = page(transaction.partitions, request.after, request.limit, key=lambda place: place)
    pending: list[PendingOffset] | None = []
    if request.after is None:
        pending = source.pending(request.transactional_id, transaction.producer_id)
    return described(
        request.transactional_id,
        transaction,
        source.taking_part(places, transaction.producer_id),
        pending,
        source.client(transaction.producer_id, transaction.producer_epoch),
        source.now_ms,
        complete=complete,
    )


def described(
    transactional_id: str,
    transaction: Transaction,
    partitions: list[TransactionPartition],
    pending: list[PendingOffset] | None,
    client: ClientIdentity | None,
    now_ms: int,
    *,
    complete: bool,
) -> TransactionDescription:
    """Return an id with a page of its partitions; `pending` are all offsets that its transaction holds."""
    return TransactionDescription(
        **_fields(transactional_id, transaction, client, now_ms),
        partitions=partitions,
        pending_offsets=(pending or [])[:MAX_TOLD],
        pending_offset_count=None if pending is None else len(pending),
        complete=complete,
    )


async def abort_transaction(source: TransactionSource, request: AbortTransactionRequest) -> TransactionAbort:
    """Fence the producer and abort its transaction, if `execute` is set."""
    name = request.transactional_id
    before = source.find(name)
    _check_is_open(before, request)
    partitions = source.taking_part(sorted(before.partitions)[:MAX_TOLD], before.producer_id)
    pending = source.pending(name, before.producer_id)
    age_ms = max(0, source.now_ms - before.start_ms)
    return TransactionAbort(
        executed=request.execute,
        transactional_id=name,
        producer_id=before.producer_id,
        producer_epoch=before.producer_epoch,
        start_ms=before.start_ms,
        age_ms=age_ms,
        partitions=partitions,
        partition_count=len(before.partitions),
        pending_offset_count=None if pending is None else len(pending),
        client=source.client(before.producer_id, before.producer_epoch),
        fenced_by=await source.fence(name, before) if request.execute else None,
    )


def _check_is_open(transaction: Transaction, request: AbortTransactionRequest) -> None:
    name, state = request.transactional_id, transaction.state.text
    if transaction.state in DECIDED:
        raise ControlError(f"the transaction of {name} is ending already and can't be stopped: {state}")
    if transaction.state is not ONGOING:
        raise ControlError(f"{name} has no open transaction: {state}")
    if request.start_ms is not None and request.start_ms != transaction.start_ms:
        raise ControlError(f"the planned transaction of {name} has ended, and another one has begun")


async def find_hanging(source: TransactionSource, request: FindHangingRequest) -> HangingPage:
    """Return one page of the hanging transactions, by topic, partition and producer id."""
    offline = source.offline_partitions
    rows: list[HangingTransaction] = []
    async for opened in source.open_producers(request):
        find = source.known({producer.producer_id for producer in opened})
        for producer in opened:
            if request.after is not None and producer[:3] <= request.after:
                continue
            known = find(producer.producer_id)
            reason = _reason(source, known, producer.place)
            if reason is not None and not (reason == UNKNOWN_PRODUCER and offline):
                rows.append(_hanging_row(producer, known, reason, source))
        if len(rows) > request.limit:
            break
    return HangingPage(rows[: request.limit], len(rows) <= request.limit, offline)


def _reason(source: TransactionSource, known: KnownTransaction | None, place: TopicPartition) -> str | None:
    """Return why a transaction counts as hanging; None: it does not hang."""
    if known is None:
        return UNKNOWN_PRODUCER
    if place not in known.transaction.partitions:
        return NOT_PART
    return OVERDUE if source.is_overdue(known.transaction) else None


def _hanging_row(
    producer: OpenProducer, known: KnownTransaction | None, reason: str, source: TransactionSource
) -> HangingTransaction:
    return HangingTransaction(
        broker_id=producer.broker_id,
        topic=producer.topic,
        partition=producer.partition,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        coordinator_epoch=producer.coordinator_epoch,
        first_offset=producer.first_offset,
        last_timestamp=producer.last_timestamp,
        age_ms=max(0, source.now_ms - producer.last_active_ms),
        transactional_id=None if known is None else known.transactional_id,
        reason=reason,
        client=source.client(producer.producer_id, producer.producer_epoch),
    )


async def abort_hanging(source: TransactionSource, request: AbortHangingRequest) -> TransactionAbort:
    """Write and persist the marker that aborts a transaction in one partition, if `execute` is set."""
    opened = source.open_in(request.topic, request.partition)
    producer = next((row for row in opened if row.first_offset == request.first_offset), None)
    name = f"{request.topic}-{request.partition}"
    if producer is None:
        raise ControlError(f"{name} has no open transaction that begins at offset {request.first_offset}")
    known = source.known([producer.producer_id])(producer.producer_id)
    if known is not None and producer.place in known.transaction.partitions:
        raise ControlError(
            f"{name} takes part in the transaction of {known.transactional_id}, which must end everywhere at "
            f"once; abort that: seqgate transactions abort {known.transactional_id}"
        )
    pending = source.pending(None, producer.producer_id)
    if pending and request.topic != OFFSETS_TOPIC:
        pending = []
    before = TransactionAbort(
        executed=request.execute,
        transactional_id=None if known is None else known.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        start_ms=None,
        age_ms=max(0, source.now_ms - producer.last_active_ms),
        partitions=source.taking_part([producer.place], producer.producer_id),
        partition_count=1,
        pending_offset_count=None if pending is None else len(pending),
        fenced_by=None,
        client=source.client(producer.producer_id, producer.producer_epoch),
    )
    if request.execute:
        await source.abort_in(producer)
    return before
