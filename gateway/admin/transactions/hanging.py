"""`seqgate transactions find-hanging` and `abort`: transactions that no coordinator will end, and their end.

A transaction hangs when no coordinator will end it:

    reason             the coordinator
    unknown producer   knows no transactional id with this producer id
    not part           knows the id, but the partition takes no part in its transaction
    overdue            knows the transaction, which is open for longer than its producer asked for

Readers of committed records wait before the first record of such a transaction. The coordinator aborts an
overdue transaction at its next check (`transaction.abort.timed.out.transaction.cleanup.interval.ms`); an
operator aborts the others one by one, as with `kafka-transactions abort`. Source: Kafka's
TransactionsCommand, KIP-664.

The requests and rows, the commands, and the answers: any cluster's over the Kafka protocol, and a running
gateway's on the control socket. Functions that answer raise ControlError.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import msgspec

from seqgate.gateway.admin.commands import Output, argument, asks, option, stop
from seqgate.gateway.admin.completion import topic_names
from seqgate.gateway.admin.operation import (
    LiveGateway,
    as_control_error,
    check_led_here,
    existing_topic,
    partitions_after,
)
from seqgate.gateway.admin.options import Asker, Consented, Opened, gateway_or_cluster, must_agree
from seqgate.gateway.admin.printing import print_blocks
from seqgate.gateway.admin.request import (
    ClusterAnswers,
    ControlError,
    Elsewhere,
    PagedRequest,
    Request,
    from_source,
)
from seqgate.gateway.admin.tables import (
    Block,
    ClientOrNone,
    Column,
    PartitionNumber,
    TopicName,
    counted,
    duration,
    number,
    shown,
    table,
)
from seqgate.gateway.admin.transactions.list_and_describe import (
    MAX_TOLD,
    ClusterTransactions,
    LiveTransactions,
    OpenProducer,
    TransactionPartition,
    app,
    described_ids,
    now_ms,
    offline_text,
)
from seqgate.gateway.admin.transactions.pending_offsets import (
    KnownTransaction,
    ProducerEpoch,
    ProducerId,
    TransactionalId,
    known_producers,
)

if TYPE_CHECKING:
    from seqgate.gateway.coordinator.places import TopicPartition
    from seqgate.gateway.coordinator.transaction.records import Transaction
    from seqgate.gateway.runtime.partitions.partition import Partition

# The requests about transactions that hang or are aborted, and what `--json` prints.


class HangingTransaction(msgspec.Struct, frozen=True):
    """A transaction that a partition has open from `first_offset` on, and why it counts as hanging.

    `reason` is UNKNOWN_PRODUCER, NOT_PART or OVERDUE. `last_timestamp` is the timestamp of the producer's
    newest record in the partition. `age_ms` is the time since the producer wrote it, by the gateway's clock;
    over the Kafka protocol the time since `last_timestamp`, by the clock of the machine that asks.
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

    asks_every_worker = True
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
_FENCING_TIMEOUT_MS: Final = 1_000
FENCED_S: Final = 60.0
"""Time for a coordinator to end a transaction in all partitions."""


# The commands.

InTopic = Annotated[str | None, option("--topic", "TOPIC", "In this topic.", autocompletion=topic_names)]
InPartition = Annotated[int | None, option("--partition", "N", "In this partition.", min=0)]


@app.command("find-hanging")
@asks(gateway_or_cluster)
def find_hanging(opened: Opened[Asker], topic: InTopic = None, partition: InPartition = None) -> Output:
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
    *,
    name: str | None = argument(
        "NAME",
        "The transactional.id whose transaction is aborted, and whose producer is fenced.",
        default=None,
    ),
    topic: InTopic = None,
    partition: InPartition = None,
    start_offset: int | None = option(
        "--start-offset", "OFFSET", "The offset at which the transaction begins in this partition.", min=0
    ),
    consent: Consented,
) -> Output:
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
        if consent.as_json:
            return Output(_abort(client, request, execute=not consent.is_planned))
        planned = _abort(client, request, execute=False)
        if consent.dry_run:
            return Output(planned, _abort_text(planned))
        print_blocks(_abort_text(planned))
        if not consent.yes:
            must_agree("Abort it?")
        done = _abort(client, request, execute=True, planned=planned)
    return Output(done, [_aborted(done)])


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


def _hanging_text(page: HangingPage) -> Iterator[Block]:
    yield table(
        HangingTransaction,
        page.hanging,
        "topic partition first_offset producer_id producer_epoch transactional_id age_ms reason client",
    )
    yield f"{counted(len(page.hanging), 'hanging transaction')}."
    yield from offline_text("Transactions of unknown producers are missing", page.offline_partitions)


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


# The answers, from what any source knows of a transaction.

Ending: TypeAlias = "ClusterEnding | LiveEnding"
"""Finds and ends transactions. Raises ControlError."""


async def abort_transaction(source: Ending, request: AbortTransactionRequest) -> TransactionAbort:
    """Fence the producer and abort its transaction, if `execute` is set. Raises ControlError where there is
    no such id, or no open transaction.
    """
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
    from seqgate.gateway.coordinator.transaction.records import DECIDED, ONGOING  # noqa: PLC0415 - slow

    name, state = request.transactional_id, transaction.state.text
    if transaction.state in DECIDED:
        raise ControlError(f"the transaction of {name} is ending already and can't be stopped: {state}")
    if transaction.state is not ONGOING:
        raise ControlError(f"{name} has no open transaction: {state}")
    if request.start_ms is not None and request.start_ms != transaction.start_ms:
        raise ControlError(f"the planned transaction of {name} has ended, and another one has begun")


async def find_hanging_of(source: Ending, request: FindHangingRequest) -> HangingPage:
    """Return one page of the hanging transactions, by topic, partition and producer id."""
    offline = source.offline_partitions
    rows: list[HangingTransaction] = []
    async for opened in source.open_producers(request):
        find = source.known({producer.producer_id for producer in opened})
        suspects: dict[OpenProducer, HangingTransaction] = {}
        for producer in opened:
            if request.after is not None and producer[:3] <= request.after:
                continue
            known = find(producer.producer_id)
            reason = _reason(source, known, producer.place)
            if reason is not None and not (reason == UNKNOWN_PRODUCER and offline):
                suspects[producer] = _hanging_row(producer, known, reason, source)
        rows += [suspects[producer] for producer in source.still_open(list(suspects))]
        if len(rows) > request.limit:
            break
    return HangingPage(rows[: request.limit], len(rows) <= request.limit, offline)


def _reason(source: Ending, known: KnownTransaction | None, place: TopicPartition) -> str | None:
    """Return why a transaction counts as hanging; None: it does not hang."""
    if known is None:
        return UNKNOWN_PRODUCER
    if place not in known.transaction.partitions:
        return NOT_PART
    return OVERDUE if source.is_overdue(known.transaction) else None


def _hanging_row(
    producer: OpenProducer, known: KnownTransaction | None, reason: str, source: Ending
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


async def abort_hanging(source: Ending, request: AbortHangingRequest) -> TransactionAbort:
    """Write and persist the marker that aborts a transaction in one partition, if `execute` is set."""
    from seqgate.gateway.metadata.image import OFFSETS_TOPIC  # noqa: PLC0415 - slow to import

    opened = source.open_in(request.topic, request.partition)
    producer = next((row for row in opened if row.first_offset == request.first_offset), None)
    name = f"{request.topic}-{request.partition}"
    if producer is None:
        raise ControlError(f"{name} has no open transaction that begins at offset {request.first_offset}")
    offline = source.offline_partitions
    known = source.known([producer.producer_id])(producer.producer_id)
    if known is not None and producer.place in known.transaction.partitions:
        raise ControlError(
            f"{name} takes part in the transaction of {known.transactional_id}, which must end everywhere at "
            f"once; abort that: seqgate transactions abort {known.transactional_id}"
        )
    # A partition may have gone, or come back, while the coordinators were asked.
    offline = sorted({*offline, *source.offline_partitions})
    if known is None and offline:
        indexes = ", ".join(map(str, offline))
        raise ControlError(
            f"producer {producer.producer_id} may have a live transaction: {indexes} of __transaction_state "
            "is offline (seqgate status); abort it when all partitions are back"
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


# Over the Kafka protocol: any cluster's answers. Raises ControlError.


class ClusterEnding(ClusterTransactions):
    """Finds and ends transactions of a cluster. It asks the leaders DescribeProducers, every broker
    ListTransactions for these producer ids, and the coordinators DescribeTransactions. The coroutines wait
    for nothing but the network.
    """

    async def fence(self, transactional_id: str, before: Transaction) -> FencedBy:
        """Initialize a new producer of the id, which fences the old one and aborts its transaction."""
        from datetime import timedelta  # noqa: PLC0415 - slow to import

        from seqgate.gateway.admin.remote.broker import TRANSACTION  # noqa: PLC0415

        # The limit of the timeout may be lower now than when the producer began.
        limit = timedelta(milliseconds=min(before.timeout_ms, _FENCING_TIMEOUT_MS))
        asked = self._cluster.request(22, 4, transactional_id=transactional_id, transaction_timeout=limit)
        after = self._cluster.ask_coordinator(
            transactional_id, asked, TRANSACTION, is_change=True, patience_s=FENCED_S
        )
        return FencedBy(after.producer_id, after.producer_epoch)

    async def open_producers(self, request: FindHangingRequest) -> AsyncIterator[list[OpenProducer]]:
        """Yield the producers with an open transaction, those of all partitions at once."""
        from seqgate.gateway.metadata.image import OFFSETS_TOPIC  # noqa: PLC0415 - slow to import

        places = self._cluster.led_partitions(
            existing_topic=request.topic,
            existing_partition=request.partition,
            holds=lambda name, is_internal: not is_internal or name == OFFSETS_TOPIC,
        )
        leaders = self._cluster.leaders()
        yield [producer._replace(broker_id=leaders[producer.place]) for producer in self.opened(places)]

    def still_open(self, producers: Sequence[OpenProducer]) -> list[OpenProducer]:
        """Return those whose transaction is open now, after its coordinator was asked."""
        opened = {
            (producer.place, producer.producer_id, producer.first_offset)
            for producer in self.opened(sorted({producer.place for producer in producers}))
        }
        return [
            producer
            for producer in producers
            if (producer.place, producer.producer_id, producer.first_offset) in opened
        ]

    def open_in(self, topic: str, partition: int) -> list[OpenProducer]:
        """Return the producers that have an open transaction in a partition, which must exist."""
        return self.opened(self._cluster.led_partitions(existing_topic=topic, existing_partition=partition))

    def known(self, producer_ids: Iterable[int]) -> Callable[[int], KnownTransaction | None]:
        """Return a function that finds the transaction of each of these producers; None: nobody knows it."""
        wanted = sorted(producer_ids)
        if not wanted:
            return lambda _: None
        found = described_ids(self._cluster, wanted)
        return {each.producer_id: KnownTransaction(name, each) for name, (each, _) in found.items()}.get

    def is_overdue(self, transaction: Transaction) -> bool:
        """Compare with this machine's clock, which may lag behind the coordinator's."""
        from seqgate.gateway.coordinator.transaction.records import ONGOING  # noqa: PLC0415 - slow to import

        open_ms = now_ms() - transaction.start_ms
        is_open = transaction.state is ONGOING and transaction.start_ms >= 0
        return is_open and open_ms > transaction.timeout_ms

    async def abort_in(self, producer: OpenProducer) -> None:
        """Write the marker that aborts the producer's transaction in its partition, and persist it."""
        topic, partition = producer.place
        marker = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "transaction_result": False,
            "topics": [{"name": topic, "partition_indexes": (partition,)}],
            # The coordinator epoch is -1 before the first marker; Kafka's tool then sends 0 as well.
            "coordinator_epoch": max(0, producer.coordinator_epoch),
        }
        asked = self._cluster.request(27, 1, markers=[marker])
        self._cluster.ask_leaders([producer.place], lambda _: asked, is_change=True)


OPERATIONS: Final[ClusterAnswers] = {
    FindHangingRequest: from_source(ClusterEnding, find_hanging_of),
    AbortTransactionRequest: from_source(ClusterEnding, abort_transaction),
    AbortHangingRequest: from_source(ClusterEnding, abort_hanging),
}


# In the gateway: its answers on the control socket.


async def find_hanging_live(gateway: LiveGateway, request: FindHangingRequest) -> HangingPage:
    """Return one page of the hanging transactions. Raises ControlError."""
    source = LiveEnding(gateway)
    source.check_all_here()
    return await find_hanging_of(source, request)


async def abort_hanging_live(gateway: LiveGateway, request: AbortHangingRequest) -> TransactionAbort:
    """With `execute`, persist the marker that aborts a transaction in a partition. Raises ControlError."""
    source = LiveEnding(gateway)
    source.check_all_here()
    return await abort_hanging(source, request)


class LiveEnding(LiveTransactions):
    """Finds and ends the transactions that this gateway coordinates, in the partitions that it leads."""

    def check_all_here(self) -> None:
        """Refuse a question about all gateways: the control socket reaches one. Raises ControlError."""
        if self.partitions_elsewhere():
            raise Elsewhere(f"other gateways coordinate transactions, too; {self.advice()}")

    async def fence(self, transactional_id: str, before: Transaction) -> FencedBy:
        from seqgate.gateway.coordinator.transaction import rules  # noqa: PLC0415 - slow to import
        from seqgate.gateway.handlers.transactions.init_producer_id import begin_producer  # noqa: PLC0415
        from seqgate.gateway.metadata.image import TRANSACTION_STATE_TOPIC  # noqa: PLC0415

        # The limit of the timeout may be lower now than when the producer began.
        timeout_ms = min(before.timeout_ms, self._transactions.limits.max_timeout_ms)
        try:
            with as_control_error(f"transactional id {transactional_id}", TRANSACTION_STATE_TOPIC):
                producer = await begin_producer(
                    self._transactions, transactional_id, timeout_ms, rules.Producer()
                )
        except rules.TransactionRefused as error:
            raise ControlError(
                f"the abort of {transactional_id} is decided, but not written to every partition yet "
                f"({error.error_code.name}); the gateway continues the abort, and `seqgate status` shows "
                "whether a partition is offline"
            ) from error
        return FencedBy(*producer)

    def still_open(self, producers: Sequence[OpenProducer]) -> Sequence[OpenProducer]:
        """Return all: partitions and coordinator were asked in one turn."""
        return producers

    async def open_producers(self, request: FindHangingRequest) -> AsyncIterator[list[OpenProducer]]:
        """Yield the producers with an open transaction by topic, partition and producer id, from the last
        partition of the previous page on.
        """
        import asyncio  # noqa: PLC0415 - slow to import

        for partition in list(self._wanted(request)):
            yield self._opened(partition)
            # Let requests in between: a gateway may have a hundred thousand partitions.
            await asyncio.sleep(0)

    def _wanted(self, request: FindHangingRequest) -> Iterator[Partition]:
        if request.topic is None:
            names = sorted(filter(_holds_transactions, self._partitions.by_name))
            topics = [self._partitions.by_name[name] for name in names]
        else:
            topics = [existing_topic(self._partitions, request.topic, request.partition)]
        return partitions_after(topics, lambda topic: topic.opened(), request.partition, request.after)

    def open_in(self, topic: str, partition: int) -> list[OpenProducer]:
        if not _holds_transactions(topic):
            raise ControlError(f"{topic} holds no transactions")
        return self._opened(self._partition(topic, partition))

    def _partition(self, topic: str, index: int) -> Partition:
        partition = self._partitions.get(topic, index)
        if partition is None:
            check_led_here(self._services, topic, index)
            raise ControlError(f"there is no partition {topic}-{index}")
        return partition

    def _opened(self, partition: Partition) -> list[OpenProducer]:
        log = partition.log
        opened = sorted(producer_id for producer_id, _ in log.transactions.open_transactions())
        entries = (log.producers.get(producer_id) for producer_id in opened)
        return [
            OpenProducer(
                partition.topic,
                partition.index,
                entry.producer_id,
                entry.producer_epoch,
                entry.coordinator_epoch,
                entry.current_transaction_first_offset,
                entry.last_timestamp,
                entry.last_active_ms,
                self._services.node.node_id,
            )
            for entry in entries
            if entry is not None
        ]

    def known(
        self,
        producer_ids: Iterable[int],  # noqa: ARG002 - finds any
    ) -> Callable[[int], KnownTransaction | None]:
        return known_producers(self._services.coordinators)

    def is_overdue(self, transaction: Transaction) -> bool:
        from seqgate.gateway.coordinator.transaction.rules import is_overdue  # noqa: PLC0415 - slow to import

        return is_overdue(transaction, self.now_ms)

    async def abort_in(self, producer: OpenProducer) -> None:
        from seqgate.gateway.coordinator.transaction.rules import Producer  # noqa: PLC0415 - slow to import
        from seqgate.log import LogError  # noqa: PLC0415

        partition = self._partition(*producer.place)
        try:
            offset = self._services.partitions.markers.append(
                partition,
                Producer(producer.producer_id, producer.producer_epoch),
                commit=False,
                # The coordinator epoch is -1 before the first marker; Kafka's tool then sends 0 as well.
                coordinator_epoch=max(0, producer.coordinator_epoch),
            )
        except LogError as error:
            raise ControlError(f"{partition.topic}-{partition.index} takes no marker: {error}") from error
        if not await partition.persisted(offset):
            raise ControlError(
                f"the marker in {partition.topic}-{partition.index} could not be made durable: the partition "
                "is offline"
            )


def _holds_transactions(topic: str) -> bool:
    from seqgate.gateway.metadata.image import INTERNAL_TOPICS, OFFSETS_TOPIC  # noqa: PLC0415 - slow

    return topic not in INTERNAL_TOPICS or topic == OFFSETS_TOPIC
