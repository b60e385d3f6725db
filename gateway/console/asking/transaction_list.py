"""The transactional ids of a cluster, a page at a time. Raises ControlError or an error of kafka-python."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kafka.errors import BrokerResponseError

from seqgate.gateway.admin.remote.cluster import Cluster
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.transactions.answers import STATES
from seqgate.gateway.admin.transactions.messages import TransactionRow
from seqgate.gateway.admin.transactions.remote import rows_of
from seqgate.gateway.console.asking.connections import Cache

KEPT_S: Final = 2.0
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


def lines_of_producer(cluster: Cluster, producer_id: int) -> list[TransactionRow]:
    """Return the transactional ids that have a producer id: one, or none."""
    return rows_of(
        cluster, [row.transactional_id for row in _asked(cluster, Wanted(producer_id=producer_id))]
    )
