"""The transactions of a running gateway."""

from __future__ import annotations

from gateway.admin.coordinators import as_control_error, offline_partitions
from gateway.admin.operation import LiveGateway, page
from gateway.admin.request import ControlError
from gateway.admin.transactions.elsewhere import check_is_here, partitions_elsewhere
from gateway.admin.transactions.messages import (
    AbortTransactionRequest,
    DescribeTransactionRequest,
    FencedBy,
    ListTransactionsRequest,
    TransactionAbort,
    TransactionDescription,
    TransactionPage,
    TransactionPartition,
)
from gateway.admin.transactions.pending_offsets import pending_of_transaction
from gateway.admin.transactions.views import MAX_TOLD, age_ms, describe, rows_of_ids
from gateway.coordinator.places import TopicPartition
from gateway.coordinator.transaction.records import Transaction
from gateway.coordinator.transaction.rules import Producer, TransactionRefused
from gateway.coordinator.transaction.states import DECIDED, ONGOING
from gateway.metadata.topic_names import TRANSACTION_STATE_TOPIC
from gateway.runtime.coordinators.transaction_coordinator import TransactionCoordinator
from gateway.runtime.partitions.registry import Partitions
from gateway.runtime.services import Services


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
    """Return an id with one page of its partitions; the first page has the offsets that it holds. Raises ControlError."""
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
            f"({error.error_code.name}); the gateway continues the abort, and `seqgate status` shows whether a partition is "
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
