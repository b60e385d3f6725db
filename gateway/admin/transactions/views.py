"""Rows of transactional ids, from a running gateway or a data directory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from seqgate.gateway.admin.request import MAX_PAGE_ROWS, ControlError, page
from seqgate.gateway.admin.transactions.messages import (
    ListTransactionsRequest,
    PendingOffset,
    TransactionDescription,
    TransactionPartition,
    TransactionRow,
)
from seqgate.gateway.coordinator.group.offsets import HeldOffset
from seqgate.gateway.coordinator.transaction.records import IDLE, MAY_FOLLOW, Transaction
from seqgate.gateway.coordinator.transaction.rules import (
    NO_DURATION,
    InvalidPattern,
    Wanted,
    transaction_filter,
)

STATES: Final = tuple(state.text for state in MAY_FOLLOW)
"""The states of a transactional id."""
_STATES: Final = {state.lower(): state for state in STATES}
MAX_TOLD: Final = MAX_PAGE_ROWS
"""Rows of a list that comes complete with the first page; further rows are only counted."""


def rows_of_ids(
    transactions: Iterable[tuple[str, Transaction]],
    request: ListTransactionsRequest,
    now_ms: int,
    limit: int,
) -> tuple[list[TransactionRow], bool]:
    """Return the first `limit` requested rows in order, and whether these are the last ones. Raises
    ControlError.
    """
    is_wanted = _filter(request, now_ms)
    found = (item for item in transactions if is_wanted(*item))
    items, complete = page(found, request.after, limit, key=lambda item: item[0])
    return [TransactionRow(**_of(*item, now_ms)) for item in items], complete


def _filter(request: ListTransactionsRequest, now_ms: int) -> Wanted:
    longer_than_ms = NO_DURATION if request.longer_than_ms is None else request.longer_than_ms
    try:
        passes = transaction_filter(
            [_state(name) for name in request.states],
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


def _state(name: str) -> str:
    state = _STATES.get(name.lower())
    if state is None:
        raise ControlError(f"{name} is not a state of a transactional id; the states are {', '.join(STATES)}")
    return state


def describe(
    transactional_id: str,
    transaction: Transaction,
    partitions: list[TransactionPartition],
    pending: list[PendingOffset],
    now_ms: int,
    *,
    complete: bool,
) -> TransactionDescription:
    """Return an id with a page of its partitions; `pending` are all offsets that its transaction holds."""
    return TransactionDescription(
        **_of(transactional_id, transaction, now_ms),
        partitions=partitions,
        pending_offsets=pending[:MAX_TOLD],
        pending_offset_count=len(pending),
        complete=complete,
    )


def pending_offset(held: HeldOffset, transactional_id: str | None) -> PendingOffset:
    """Return the row of an offset that a transaction holds."""
    record = held.record
    assert record.value is not None
    return PendingOffset(
        group=record.group_id,
        topic=record.topic,
        partition=record.partition,
        offset=record.value.offset,
        producer_id=held.producer_id,
        producer_epoch=held.producer_epoch,
        transactional_id=transactional_id,
        superseded=held.is_superseded,
    )


def in_order(pending: Iterable[PendingOffset]) -> list[PendingOffset]:
    """Sort offsets by group, topic and partition."""
    return sorted(pending, key=lambda held: (held.group, held.topic, held.partition))


def age_ms(transaction: Transaction, now_ms: int) -> int:
    """Return the age of an open transaction."""
    return max(0, now_ms - transaction.start_ms)


def _of(transactional_id: str, transaction: Transaction, now_ms: int) -> dict[str, Any]:
    is_idle = transaction.state in IDLE
    return {
        "transactional_id": transactional_id,
        "state": transaction.state.text,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "timeout_ms": transaction.timeout_ms,
        "last_update_ms": transaction.last_update_ms,
        "start_ms": None if is_idle else transaction.start_ms,
        "age_ms": None if is_idle else age_ms(transaction, now_ms),
        "partition_count": len(transaction.partitions),
    }
