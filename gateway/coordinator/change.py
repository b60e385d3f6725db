"""The result of a coordinator's operation: its answer, and the records that carry it out (Kafka's
`CoordinatorResult`); records that belong to a transaction, and the markers that end the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

A = TypeVar("A")

Waiter = object
"""A request that waits for its answer. Only the caller of the coordinator can send the answer."""


class Change(NamedTuple, Generic[A]):
    """An answer that is sent once `records` are durable. Without records the operation changes nothing."""

    answer: A
    records: Sequence[Any] = ()
    is_folded_in: bool = False
    """Whether the operation changed the state itself: records are not replayed (Kafka's `replayRecords`)."""
    replies: Sequence[tuple[Waiter, object]] = ()
    """Earlier requests that this operation answers, each with its answer."""
    when_durable: Callable[[], None] | None = None
    """Called when the records are durable, before the answers are sent: logs the operation's events."""


class Pending(NamedTuple):
    """A record that takes effect when the transaction that wrote it is committed."""

    producer_id: int
    producer_epoch: int
    record: Any


class TransactionEnd(NamedTuple):
    """A marker: the pending records of the producer take effect now (commit), or never (abort)."""

    producer_id: int
    is_commit: bool
