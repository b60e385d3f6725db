"""What of a partition log belongs to transactions: which are open, up to where all is decided, which were aborted.

Source of the rules: Kafka's `UnifiedLog`, `ProducerStateManager`, `LocalLog.addAbortedTransactions` (KIP-98).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

from log.durable_log import DurableLog
from log.errors import StorageFailed
from log.format.end_marker import read_end_marker
from log.format.record_batch import CONTROL_FLAG
from log.state.ongoing_transactions import OngoingTransactions
from seq_validator import NO_TRANSACTION

if TYPE_CHECKING:
    from log.format.record_batch import BatchHeader
    from log.recovery.load import LoadedLog
    from log.segments.regions import FileRegion


class OpenTransaction(NamedTuple):
    """A producer's open transaction: under which epoch it writes, and where its first record lies."""

    producer_epoch: int
    first_offset: int


class TransactionalLog(DurableLog):
    """A partition log's view of transactions; the producer table has their producers."""

    _transactions: OngoingTransactions
    _aborting: list[int]

    def _take(self, loaded: LoadedLog) -> None:
        super()._take(loaded)
        self._transactions = OngoingTransactions(
            (entry.current_transaction_first_offset, entry.producer_id)
            for entry in self.producers
            if entry.has_open_transaction
        )
        for found in loaded.damage:
            if found.undecided_from != NO_TRANSACTION:
                self._transactions.hold(found.undecided_from, found.end_offset)
        self._aborting = [segment.base_offset for segment in self._segments if segment.has_aborted]
        """Base offsets of the segments that hold markers of aborts."""

    @property
    def last_stable_offset(self) -> int:
        """Below it every record is decided (exclusive); never above the high watermark.

        A transaction that reaches below log_start_offset, as records were deleted, counts from there on.
        """
        high_watermark = self.high_watermark
        if not self._transactions:
            return high_watermark
        first_unstable = self._transactions.first_unstable_offset(high_watermark)
        if first_unstable is None:
            return high_watermark
        return min(high_watermark, max(first_unstable, self.log_start_offset))

    def open_transaction(self, producer_id: int) -> OpenTransaction | None:
        """The producer's open transaction in this partition; None when it has none."""
        entry = self.producers.get(producer_id)
        if entry is None or not entry.has_open_transaction:
            return None
        return OpenTransaction(entry.producer_epoch, entry.current_transaction_first_offset)

    def open_transactions(self) -> list[tuple[int, OpenTransaction]]:
        """(producer_id, transaction) of all that are open, the earliest first."""
        found = []
        for _, producer_id in self._transactions.open_transactions():
            transaction = self.open_transaction(producer_id)
            if transaction is not None:
                found.append((producer_id, transaction))
        return found

    def aborted_transactions(self, first_offset: int, upper_bound: int) -> list[tuple[int, int]]:
        """(producer_id, first_offset) of the aborted transactions that reach into [first_offset, upper_bound).

        In the order of their markers, which may lie beyond. Costs nothing where nothing was aborted. Raises StorageFailed.
        """
        found: list[tuple[int, int]] = []
        if not self._aborting:
            return found
        self._check_online()
        holding = self._bases[max(0, bisect_right(self._bases, first_offset) - 1)]
        try:
            for base_offset in self._aborting[bisect_left(self._aborting, holding) :]:
                segment = self._segments[bisect_left(self._bases, base_offset)]
                if segment.transaction_index().collect(first_offset, upper_bound, found):
                    break
        except OSError as error:
            raise StorageFailed(f"{self.topic}-{self.partition} can't be read: {error}") from error
        return found

    def aborted_in(self, offset: int, region: FileRegion | None) -> list[tuple[int, int]]:
        """The aborted transactions that a reader of `region`, found for `offset`, must know of. Raises LogError.

        As in Kafka it may name some beyond the region: where its last record lies is only known to the next entry of
        the offset index.
        """
        if region is None or not self._aborting:
            return []
        number = bisect_left(self._bases, region.segment_base_offset)
        try:
            relative_offset = self._segments[number].offset_after(region.end_position)
        except OSError as error:
            raise StorageFailed(f"{self.topic}-{self.partition} can't be read: {error}") from error
        if relative_offset is not None:
            upper_bound = region.segment_base_offset + relative_offset
        else:
            upper_bound = self._bases[number + 1] if number + 1 < len(self._bases) else self.log_end_offset
        return self.aborted_transactions(offset, upper_bound)

    def _follow_transaction(self, batch: BatchHeader, view: memoryview, now_ms: int) -> None:
        """Fold in a transactional batch that was written: records, which may begin a transaction, or its end."""
        base_offset = batch.base_offset
        if not batch.attributes & CONTROL_FLAG:
            self.producers.update(batch, base_offset, now_ms)
            if self.producers.continue_transaction(batch.producer_id, base_offset):
                self._transactions.begin(batch.producer_id, base_offset)
            return
        marker = read_end_marker(view)
        if marker is None:
            return
        first_offset = self.producers.end_transaction(
            batch.producer_id,
            batch.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            offset=base_offset,
            timestamp=batch.max_timestamp,
            now_ms=now_ms,
        )
        if first_offset == NO_TRANSACTION:
            return
        last_stable_offset = self._transactions.end(first_offset, base_offset, self.high_watermark)
        if not marker.is_commit:
            active = self._active
            if not active.has_aborted:
                self._aborting.append(active.base_offset)
            active.add_aborted(batch.producer_id, first_offset, base_offset, last_stable_offset)
