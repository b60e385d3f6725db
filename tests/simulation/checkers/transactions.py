"""Checks that a transaction is visible whole or not at all, never before its commit is requested, and for
ever after.
"""

from __future__ import annotations

from collections import defaultdict

from tests.simulation.checkers.facts import NEVER, Facts, TransactionName, place, told, transaction_of
from tests.simulation.history import RecordName


def aborted_data(facts: Facts) -> list[str]:
    """Find records that a consumer of committed records got from a transaction that was aborted, or not even
    asked to commit.
    """
    breaches = []
    for name, event in facts.first_read_committed.items():
        if not name.transaction:
            continue
        transaction = facts.transactions.get(transaction_of(name))
        asked_at_ms = transaction.commit_asked_at_ms if transaction else NEVER
        if event.at_ms < asked_at_ms:
            breaches.append(
                f"{event.at_ms} ms: {event.consumer} got {told(name)} of {place(event.partition)} as "
                "committed, and its commit was "
                + ("never asked for" if asked_at_ms == NEVER else f"asked for at {asked_at_ms} ms")
            )
        elif transaction is not None and transaction.end is False:
            breaches.append(
                f"{event.at_ms} ms: {event.consumer} got {told(name)} of {place(event.partition)} as "
                f"committed, and it was aborted at {transaction.ends[0].at_ms} ms"
            )
    return breaches


def half_seen(facts: Facts) -> list[str]:
    """Find transactions of which the last reading shows a part, or nothing although they were committed.

    If the end of a transaction is unknown, either all of its records count as committed, or none.
    """
    stored: dict[TransactionName, list[RecordName]] = defaultdict(list)
    for name in facts.stored:
        if name.transaction:
            stored[transaction_of(name)].append(name)
    breaches = []
    for transaction in stored.keys() | facts.acknowledged_in.keys():
        known = facts.transactions.get(transaction)
        names = {
            name for name in stored.get(transaction, ()) if not facts.may_give_way(name, facts.stored[name])
        }
        names |= {
            event.name for event in facts.acknowledged_in.get(transaction, ()) if _must_be(facts, event.name)
        }
        is_committed = (known is not None and known.end) or transaction in facts.first_visible_ms
        missing = names - facts.visible.keys()
        if is_committed and missing:
            shown = len(names) - len(missing)
            breaches.append(
                f"{transaction} was committed and {told(min(missing))} is not read as committed, "
                f"{shown} of its {len(names)} records are"
            )
    return breaches


def _must_be(facts: Facts, name: RecordName) -> bool:
    event = facts.acknowledged[name]
    return event.partition.topic not in facts.compacted and not facts.may_be_gone(
        event.partition, event.offset
    )


def outside(facts: Facts) -> list[str]:
    """Find records outside of transactions that the last reading of committed records left out."""
    return [
        f"{place(facts.sent[name].partition, offset)} holds {told(name)}, of no transaction, "
        f"and it is not read as committed"
        for name, offset in facts.stored.items()
        if not name.transaction and name not in facts.visible and not facts.may_give_way(name, offset)
    ]


def ends(facts: Facts) -> list[str]:
    """Find transactions with two ends, or with an end that nobody asked for, and partitions with an open
    transaction.
    """
    breaches = []
    for name, transaction in facts.transactions.items():
        if len({event.commit for event in transaction.ends}) > 1:
            breaches.append(f"{name} was committed and aborted")
        if transaction.end and transaction.commit_asked_at_ms == NEVER:
            breaches.append(f"{name} was committed and nobody asked for it")
    for partition, reading in facts.committed.items():
        if reading.end_offset < reading.high_watermark:
            breaches.append(
                f"{place(partition)} is committed up to {reading.end_offset} only, "
                f"its high watermark is {reading.high_watermark}: a transaction stays open"
            )
    return breaches
