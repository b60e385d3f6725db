"""The transactions of a cluster that is asked over the Kafka protocol. Raises ControlError or an error of
kafka-python.

Unlike the control socket of a gateway, the Kafka protocol does not report which offsets of groups a
transaction holds.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from kafka import KafkaProducer
from kafka.admin import AbortTransactionSpec, OffsetSpec, TransactionState
from kafka.errors import TransactionalIdNotFoundError

from seqgate.gateway.admin.remote.cluster import Cluster, led_partitions, opened
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.transactions.messages import (
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
    TransactionAbort,
    TransactionDescription,
    TransactionPage,
    TransactionPartition,
    TransactionRow,
)

IDS_AT_ONCE: Final = 500
"""Transactional ids in one request; the rest go with the next one."""
_DECIDED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})


def list_transactions(cluster: Cluster, request: ListTransactionsRequest) -> TransactionPage:
    """Return all transactional ids that pass the filters, in order."""
    try:
        states = [TransactionState.build_from(state).value for state in request.states]
    except (KeyError, ValueError) as error:
        raise ControlError(f"there is no state like one of {', '.join(request.states)}") from error
    listed = cluster.admin.list_transactions(
        producer_id_filters=request.producer_ids or None,
        state_filters=states or None,
        duration_filter_ms=request.longer_than_ms,
        transactional_id_pattern=request.pattern,
    )
    ids = sorted({row.transactional_id for rows in listed.values() for row in rows})
    described = describe_all(cluster, ids)
    return TransactionPage([TransactionRow(**_fields(name, described[name])) for name in ids], True, [])


def describe_all(cluster: Cluster, ids: list[str]) -> dict[str, Any]:
    """Return kafka-python's descriptions of transactional ids."""
    found: dict[str, Any] = {}
    for first in range(0, len(ids), IDS_AT_ONCE):
        found |= cluster.admin.describe_transactions(ids[first : first + IDS_AT_ONCE])
    return found


def _fields(name: str, found: Any) -> dict[str, Any]:
    """Return the fields of a TransactionRow."""
    start_ms = found.transaction_start_time_ms
    is_open = start_ms >= 0 and bool(found.topic_partitions)
    return {
        "transactional_id": name,
        "state": found.state.value,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.transaction_timeout_ms,
        "last_update_ms": None,
        "start_ms": start_ms if is_open else None,
        "age_ms": max(0, now_ms() - start_ms) if is_open else None,
        "partition_count": len(found.topic_partitions),
    }


def now_ms() -> int:
    """Return the wall-clock time of this machine (ms)."""
    return time.time_ns() // 1_000_000


def describe_transaction(cluster: Cluster, request: DescribeTransactionRequest) -> TransactionDescription:
    """Return a transactional id with all its partitions."""
    found = _described(cluster, request.transactional_id)
    return TransactionDescription(
        **_fields(request.transactional_id, found),
        partitions=taking_part(cluster, found.topic_partitions, found.producer_id),
        pending_offsets=[],
        pending_offset_count=None,
        complete=True,
    )


def _described(cluster: Cluster, name: str) -> Any:
    try:
        return cluster.admin.describe_transactions([name])[name]
    except TransactionalIdNotFoundError:
        raise ControlError(f"there is no transactional id {name}") from None


def taking_part(cluster: Cluster, places: Iterable[Any], producer_id: int) -> list[TransactionPartition]:
    """Return partitions with the offsets of the producer's transaction in them."""
    wanted = sorted(places)
    if not wanted:
        return []
    ask = cluster.admin.list_partition_offsets
    stable = ask(dict.fromkeys(wanted, OffsetSpec.LATEST), "read_committed")
    ends = ask(dict.fromkeys(wanted, OffsetSpec.LATEST))
    producers = cluster.admin.describe_producers(wanted)
    return [
        TransactionPartition(
            place.topic,
            place.partition,
            _first_offset(producers[place].active_producers, producer_id),
            stable[place].offset,
            ends[place].offset,
        )
        for place in wanted
    ]


def _first_offset(producers: Iterable[Any], producer_id: int) -> int | None:
    for producer in producers:
        if producer.producer_id == producer_id and producer.current_transaction_start_offset >= 0:
            return int(producer.current_transaction_start_offset)
    return None


def abort_transaction(cluster: Cluster, request: AbortTransactionRequest) -> TransactionAbort:
    """Fence the producer and abort its transaction, if `execute` is set."""
    name = request.transactional_id
    before = _described(cluster, name)
    _check_is_open(before, request)
    partitions = taking_part(cluster, before.topic_partitions, before.producer_id)
    fenced_by = None
    if request.execute:
        _fence(cluster, name, before.transaction_timeout_ms)
        after = _described(cluster, name)
        fenced_by = FencedBy(after.producer_id, after.producer_epoch)
    return TransactionAbort(
        executed=request.execute,
        transactional_id=name,
        producer_id=before.producer_id,
        producer_epoch=before.producer_epoch,
        start_ms=before.transaction_start_time_ms,
        age_ms=max(0, now_ms() - before.transaction_start_time_ms),
        partitions=partitions,
        partition_count=len(partitions),
        pending_offset_count=None,
        fenced_by=fenced_by,
    )


def _check_is_open(found: Any, request: AbortTransactionRequest) -> None:
    name, state = request.transactional_id, found.state
    if state in _DECIDED:
        raise ControlError(f"the transaction of {name} is ending already and can't be stopped: {state.value}")
    if state is not TransactionState.ONGOING:
        raise ControlError(f"{name} has no open transaction: {state.value}")
    if request.start_ms is not None and request.start_ms != found.transaction_start_time_ms:
        raise ControlError(f"the planned transaction of {name} has ended, and another one has begun")


def _fence(cluster: Cluster, name: str, timeout_ms: int) -> None:
    """Initialize a new producer of the id, which fences the old producer and aborts its open transaction."""
    producer = opened(
        KafkaProducer,
        **cluster.client_settings(),
        transactional_id=name,
        transaction_timeout_ms=timeout_ms,
    )
    try:
        producer.init_transactions()
    finally:
        producer.close(timeout=0)


# Finds and aborts hanging transactions over the Kafka protocol. Raises ControlError or an error of kafka-
# python.

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
