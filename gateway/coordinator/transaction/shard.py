"""All transactional ids whose state one partition of `__transaction_state` holds."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.coordinator.transaction import rules
from gateway.coordinator.transaction.records import Transaction, TransactionRecord
from gateway.coordinator.transaction.states import DECIDED, ONGOING


class TransactionShard:
    """By transactional id, and by the producer id that each of them has now."""

    def __init__(self) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.open: set[str] = set()
        """Those with a transaction that is not decided."""
        self.decided: set[str] = set()
        """Those with a transaction whose markers are due."""
        self.by_producer_id: dict[int, str] = {}

    def replay(self, record: TransactionRecord, now_ms: int) -> None:
        """Fold in a record of the log: the one way in which anything changes here."""
        del now_ms  # nothing of this ends with time by itself
        transactional_id, value = record
        before = self.transactions.get(transactional_id)
        if before is not None and (value is None or before.producer_id != value.producer_id):
            self.by_producer_id.pop(before.producer_id, None)
        self.open.discard(transactional_id)
        self.decided.discard(transactional_id)
        if value is None:
            self.transactions.pop(transactional_id, None)
            return
        self.transactions[transactional_id] = value
        self.by_producer_id[value.producer_id] = transactional_id
        if value.state is ONGOING:
            self.open.add(transactional_id)
        elif value.state in DECIDED:
            self.decided.add(transactional_id)

    def stored_keys(self) -> Iterator[str]:
        """What the log must hold a record of."""
        yield from self.transactions

    def records_of(self, key: str) -> list[TransactionRecord]:
        """The records for a key as they would be written now; none when it is gone."""
        found = self.transactions.get(key)
        return [] if found is None else [TransactionRecord(key, found)]

    def overdue(self, now_ms: int) -> list[str]:
        """Whose open transaction must be aborted because it takes too long."""
        return [name for name in self.open if rules.is_overdue(self.transactions[name], now_ms)]

    def expired(self, expiration_ms: int, now_ms: int) -> list[str]:
        """Who was not heard of for so long that it is to be forgotten."""
        return [
            name
            for name, transaction in self.transactions.items()
            if rules.is_expired(transaction, expiration_ms, now_ms)
        ]
