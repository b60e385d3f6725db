"""Transactional ids as the commands show them, of a gateway that runs or of a data directory. Raises ControlError."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Any, Final

from gateway.control.errors import ControlError
from gateway.control.messages import (
    MAX_PAGE_ROWS,
    DescribeTransactionRequest,
    ListTransactionsRequest,
)
from gateway.control.results import PendingOffset
from gateway.control.transaction_results import TransactionDescription, TransactionPartition, TransactionRow
from gateway.coordinator.group.pending_offsets import HeldOffset
from gateway.coordinator.places import TopicPartition
from gateway.coordinator.transaction.filters import (
    NO_DURATION,
    InvalidPattern,
    Wanted,
    transaction_filter,
)
from gateway.coordinator.transaction.records import Transaction
from gateway.coordinator.transaction.states import IDLE, MAY_FOLLOW

STATES: Final = tuple(state.text for state in MAY_FOLLOW)
"""The states that an id can be found in."""
_STATES: Final = {state.lower(): state for state in STATES}
MAX_TOLD: Final = MAX_PAGE_ROWS
"""Of what comes with the first page only."""


def check_limit(limit: int) -> None:
    """How many rows a page may have."""
    if not 1 <= limit <= MAX_PAGE_ROWS:
        raise ControlError(f"a page has 1 to {MAX_PAGE_ROWS} rows")


def list_page(
    transactions: Iterable[tuple[str, Transaction]], request: ListTransactionsRequest, now_ms: int
) -> tuple[list[TransactionRow], bool]:
    """The rows of one page, in order, and whether no other comes after them."""
    check_limit(request.limit)
    found = _matching(transactions, request, now_ms)
    page = heapq.nsmallest(request.limit + 1, found, key=lambda item: item[0])
    rows = [TransactionRow(**_of(*item, now_ms)) for item in page[: request.limit]]
    return rows, len(page) <= request.limit


def list_all(
    transactions: Iterable[tuple[str, Transaction]], request: ListTransactionsRequest, now_ms: int
) -> list[TransactionRow]:
    """The rows of all ids asked for, in order."""
    return [TransactionRow(**_of(*item, now_ms)) for item in sorted(_matching(transactions, request, now_ms))]


def _matching(
    transactions: Iterable[tuple[str, Transaction]], request: ListTransactionsRequest, now_ms: int
) -> Iterator[tuple[str, Transaction]]:
    is_wanted = _filter(request, now_ms)
    for item in transactions:
        if (request.after is None or item[0] > request.after) and is_wanted(*item):
            yield item


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
        raise ControlError(f"{request.pattern} is no regular expression: {error}") from error
    if longer_than_ms < 0:
        return passes
    return lambda name, transaction: transaction.state not in IDLE and passes(name, transaction)


def _state(name: str) -> str:
    state = _STATES.get(name.lower())
    if state is None:
        raise ControlError(f"{name} is no state of a transactional id; it is one of {', '.join(STATES)}")
    return state


def page_of_partitions(
    transaction: Transaction, request: DescribeTransactionRequest
) -> tuple[list[TopicPartition], bool]:
    """The partitions asked for, in order, and whether no other comes after them."""
    check_limit(request.limit)
    wanted = (place for place in transaction.partitions if request.after is None or place > request.after)
    page = heapq.nsmallest(request.limit + 1, wanted)
    return page[: request.limit], len(page) <= request.limit


def describe(
    transactional_id: str,
    transaction: Transaction,
    partitions: list[TransactionPartition],
    pending: list[PendingOffset],
    now_ms: int,
    *,
    complete: bool,
) -> TransactionDescription:
    """An id with a page of its partitions; `pending` are all offsets that it holds."""
    return TransactionDescription(
        **_of(transactional_id, transaction, now_ms),
        partitions=partitions,
        pending_offsets=pending[:MAX_TOLD],
        pending_offset_count=len(pending),
        complete=complete,
    )


def pending_offset(held: HeldOffset, transactional_id: str | None) -> PendingOffset:
    """An offset that a transaction holds."""
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
    """By group, topic and partition."""
    return sorted(pending, key=lambda held: (held.group, held.topic, held.partition))


def age_ms(transaction: Transaction, now_ms: int) -> int:
    """For how long a transaction is under way."""
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
