"""The transactional ids, their open transactions, and the transactions that hang."""

from __future__ import annotations

from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from seqgate.gateway.admin.remote.cluster import Cluster, Refused
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.tables import counted, duration
from seqgate.gateway.admin.transactions.hanging import (
    AbortHangingRequest,
    AbortTransactionRequest,
    FindHangingRequest,
    TransactionAbort,
)
from seqgate.gateway.admin.transactions.list_and_describe import (
    ClusterTransactions,
    DescribeTransactionRequest,
    ListedId,
    ListTransactionsRequest,
    listed_ids,
    rows_of,
    states,
)
from seqgate.gateway.console.answer import (
    Confirmation,
    PageAnswer,
    Redirect,
    View,
    address,
    page_of,
    typed_for,
)
from seqgate.gateway.console.asking.connections import kept
from seqgate.gateway.console.metrics import rates
from seqgate.gateway.console.page import Feed, Get, Page, PageGroup, Post, Visit

_SECOND_MS: Final = 1_000
_SERIES: Final = (rates.OPEN_TRANSACTIONS, rates.OLDEST_TRANSACTION)


def transactions(visit: Visit) -> PageAnswer:
    older_than_s = visit.optional_number("older_than_s", 0, 1 << 40)
    wanted = TransactionFilter(
        state=visit.text("state") or None,
        pattern=visit.text("pattern") or None,
        older_than_ms=None if older_than_s is None else older_than_s * _SECOND_MS,
        producer_id=visit.optional_number("producer_id"),
    )
    with visit.partial() as cluster:
        found = listed(cluster, wanted)
        rows, paging = page_of(found, visit.number("page", 1, 1))
        lines = rows_of(cluster, [row.transactional_id for row in rows])
        offline, silent = ClusterTransactions(cluster).offline_partitions, cluster.silent
    return View(
        "transactions.html",
        {
            "lines": lines,
            "offline": offline,
            "silent": silent,
            "paging": paging,
            "wanted": wanted,
            "older_than_s": older_than_s,
            "is_filtered": any(value is not None for value in wanted),
            "states": states(),
            "query": {
                "state": wanted.state,
                "pattern": wanted.pattern,
                "older_than_s": older_than_s,
                "producer_id": wanted.producer_id,
            },
        },
    )


def hanging(visit: Visit) -> PageAnswer:
    """Show the open transactions that no coordinator will end."""
    topic, partition = visit.place()
    found = visit.ask(FindHangingRequest(topic, partition))
    rows, paging = page_of(found.hanging, visit.number("page", 1, 1))
    return View(
        "transactions_hanging.html",
        {
            "rows": rows,
            "offline": found.offline_partitions,
            "paging": paging,
            "topic": topic,
            "partition": partition,
            "query": {"topic": topic, "partition": partition},
        },
    )


# Aborts of transactions, as the person who is logged in, after a confirmation.

MOST_PARTITIONS: Final = 20
"""Partitions that the question names; it counts the others."""


def abort(visit: Visit) -> PageAnswer:
    """Abort the transaction of a transactional id, and fence its producer."""
    name, start_ms = visit.text("id"), visit.optional_number("start_ms")
    if not name:
        raise ControlError(
            "the form must name a transactional id; open the transaction, and press Abort there"
        )
    page = address("/transactions/one", id=name)
    planned = visit.ask(AbortTransactionRequest(name, start_ms))
    typed = typed_for(name, str(planned.producer_id))
    if visit.is_confirmed and visit.text("typed") == typed:
        done = visit.ask(AbortTransactionRequest(name, planned.start_ms, execute=True))
        listed.forget()
        return Redirect(page, notice=_done(name, done))
    return Confirmation(
        title=f"Abort the transaction of {name}?",
        action="Abort the transaction",
        back=page,
        sentences=(
            (
                f"The transaction is open for {duration(planned.age_ms)}. Its records are discarded in "
                f"{counted(planned.partition_count, 'partition')}."
            ),
            "The offsets that the transaction holds for groups are not committed.",
            "The producer is fenced: its next request fails, and it must be started again.",
        ),
        changes=_changes(planned, name),
        typed=typed,
        is_danger=True,
    )


def _changes(planned: TransactionAbort, name: str) -> list[tuple[str, str, str]]:
    epoch = planned.producer_epoch
    changes = [
        ("Transaction", f"open for {duration(planned.age_ms)}", "aborted"),
        (
            f"Producer {planned.producer_id} of {name}",
            f"writes with epoch {epoch}",
            f"epoch {epoch} is fenced",
        ),
    ]
    for row in planned.partitions[:MOST_PARTITIONS]:
        begin = (
            "no record yet"
            if row.first_offset is None
            else f"records from offset {row.first_offset} undecided"
        )
        changes.append((f"{row.topic}-{row.partition}", begin, "discarded"))
    if planned.partition_count > MOST_PARTITIONS:
        changes.append(
            (f"{planned.partition_count - MOST_PARTITIONS} further partitions", "undecided", "discarded")
        )
    return changes


def _done(name: str, done: TransactionAbort) -> str:
    fenced = "" if done.fenced_by is None else f", and producer epoch {done.producer_epoch} is fenced"
    return f"The transaction of {name} is aborted in {counted(done.partition_count, 'partition')}{fenced}."


def abort_hanging(visit: Visit) -> PageAnswer:
    """Abort the transaction that one partition has open from an offset on."""
    topic, partition, first = (
        visit.text("topic"),
        visit.number("partition", 0),
        visit.number("first_offset", 0),
    )
    place = f"{topic}-{partition}"
    planned = visit.ask(AbortHangingRequest(topic, partition, first))
    if visit.is_confirmed and visit.text("typed") == place:
        visit.ask(AbortHangingRequest(topic, partition, first, execute=True))
        return Redirect(
            "/transactions/hanging",
            notice=f"The transaction from offset {first} on in {place} is aborted; readers of committed "
            "records continue.",
        )
    return Confirmation(
        title=f"Abort the hanging transaction in {place}?",
        action="Abort the transaction",
        back="/transactions/hanging",
        sentences=(
            (
                f"Producer {planned.producer_id} opened it at offset {first}, and no coordinator will end "
                "it. Its records are discarded."
            ),
            "Consumers with read_committed wait before this offset until it ends.",
        ),
        changes=[(place, f"records from offset {first} undecided", "discarded")],
        typed=place,
        is_danger=True,
    )


# One transactional id: its producer, the partitions of its transaction, and the offsets that the transaction
# holds.


def one(visit: Visit) -> PageAnswer:
    name = visit.text("id")
    if not name:
        raise ControlError(
            "the address must name a transactional id; choose one from the list of transactions"
        )
    found = visit.ask(DescribeTransactionRequest(name))
    rows, paging = page_of(found.partitions, visit.number("page", 1, 1))
    told, trouble = visit.told(DescribeTransactionRequest(name, limit=1))
    return View(
        "transactions_one.html",
        {
            "name": name,
            "found": found,
            "is_open": found.state == "Ongoing" and found.start_ms is not None,
            "is_overdue": found.is_overdue,
            "rows": rows,
            "paging": paging,
            "pending": None if told is None else told.pending_offsets,
            "pending_count": 0 if told is None else told.pending_offset_count or 0,
            "pending_trouble": trouble,
        },
    )


# The transactional ids of a cluster. Raises ControlError.

KEPT_S: Final = 2.0


class TransactionFilter(NamedTuple):
    """The filters of a list. `pattern` is a regular expression (RE2) that must match the whole id."""

    state: str | None = None
    pattern: str | None = None
    older_than_ms: int | None = None
    producer_id: int | None = None


_ENDED: Final = {"CompleteCommit": 1, "CompleteAbort": 1, "Empty": 1, "Dead": 1}
"""The states without an open transaction, which a list has last."""


@kept(KEPT_S)
def listed(cluster: Cluster, wanted: TransactionFilter) -> list[ListedId]:
    """Return the ids that pass the filters, those with an open transaction first, then by id; a list that is
    a few seconds old counts.
    """
    if wanted.state is not None and wanted.state not in states():
        raise ControlError(f"state must be one of {', '.join(states())}, not {wanted.state}")
    request = ListTransactionsRequest(
        states=[] if wanted.state is None else [wanted.state],
        producer_ids=[] if wanted.producer_id is None else [wanted.producer_id],
        longer_than_ms=wanted.older_than_ms,
        pattern=wanted.pattern,
    )
    try:
        found = listed_ids(cluster, request)
    except Refused as error:
        if error.code != ErrorCode.invalid_regular_expression:
            raise
        raise ControlError(
            f"the pattern {wanted.pattern!r} is not a regular expression of RE2; correct it, or leave it "
            "empty"
        ) from None
    return sorted(found, key=lambda row: (_ENDED.get(row.state, 0), row))


PAGE: Final = Page(
    "Transactions",
    PageGroup.CLIENTS,
    "x",
    Get("/transactions", transactions, waits_for="the transactional ids"),
    Get("/transactions/hanging", hanging, waits_for="the producers of all partitions"),
    Get("/transactions/one", one, waits_for="the transaction"),
    Post("/transactions/abort", abort),
    Post("/transactions/abort-hanging", abort_hanging),
    Feed("/api/transactions", lambda visit: visit.figures(_SERIES)),
)
