"""The transactions of a cluster that is asked over the Kafka protocol. Raises ControlError or an error of kafka-python.

Unlike the control socket of a gateway, the Kafka protocol does not report which offsets of groups a
transaction holds.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from kafka import KafkaProducer
from kafka.admin import OffsetSpec, TransactionState
from kafka.errors import TransactionalIdNotFoundError

from gateway.admin.remote.cluster import Cluster, opened
from gateway.admin.request import ControlError
from gateway.admin.transactions.messages import (
    AbortTransactionRequest,
    DescribeTransactionRequest,
    FencedBy,
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
