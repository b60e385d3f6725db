"""Tracks the transactions of a partition log: the open ones, the last stable offset, and the markers that end them.

Source of the rules: Kafka's `UnifiedLog`, `ProducerStateManager` (KIP-98).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from log.format.due_times import read_end_marker
from log.format.record_batch import CONTROL_FLAG
from log.segments.transaction_index import AbortedTransaction
from log.state.ongoing_transactions import OngoingTransactions
from seq_validator import NO_TRANSACTION

if TYPE_CHECKING:
    from log.format.record_batch import BatchHeader
    from seq_validator import ProducerTable


class OpenTransaction(NamedTuple):
    """A producer's open transaction: the producer epoch, and the offset of its first record."""

    producer_epoch: int
    first_offset: int


class Transactions:
    """The transactions of one log. The producer table holds each producer's own transaction."""

    __slots__ = ("_producers", "ongoing")

    def __init__(self, producers: ProducerTable) -> None:
        """Begin with the open transactions of the producers in the table."""
        self._producers = producers
        self.ongoing = OngoingTransactions(
            (entry.current_transaction_first_offset, entry.producer_id)
            for entry in producers.in_transaction()
        )

    @property
    def has_open(self) -> bool:
        """Whether a producer has an open transaction."""
        return bool(self._producers.in_transaction())

    def last_stable_offset(self, high_watermark: int, log_start_offset: int) -> int:
        """Return the offset below which every record is decided (exclusive); never above the high watermark.

        If the first records of an open transaction were deleted, the transaction counts from the log start offset.
        """
        if not self.ongoing:
            return high_watermark
        first_unstable = self.ongoing.first_unstable_offset(high_watermark)
        if first_unstable is None:
            return high_watermark
        return min(high_watermark, max(first_unstable, log_start_offset))

    def open_transaction(self, producer_id: int) -> OpenTransaction | None:
        """Return the producer's open transaction in this partition; None when it has none."""
        entry = self._producers.get(producer_id)
        if entry is None or not entry.has_open_transaction:
            return None
        return OpenTransaction(entry.producer_epoch, entry.current_transaction_first_offset)

    def open_transactions(self) -> list[tuple[int, OpenTransaction]]:
        """Return (producer_id, transaction) of all open transactions, the earliest first."""
        found = []
        for _, producer_id in self.ongoing.open_transactions():
            transaction = self.open_transaction(producer_id)
            if transaction is not None:
                found.append((producer_id, transaction))
        return found

    def first_open_offset(self, log_end_offset: int) -> int:
        """Return the first offset of the earliest open transaction; the log end offset without one."""
        return next(iter(self.ongoing.open_transactions()), (log_end_offset,))[0]

    def fold_in(
        self, batch: BatchHeader, view: memoryview, now_ms: int, high_watermark: int
    ) -> AbortedTransaction | None:
        """Fold in a transactional batch that was written. Return the transaction that the batch aborts, if any.

        A batch of records may begin a transaction of its producer. A marker ends the transaction.
        """
        base_offset = batch.base_offset
        if not batch.attributes & CONTROL_FLAG:
            self._producers.update(batch, base_offset, now_ms)
            if self._producers.continue_transaction(batch.producer_id, base_offset):
                self.ongoing.begin(batch.producer_id, base_offset)
            return None
        marker = read_end_marker(view)
        if marker is None:
            return None
        first_offset = self._producers.end_transaction(
            batch.producer_id,
            batch.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            offset=base_offset,
            timestamp=batch.max_timestamp,
            now_ms=now_ms,
        )
        if first_offset == NO_TRANSACTION:
            return None
        last_stable_offset = self.ongoing.end(first_offset, base_offset, high_watermark)
        if marker.is_commit:
            return None
        return AbortedTransaction(first_offset, batch.producer_id, base_offset, last_stable_offset)
