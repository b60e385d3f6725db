"""Compares what transactional producers were told with what the partitions and the groups have. Pure: tested
with planted faults.

A record's value is a `RecordName` whose incarnation is the number of its transaction. Each transaction
commits its number + 1 as the offset of its producer's group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from tests.faults.kill.checker import RecordName

Rows = Mapping[int, Sequence[tuple[int, bytes]]]
"""The offset and the value of each record, by partition and in the order of the log."""


class End(Enum):
    """The end of a transaction as its producer knows it. Consumers must not see a transaction with NONE."""

    NONE = "it was aborted, or nobody asked for its end"
    IN_DOUBT = "its commit was asked for, and not answered"
    COMMITTED = "its commit was acknowledged"


@dataclass
class Transaction:
    """The records of a transaction, as their number in each partition, and its end."""

    sizes: tuple[int, ...]
    end: End = End.NONE

    def names(self, producer: str, number: int) -> set[RecordName]:
        return {
            RecordName(producer, number, partition, index)
            for partition, size in enumerate(self.sizes)
            for index in range(size)
        }


@dataclass
class TransactionLedger:
    """The transactions of one producer by number."""

    producer: str
    transactions: dict[int, Transaction] = field(default_factory=dict)

    def count(self, end: End) -> int:
        return sum(transaction.end is end for transaction in self.transactions.values())

    @property
    def next_number(self) -> int:
        return max(self.transactions, default=-1) + 1


def check(
    ledgers: Iterable[TransactionLedger], visible: Rows, stored: Rows, offsets: Mapping[str, int]
) -> list[str]:
    """Return a sentence for every breach.

    `visible` is what read_committed reads, and `stored` what read_uncommitted reads. `offsets` has the
    committed offset of each producer's group, -1 for none.
    """
    by_producer = {ledger.producer: ledger for ledger in ledgers}
    _, breaches = _names_of(stored, by_producer)
    found, more = _names_of(visible, by_producer)
    breaches += [breach for breach in more if breach not in breaches]
    for producer, ledger in by_producer.items():
        seen = {name for name in found if name.producer == producer}
        breaches += _check_transactions(ledger, seen, offsets.get(producer, -1))
    return breaches


def _names_of(rows: Rows, ledgers: Mapping[str, TransactionLedger]) -> tuple[set[RecordName], list[str]]:
    """Return the records, and the breaches of order and of being there once."""
    found: set[RecordName] = set()
    breaches = []
    for partition, records in rows.items():
        latest: dict[str, RecordName] = {}
        for offset, value in records:
            where = f"partition {partition} offset {offset}"
            name = _sent(value, ledgers)
            if name is None or name.partition != partition:
                breaches.append(f"{where}: nobody sent {value!r}")
                continue
            if name in found:
                breaches.append(f"{where}: {name} is doubled")
            elif name < latest.get(name.producer, name):
                breaches.append(f"{where}: {name} comes after {latest[name.producer]}")
            found.add(name)
            latest[name.producer] = max(name, latest.get(name.producer, name))
    return found, breaches


def _sent(value: bytes, ledgers: Mapping[str, TransactionLedger]) -> RecordName | None:
    """Return the record's name if its producer has sent it."""
    try:
        name = RecordName.decode(value)
        transaction = ledgers[name.producer].transactions[name.incarnation]
    except (ValueError, KeyError):
        return None
    return name if name in transaction.names(name.producer, name.incarnation) else None


def _check_transactions(ledger: TransactionLedger, seen: set[RecordName], offset: int) -> list[str]:
    breaches = []
    expected_offset = -1
    for number, transaction in sorted(ledger.transactions.items()):
        which = f"transaction {number} of {ledger.producer}"
        names = transaction.names(ledger.producer, number)
        there = names & seen
        if there:
            expected_offset = number + 1
        if there and transaction.end is End.NONE:
            breaches.append(f"{which} is visible: {transaction.end.value}")
        elif there and there != names:
            breaches.append(f"{which} is torn: {len(there)} of {len(names)} records are visible")
        elif not there and transaction.end is End.COMMITTED:
            breaches.append(f"{which} was committed and is lost")
    if offset != expected_offset:
        breaches.append(f"the group of {ledger.producer} has offset {offset} instead of {expected_offset}")
    return breaches
