"""The transactional ids, their open transactions, and the transactions that hang."""

from __future__ import annotations

from typing import Final

from gateway.admin.request import ControlError
from gateway.admin.transactions.messages import FindHangingRequest
from gateway.admin.transactions.remote import find_hanging
from gateway.console.asking.transaction_list import STATES, Wanted, described, listed
from gateway.console.metrics import rates
from gateway.console.page import Answer, Change, Data, Feed, Look, Page, Section, View, Visit, page_of
from gateway.console.pages.transactions_abort import abort, abort_hanging
from gateway.console.pages.transactions_one import one

OPEN: Final = "Ongoing"
_SECOND_MS: Final = 1_000
_SERIES: Final = (rates.OPEN_TRANSACTIONS, rates.OLDEST_TRANSACTION)


def transactions(visit: Visit) -> Answer:
    """Show the transactional ids that pass the filters."""
    older_than_s = visit.optional_number("older_than_s", 0, 1 << 40)
    wanted = Wanted(
        state=visit.text("state") or None,
        pattern=visit.text("pattern") or None,
        older_than_ms=None if older_than_s is None else older_than_s * _SECOND_MS,
        producer_id=visit.optional_number("producer_id"),
    )
    with visit.cluster() as cluster:
        found = listed(cluster, wanted)
        rows, paging = page_of(found, visit.number("page", 1, 1))
        lines = described(cluster, [row.transactional_id for row in rows])
    return View(
        "transactions.html",
        {
            "lines": lines,
            "paging": paging,
            "wanted": wanted,
            "older_than_s": older_than_s,
            "is_filtered": any(value is not None for value in wanted),
            "states": STATES,
            "query": {
                "state": wanted.state,
                "pattern": wanted.pattern,
                "older_than_s": older_than_s,
                "producer_id": wanted.producer_id,
            },
        },
    )


def hanging(visit: Visit) -> Answer:
    """Show the open transactions that no coordinator will end."""
    topic, partition = visit.text("topic") or None, visit.optional_number("partition")
    if partition is not None and topic is None:
        raise ControlError(f"choose the topic of partition {partition}")
    with visit.cluster() as cluster:
        found = find_hanging(cluster, FindHangingRequest(topic, partition)).hanging
    rows, paging = page_of(found, visit.number("page", 1, 1))
    return View(
        "transactions_hanging.html",
        {
            "rows": rows,
            "paging": paging,
            "topic": topic,
            "partition": partition,
            "query": {"topic": topic, "partition": partition},
        },
    )


def figures(visit: Visit) -> Answer:
    """Return how many transactions were open since a time, and the age of the oldest."""
    sampler = visit.console.sampler
    times, series = sampler.history.since(visit.number("after", 0), _SERIES)
    return Data({"times": times, "series": series, "error": sampler.error})


PAGE: Final = Page(
    title="Transactions",
    path="/transactions",
    section=Section.CLIENTS,
    key="x",
    places=(
        Look("/transactions", transactions, waits_for="the transactional ids"),
        Look("/transactions/hanging", hanging, waits_for="the producers of all partitions"),
        Look("/transactions/one", one, waits_for="the transaction"),
        Change("/transactions/abort", abort),
        Change("/transactions/abort-hanging", abort_hanging),
        Feed("/api/transactions", figures),
    ),
)
