"""The transactions of a running gateway."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from seqgate.gateway.admin.operation import LiveGateway, as_control_error, offline_partitions
from seqgate.gateway.admin.request import ControlError, Elsewhere, page
from seqgate.gateway.admin.transactions.messages import (
    AbortTransactionRequest,
    DescribeTransactionRequest,
    FencedBy,
    ListTransactionsRequest,
    PendingOffset,
    TransactionAbort,
    TransactionDescription,
    TransactionPage,
    TransactionPartition,
)
from seqgate.gateway.admin.transactions.views import (
    MAX_TOLD,
    age_ms,
    describe,
    in_order,
    pending_offset,
    rows_of_ids,
)
from seqgate.gateway.coordinator.group.offsets import HeldOffset
from seqgate.gateway.coordinator.group.shard import GroupShard
from seqgate.gateway.coordinator.places import TopicPartition
from seqgate.gateway.coordinator.transaction.records import DECIDED, ONGOING, Transaction
from seqgate.gateway.coordinator.transaction.rules import Producer, TransactionRefused
from seqgate.gateway.metadata.image import TRANSACTION_STATE_TOPIC
from seqgate.gateway.runtime.coordinators.transaction_coordinator import TransactionCoordinator
from seqgate.gateway.runtime.partitions.registry import Partitions
from seqgate.gateway.runtime.services import CoordinatorServices, Services


def list_transactions(gateway: LiveGateway, request: ListTransactionsRequest) -> TransactionPage:
    """Return one page of the transactional ids. Raises ControlError."""
    services = gateway.services
    now_ms = services.node.clock.now_ms()
    rows, complete = rows_of_ids(services.coordinators.transactions.all(), request, now_ms, request.limit)
    return TransactionPage(
        rows,
        complete,
        offline_partitions(services.partitions.registry, TRANSACTION_STATE_TOPIC),
        partitions_elsewhere(services),
    )


def describe_transaction(gateway: LiveGateway, request: DescribeTransactionRequest) -> TransactionDescription:
    """Return an id with one page of its partitions; the first page has the offsets that it holds. Raises
    ControlError.
    """
    services = gateway.services
    transaction = _find(services, request.transactional_id)
    places, complete = page(transaction.partitions, request.after, request.limit, key=lambda place: place)
    producer_id = transaction.producer_id
    is_first = request.after is None
    return describe(
        request.transactional_id,
        transaction,
        [taking_part(services.partitions.registry, place, producer_id) for place in places],
        pending_of_transaction(services.coordinators, request.transactional_id, producer_id)
        if is_first
        else [],
        services.node.clock.now_ms(),
        complete=complete,
    )


async def abort_transaction(gateway: LiveGateway, request: AbortTransactionRequest) -> TransactionAbort:
    """Fence the producer and abort its transaction durably, if `execute` is set. Raises ControlError."""
    services = gateway.services
    transactional_id = request.transactional_id
    before = _find(services, transactional_id)
    _check_is_open(before, request)
    producer_id = before.producer_id
    places = sorted(before.partitions)[:MAX_TOLD]
    partitions = [taking_part(services.partitions.registry, place, producer_id) for place in places]
    pending = pending_of_transaction(services.coordinators, transactional_id, producer_id)
    age = age_ms(before, services.node.clock.now_ms())
    after = (
        await _fence(services.coordinators.transactions, transactional_id, before)
        if request.execute
        else None
    )
    return TransactionAbort(
        executed=request.execute,
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=before.producer_epoch,
        start_ms=before.start_ms,
        age_ms=age,
        partitions=partitions,
        partition_count=len(before.partitions),
        pending_offset_count=len(pending),
        fenced_by=after,
    )


def _check_is_open(transaction: Transaction, request: AbortTransactionRequest) -> None:
    name, state = request.transactional_id, transaction.state.text
    if transaction.state in DECIDED:
        raise ControlError(f"the transaction of {name} is ending already and can't be stopped: {state}")
    if transaction.state is not ONGOING:
        raise ControlError(f"{name} has no open transaction: {state}")
    if request.start_ms is not None and request.start_ms != transaction.start_ms:
        raise ControlError(f"the planned transaction of {name} has ended, and another one has begun")


async def _fence(
    transactions: TransactionCoordinator, transactional_id: str, before: Transaction
) -> FencedBy:
    """Initialize a new producer of the id, which fences the old producer and aborts its open transaction."""
    # The limit of the timeout may be lower now than when the producer began.
    timeout_ms = min(before.timeout_ms, transactions.limits.max_timeout_ms)
    try:
        with as_control_error(f"transactional id {transactional_id}", TRANSACTION_STATE_TOPIC):
            producer = await transactions.begin_producer(transactional_id, timeout_ms, Producer())
    except TransactionRefused as error:
        raise ControlError(
            f"the abort of {transactional_id} is decided, but not written to every partition yet "
            f"({error.error_code.name}); the gateway continues the abort, and `seqgate status` shows whether "
            "a partition is "
            "offline"
        ) from error
    return FencedBy(*producer)


def taking_part(partitions: Partitions, place: TopicPartition, producer_id: int) -> TransactionPartition:
    """Return a partition with the offsets of the producer's transaction in it."""
    partition = partitions.get(*place)
    if partition is None:
        return TransactionPartition(*place, None, None, None)
    log = partition.log
    found = log.transactions.open_transaction(producer_id)
    first_offset = None if found is None else found.first_offset
    return TransactionPartition(*place, first_offset, log.last_stable_offset, log.high_watermark)


def _find(services: Services, transactional_id: str) -> Transaction:
    if TRANSACTION_STATE_TOPIC not in services.partitions.registry.by_name:
        raise ControlError(f"there is no transactional id {transactional_id}")
    check_is_here(services, transactional_id)
    with as_control_error(f"transactional id {transactional_id}", TRANSACTION_STATE_TOPIC):
        found = services.coordinators.transactions.find(transactional_id)
    if found is None:
        raise ControlError(f"there is no transactional id {transactional_id}")
    return found


# Says that other gateways coordinate transactions, too, and how to ask them. The control socket reaches one
# gateway only.


def partitions_elsewhere(services: Services) -> list[int]:
    """Return the partitions of `__transaction_state` that other gateways lead, or that none leads now."""
    topic = services.topics.metadata_log.image.topics_by_name.get(TRANSACTION_STATE_TOPIC)
    brokers = services.node.brokers
    return [
        index
        for index, partition in sorted(topic.partitions.items() if topic is not None else ())
        if not brokers.leads(partition)
    ]


def check_all_here(services: Services) -> None:
    """Refuse a question about the transactions of all gateways. Raises ControlError."""
    if partitions_elsewhere(services):
        raise Elsewhere(f"other gateways coordinate transactions, too; {_advice(services)}")


def check_is_here(services: Services, transactional_id: str) -> None:
    """Refuse a question about a transactional id that another gateway coordinates. Raises ControlError."""
    node_id = services.coordinators.elsewhere.coordinator_of(transactional_id)
    if node_id is None:
        return
    if node_id < 0:
        raise ControlError(
            f"no live gateway coordinates transactional id {transactional_id} now; try again later"
        )
    raise Elsewhere(f"gateway {node_id} coordinates transactional id {transactional_id}; {_advice(services)}")


def _advice(services: Services) -> str:
    """Return how to ask the cluster."""
    address = next((place.shown for place in services.node.brokers.advertised.values()), "HOST:PORT")
    return f"ask the cluster with --bootstrap {address}"


# The offsets that open transactions of a running gateway hold, with their transactional ids.


class Known(NamedTuple):
    """A transactional id and its transaction, as the coordinator knows them."""

    transactional_id: str
    transaction: Transaction


def known_producers(coordinators: CoordinatorServices) -> Callable[[int], Known | None]:
    """Return a function that finds the transaction of a producer id, None where no loaded coordinator shard
    knows the id.
    """
    shards = coordinators.transactions.shards
    shards.load_stored()
    loaded = [entry.shard for entry in shards if entry.is_current]

    def find(producer_id: int) -> Known | None:
        for shard in loaded:
            name = shard.by_producer_id.get(producer_id)
            if name is not None:
                return Known(name, shard.transactions[name])
        return None

    return find


def pending_in_group(
    coordinators: CoordinatorServices, shard: GroupShard, group_id: str
) -> dict[TopicPartition, list[PendingOffset]]:
    """Return the offsets of a group that open transactions hold, by partition, in the order they came."""
    found = shard.offsets.pending.of_group(group_id)
    if not found:
        return {}
    find = known_producers(coordinators)

    def row(held: HeldOffset) -> PendingOffset:
        known = find(held.producer_id)
        return pending_offset(held, None if known is None else known.transactional_id)

    return {place: [row(held) for held in holders] for place, holders in found.items()}


def pending_of_transaction(
    coordinators: CoordinatorServices, transactional_id: str | None, producer_id: int
) -> list[PendingOffset]:
    """Return the offsets that the transaction of a producer holds, in every group."""
    return in_order(
        pending_offset(held, transactional_id)
        for shard in coordinators.groups.loaded_shards()
        for held in shard.offsets.pending.of_producer(producer_id)
    )
