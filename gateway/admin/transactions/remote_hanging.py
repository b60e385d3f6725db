"""Finds and aborts hanging transactions over the Kafka protocol. Raises ControlError or an error of kafka-python."""

from __future__ import annotations

from typing import Any, Final

from kafka.admin import AbortTransactionSpec, TransactionState

from gateway.admin.remote.cluster import Cluster, led_partitions
from gateway.admin.request import ControlError
from gateway.admin.transactions.messages import (
    AbortHangingRequest,
    FindHangingRequest,
    HangingPage,
    HangingTransaction,
    TransactionAbort,
)
from gateway.admin.transactions.reasons import NOT_PART, OVERDUE, UNKNOWN_PRODUCER
from gateway.admin.transactions.remote import describe_all, now_ms, taking_part

OFFSETS_TOPIC: Final = "__consumer_offsets"


def find_hanging(cluster: Cluster, request: FindHangingRequest) -> HangingPage:
    """Return all hanging transactions, by topic, partition and producer id."""
    places = led_partitions(
        cluster,
        request.topic,
        request.partition,
        lambda name, is_internal: not is_internal or name == OFFSETS_TOPIC,
    )
    opened = [
        (place, producer)
        for place, state in cluster.admin.describe_producers(places).items()
        for producer in state.active_producers
        if producer.current_transaction_start_offset >= 0
    ]
    known = _known(cluster, {producer.producer_id for _, producer in opened})
    leaders = _leaders(cluster)
    rows = []
    for place, producer in opened:
        name, found = known.get(producer.producer_id, (None, None))
        reason = _reason(found, place)
        if reason is not None:
            rows.append(_row(leaders[tuple(place)], place, producer, name, reason))
    rows.sort(key=lambda row: (row.topic, row.partition, row.producer_id))
    return HangingPage(rows, True, [])


def _known(cluster: Cluster, producer_ids: set[int]) -> dict[int, tuple[str, Any]]:
    """Return the transactional id that has each producer id, with its description."""
    if not producer_ids:
        return {}
    listed = cluster.admin.list_transactions(producer_id_filters=sorted(producer_ids))
    ids = sorted({row.transactional_id for rows in listed.values() for row in rows})
    return {found.producer_id: (name, found) for name, found in describe_all(cluster, ids).items()}


def _leaders(cluster: Cluster) -> dict[tuple[str, int], int]:
    return {
        (topic["name"], row["partition_index"]): row["leader_id"]
        for topic in cluster.all_topics()
        for row in topic["partitions"]
    }


def _reason(found: Any, place: Any) -> str | None:
    """Return why a transaction counts as hanging; None: it does not hang."""
    if found is None:
        return UNKNOWN_PRODUCER
    if place not in found.topic_partitions:
        return NOT_PART
    is_open = found.state is TransactionState.ONGOING and found.transaction_start_time_ms >= 0
    is_overdue = is_open and now_ms() - found.transaction_start_time_ms > found.transaction_timeout_ms
    return OVERDUE if is_overdue else None


def _row(leader: int, place: Any, producer: Any, name: str | None, reason: str) -> HangingTransaction:
    return HangingTransaction(
        broker_id=leader,
        topic=place.topic,
        partition=place.partition,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        coordinator_epoch=producer.coordinator_epoch,
        first_offset=producer.current_transaction_start_offset,
        last_timestamp=producer.last_timestamp,
        age_ms=max(0, now_ms() - producer.last_timestamp),
        transactional_id=name,
        reason=reason,
    )


def abort_hanging(cluster: Cluster, request: AbortHangingRequest) -> TransactionAbort:
    """Write the marker that aborts a transaction in one partition, if `execute` is set."""
    (place,) = led_partitions(cluster, request.topic, request.partition)
    name = f"{place.topic}-{place.partition}"
    producers = cluster.admin.describe_producers([place])[place].active_producers
    producer = next(
        (row for row in producers if row.current_transaction_start_offset == request.first_offset), None
    )
    if producer is None:
        raise ControlError(f"{name} has no open transaction that begins at offset {request.first_offset}")
    transactional_id, found = _known(cluster, {producer.producer_id}).get(producer.producer_id, (None, None))
    if found is not None and place in found.topic_partitions:
        raise ControlError(
            f"{name} takes part in the transaction of {transactional_id}, which must end everywhere at once; "
            f"abort that: seqgate transactions abort {transactional_id}"
        )
    partitions = taking_part(cluster, [place], producer.producer_id)
    if request.execute:
        # The coordinator epoch is -1 before the first marker; Kafka's tool then sends 0 as well.
        epoch = max(0, producer.coordinator_epoch)
        cluster.admin.abort_transaction(
            AbortTransactionSpec(place, producer.producer_id, producer.producer_epoch, epoch)
        )
    return TransactionAbort(
        executed=request.execute,
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        start_ms=None,
        age_ms=max(0, now_ms() - producer.last_timestamp),
        partitions=partitions,
        partition_count=1,
        pending_offset_count=None,
        fenced_by=None,
    )
