"""One transactional id: its producer, the partitions of its transaction, and the offsets that the transaction holds."""

from __future__ import annotations

from gateway.admin.request import ControlError
from gateway.admin.transactions.messages import DescribeTransactionRequest, PendingOffset
from gateway.admin.transactions.remote import describe_transaction
from gateway.console.page import Answer, View, Visit, page_of


def one(visit: Visit) -> Answer:
    """Show one transactional id."""
    name = visit.text("id")
    if not name:
        raise ControlError(
            "the address must name a transactional id; choose one from the list of transactions"
        )
    with visit.cluster() as cluster:
        found = describe_transaction(cluster, DescribeTransactionRequest(name))
    rows, paging = page_of(found.partitions, visit.number("page", 1, 1))
    pending, pending_count, trouble = _pending(visit, name)
    return View(
        "transactions_one.html",
        {
            "name": name,
            "found": found,
            "is_open": found.state == "Ongoing" and found.start_ms is not None,
            "is_overdue": found.age_ms is not None and found.age_ms > found.timeout_ms,
            "rows": rows,
            "paging": paging,
            "pending": pending,
            "pending_count": pending_count,
            "pending_trouble": trouble,
        },
    )


def _pending(visit: Visit, name: str) -> tuple[list[PendingOffset] | None, int, str | None]:
    """Return the offsets that the transaction holds, which only the gateway knows; None without --metrics."""
    if not visit.has_metrics:
        return None, 0, None
    try:
        found = visit.ask_gateway(DescribeTransactionRequest(name, limit=1))
    except ControlError as error:
        return None, 0, str(error)
    return found.pending_offsets, found.pending_offset_count or 0, None
