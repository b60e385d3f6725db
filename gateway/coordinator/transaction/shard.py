"""The transactional ids whose state one partition of `__transaction_state` holds."""

from __future__ import annotations

from collections.abc import Iterator

from seqgate.gateway.coordinator.transaction import rules
from seqgate.gateway.coordinator.transaction.records import DECIDED, ONGOING, Transaction, TransactionRecord


class TransactionShard:
    """The transactions by transactional id, and the transactional ids by their present producer id."""

    def __init__(self) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.open: set[str] = set()
        """The transactional ids whose transaction is not decided."""
        self.decided: set[str] = set()
        """The transactional ids whose transaction is decided and still needs markers."""
        self.by_producer_id: dict[int, str] = {}

    def replay(self, record: TransactionRecord, now_ms: int) -> None:
        """Replay a record. Nothing else changes the state of this shard."""
        del now_ms  # replay does not depend on the time
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
        """Yield the key of every record that the log must hold."""
        yield from self.transactions

    def records_of(self, key: str) -> list[TransactionRecord]:
        """Return the record of a key as it would be written now; none when the key no longer exists."""
        found = self.transactions.get(key)
        return [] if found is None else [TransactionRecord(key, found)]

    def overdue(self, now_ms: int) -> list[str]:
        """Return the transactional ids whose transaction has timed out and must be aborted."""
        return [name for name in self.open if rules.is_overdue(self.transactions[name], now_ms)]

    def expired(self, expiration_ms: int, now_ms: int) -> list[str]:
        """Return the transactional ids that were unused for so long that they expire."""
        return [
            name
            for name, transaction in self.transactions.items()
            if rules.is_expired(transaction, expiration_ms, now_ms)
        ]
