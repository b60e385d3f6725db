"""The transactional ids of a cluster, a page at a time. Raises ControlError or an error of kafka-python."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kafka.errors import BrokerResponseError, TransactionalIdNotFoundError

from seqgate.gateway.admin.remote.cluster import Cluster
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.transactions.remote import describe_all
from seqgate.gateway.console.asking.connections import Cache

KEPT_S: Final = 2.0
STATES: Final = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
"""The states of a transactional id, in Kafka's words."""
INVALID_REGULAR_EXPRESSION: Final = 128
"""Kafka's error, which kafka-python has no name for."""


class Wanted(NamedTuple):
    """The filters of a list. `pattern` is a regular expression (RE2) that must match the whole id."""

    state: str | None = None
    pattern: str | None = None
    older_than_ms: int | None = None
    producer_id: int | None = None


class Listed(NamedTuple):
    """A transactional id without its transaction."""

    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionLine:
    """A transactional id with its transaction. `start_ms` and `age_ms` are None without an open transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int | None
    age_ms: int | None
    partitions: int

    @property
    def is_overdue(self) -> bool:
        """Whether the transaction is open for longer than its timeout."""
        return self.age_ms is not None and self.age_ms > self.timeout_ms


listings: Final[Cache[list[Listed]]] = Cache(KEPT_S)


def listed(cluster: Cluster, wanted: Wanted) -> list[Listed]:
    """Return the ids that pass the filters, by id; a list that is a few seconds old counts."""
    if wanted.state is not None and wanted.state not in STATES:
        raise ControlError(f"state must be one of {', '.join(STATES)}, not {wanted.state}")
    return listings.get(
        cluster.reached.security, (cluster.addresses, wanted), lambda: _asked(cluster, wanted)
    )


def _asked(cluster: Cluster, wanted: Wanted) -> list[Listed]:
    try:
        found = cluster.admin.list_transactions(
            producer_id_filters=None if wanted.producer_id is None else [wanted.producer_id],
            state_filters=None if wanted.state is None else [wanted.state],
            duration_filter_ms=wanted.older_than_ms,
            transactional_id_pattern=wanted.pattern,
        )
    except BrokerResponseError as error:
        if error.errno != INVALID_REGULAR_EXPRESSION:
            raise
        raise ControlError(
            f"the pattern {wanted.pattern!r} is not a regular expression of RE2; correct it, or leave it "
            "empty"
        ) from None
    rows = {
        Listed(row.transactional_id, int(row.producer_id), _word(row.state))
        for rows in found.values()
        for row in rows
    }
    return sorted(rows)


def _word(state: Any) -> str:
    return str(getattr(state, "value", state))


def described(cluster: Cluster, ids: Sequence[str]) -> list[TransactionLine]:
    """Return these ids with their transactions, without ids that are gone by now."""
    found: dict[str, Any] = {}
    try:
        found = describe_all(cluster, list(ids))
    except TransactionalIdNotFoundError:
        for name in ids:
            with contextlib.suppress(TransactionalIdNotFoundError):
                found |= describe_all(cluster, [name])
    return [_line(name, found[name]) for name in ids if name in found]


def _line(name: str, found: Any) -> TransactionLine:
    start_ms = int(found.transaction_start_time_ms)
    is_open = start_ms >= 0 and bool(found.topic_partitions)
    now_ms = time.time_ns() // 1_000_000
    return TransactionLine(
        transactional_id=name,
        producer_id=int(found.producer_id),
        producer_epoch=int(found.producer_epoch),
        state=_word(found.state),
        timeout_ms=int(found.transaction_timeout_ms),
        start_ms=start_ms if is_open else None,
        age_ms=max(0, now_ms - start_ms) if is_open else None,
        partitions=len(found.topic_partitions),
    )


def lines_of_producer(cluster: Cluster, producer_id: int) -> list[TransactionLine]:
    """Return the transactional ids that have a producer id: one, or none."""
    return described(
        cluster, [row.transactional_id for row in _asked(cluster, Wanted(producer_id=producer_id))]
    )
