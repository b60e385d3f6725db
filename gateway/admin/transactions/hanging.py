"""Open transactions of a running gateway that no coordinator will end.

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

import asyncio
from collections.abc import Iterator

from seqgate.gateway.admin.operation import (
    LiveGateway,
    check_led_here,
    find_topic,
    offline_partitions,
    partitions_after,
)
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.transactions.live import (
    Known,
    check_all_here,
    known_producers,
    pending_of_transaction,
    taking_part,
)
from seqgate.gateway.admin.transactions.messages import (
    NOT_PART,
    OVERDUE,
    UNKNOWN_PRODUCER,
    AbortHangingRequest,
    FindHangingRequest,
    HangingPage,
    HangingTransaction,
    TransactionAbort,
)
from seqgate.gateway.coordinator.transaction import rules
from seqgate.gateway.coordinator.transaction.rules import Producer
from seqgate.gateway.metadata.image import INTERNAL_TOPICS, OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.partitions.registry import Partitions, TopicPartitions
from seqgate.gateway.runtime.services import Services
from seqgate.log import LogError
from seqgate.seq_validator import ProducerEntry


async def find_hanging(gateway: LiveGateway, request: FindHangingRequest) -> HangingPage:
    """Return one page of the hanging transactions. Raises ControlError."""
    services = gateway.services
    check_all_here(services)
    offline = offline_partitions(services.partitions.registry, TRANSACTION_STATE_TOPIC)
    find = known_producers(services.coordinators)
    now_ms = services.node.clock.now_ms()
    rows: list[HangingTransaction] = []
    for partition in list(_wanted(services.partitions.registry, request)):
        lowest = -1
        if request.after is not None and request.after[:2] == (partition.topic, partition.index):
            lowest = request.after[2]
        for entry in _open_after(partition, lowest):
            known = find(entry.producer_id)
            reason = _reason(known, partition, now_ms)
            if reason is not None and not (reason == UNKNOWN_PRODUCER and offline):
                rows.append(_row(services, partition, entry, known, reason))
        if len(rows) > request.limit:
            break
        # Let requests in between: a gateway may have a hundred thousand partitions.
        await asyncio.sleep(0)
    return HangingPage(rows[: request.limit], len(rows) <= request.limit, offline)


def _open_after(partition: Partition, lowest: int) -> list[ProducerEntry]:
    """Return the producers that have an open transaction and an id above `lowest`, sorted by id."""
    producers = partition.log.producers
    ids = sorted(
        producer_id
        for producer_id, _ in partition.log.transactions.open_transactions()
        if producer_id > lowest
    )
    return [entry for producer_id in ids if (entry := producers.get(producer_id)) is not None]


async def abort_hanging(gateway: LiveGateway, request: AbortHangingRequest) -> TransactionAbort:
    """Write and persist the marker that aborts a transaction in one partition, if `execute` is set.

    Raises ControlError.
    """
    services = gateway.services
    check_all_here(services)
    partition, name = _partition(services, request), f"{request.topic}-{request.partition}"
    producer_id = next(
        (
            producer_id
            for producer_id, found in partition.log.transactions.open_transactions()
            if found.first_offset == request.first_offset
        ),
        None,
    )
    if producer_id is None:
        raise ControlError(f"{name} has no open transaction that begins at offset {request.first_offset}")
    known = known_producers(services.coordinators)(producer_id)
    if known is not None and (partition.topic, partition.index) in known.transaction.partitions:
        raise ControlError(
            f"{name} takes part in the transaction of {known.transactional_id}, which must end everywhere at "
            "once; "
            f"abort that: seqgate transactions abort {known.transactional_id}"
        )
    entry = partition.log.producers.get(producer_id)
    assert entry is not None
    before = TransactionAbort(
        executed=request.execute,
        transactional_id=None if known is None else known.transactional_id,
        producer_id=producer_id,
        producer_epoch=entry.producer_epoch,
        start_ms=None,
        age_ms=max(0, services.node.clock.now_ms() - entry.last_active_ms),
        partitions=[
            taking_part(services.partitions.registry, (partition.topic, partition.index), producer_id)
        ],
        partition_count=1,
        pending_offset_count=_pending_count(services, partition, producer_id),
        fenced_by=None,
    )
    if request.execute:
        await _write_marker(services, partition, entry)
    return before


def _pending_count(services: Services, partition: Partition, producer_id: int) -> int:
    if partition.topic != OFFSETS_TOPIC:
        return 0
    return len(pending_of_transaction(services.coordinators, None, producer_id))


def _partition(services: Services, request: AbortHangingRequest) -> Partition:
    if not _holds_transactions(request.topic):
        raise ControlError(f"{request.topic} holds no transactions")
    partition = services.partitions.registry.get(request.topic, request.partition)
    if partition is None:
        check_led_here(services, request.topic, request.partition)
        raise ControlError(f"there is no partition {request.topic}-{request.partition}")
    return partition


async def _write_marker(services: Services, partition: Partition, entry: ProducerEntry) -> None:
    try:
        offset = services.coordinators.transactions.markers.append(
            partition,
            Producer(entry.producer_id, entry.producer_epoch),
            commit=False,
            # The coordinator epoch is -1 before the first marker; Kafka's tool then sends 0 as well.
            coordinator_epoch=max(0, entry.coordinator_epoch),
        )
    except LogError as error:
        raise ControlError(f"{partition.topic}-{partition.index} takes no marker: {error}") from error
    if not await partition.persisted(offset):
        raise ControlError(
            f"the marker in {partition.topic}-{partition.index} could not be made durable: the partition is "
            "offline"
        )


def _reason(known: Known | None, partition: Partition, now_ms: int) -> str | None:
    """Return why a transaction counts as hanging; None if it does not."""
    if known is None:
        return UNKNOWN_PRODUCER
    if (partition.topic, partition.index) not in known.transaction.partitions:
        return NOT_PART
    return OVERDUE if rules.is_overdue(known.transaction, now_ms) else None


def _row(
    services: Services, partition: Partition, entry: ProducerEntry, known: Known | None, reason: str
) -> HangingTransaction:
    return HangingTransaction(
        broker_id=services.node.node_id,
        topic=partition.topic,
        partition=partition.index,
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        coordinator_epoch=entry.coordinator_epoch,
        first_offset=entry.current_transaction_first_offset,
        last_timestamp=entry.last_timestamp,
        age_ms=max(0, services.node.clock.now_ms() - entry.last_active_ms),
        transactional_id=None if known is None else known.transactional_id,
        reason=reason,
    )


def _holds_transactions(topic: str) -> bool:
    return topic not in INTERNAL_TOPICS or topic == OFFSETS_TOPIC


def _wanted(partitions: Partitions, request: FindHangingRequest) -> Iterator[Partition]:
    """Yield the requested open partitions in order, beginning with the last one of the previous page. Raises
    ControlError.
    """
    if request.topic is None:
        names = sorted(filter(_holds_transactions, partitions.by_name))
        topics = [partitions.by_name[name] for name in names]
    else:
        topics = [find_topic(partitions, request.topic, request.partition)]
    return partitions_after(topics, TopicPartitions.opened, request.partition, request.after)
