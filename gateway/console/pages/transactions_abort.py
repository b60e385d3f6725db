"""Aborts of transactions, as the person who is logged in, after a confirmation."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

from gateway.admin.printing import duration
from gateway.admin.request import ControlError
from gateway.admin.transactions.messages import (
    AbortHangingRequest,
    AbortTransactionRequest,
    TransactionAbort,
)
from gateway.admin.transactions.remote import abort_hanging as abort_in_partition
from gateway.admin.transactions.remote import abort_transaction
from gateway.console.asking.transaction_list import listings
from gateway.console.page import Answer, Confirmation, Redirect, Visit

MOST_PARTITIONS: Final = 20
"""Partitions that the question names; it counts the others."""


def abort(visit: Visit) -> Answer:
    """Abort the transaction of a transactional id, and fence its producer."""
    name, start_ms = visit.text("id"), visit.optional_number("start_ms")
    if not name:
        raise ControlError(
            "the form must name a transactional id; open the transaction, and press Abort there"
        )
    page = f"/transactions/one?{urlencode({'id': name})}"
    request = AbortTransactionRequest(name, start_ms)
    with visit.cluster() as cluster:
        if visit.is_confirmed:
            planned = abort_transaction(cluster, request)
            if visit.text("typed") == _typed(name, planned.producer_id):
                done = abort_transaction(
                    cluster, AbortTransactionRequest(name, planned.start_ms, execute=True)
                )
                listings.forget()
                return Redirect(page, notice=_done(name, done))
        else:
            planned = abort_transaction(cluster, request)
    return Confirmation(
        title=f"Abort the transaction of {name}?",
        action="Abort the transaction",
        back=page,
        sentences=(
            f"The transaction is open for {duration(planned.age_ms)}. Its records are discarded in {_partitions(planned)}.",
            "The offsets that the transaction holds for groups are not committed.",
            "The producer is fenced: its next request fails, and it must be started again.",
        ),
        changes=_changes(planned, name),
        typed=_typed(name, planned.producer_id),
        is_danger=True,
    )


def _typed(name: str, producer_id: int) -> str:
    """Return the text to type: the transactional id, or the producer id where a keyboard can't type the transactional id."""
    return name if name.isprintable() and name == name.strip() else str(producer_id)


def _partitions(planned: TransactionAbort) -> str:
    return "1 partition" if planned.partition_count == 1 else f"{planned.partition_count} partitions"


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
    return f"The transaction of {name} is aborted in {_partitions(done)}{fenced}."


def abort_hanging(visit: Visit) -> Answer:
    """Abort the transaction that one partition has open from an offset on."""
    topic, partition, first = (
        visit.text("topic"),
        visit.number("partition", 0),
        visit.number("first_offset", 0),
    )
    place = f"{topic}-{partition}"
    with visit.cluster() as cluster:
        planned = abort_in_partition(cluster, AbortHangingRequest(topic, partition, first))
        if visit.is_confirmed and visit.text("typed") == place:
            abort_in_partition(cluster, AbortHangingRequest(topic, partition, first, execute=True))
            return Redirect(
                "/transactions/hanging",
                notice=f"The transaction from offset {first} on in {place} is aborted; readers of committed records continue.",
            )
    return Confirmation(
        title=f"Abort the hanging transaction in {place}?",
        action="Abort the transaction",
        back="/transactions/hanging",
        sentences=(
            f"Producer {planned.producer_id} opened it at offset {first}, and no coordinator will end it. Its records are discarded.",
            "Readers of committed records wait before this offset until it ends.",
        ),
        changes=[(place, f"records from offset {first} undecided", "discarded")],
        typed=place,
        is_danger=True,
    )
