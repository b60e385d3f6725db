"""Tracks a log's transactions: the open ones, the last stable offset, and the markers that end them.

Source of the rules: Kafka's `UnifiedLog`, `ProducerStateManager` (KIP-98).

`OngoingTransactions` tracks those whose outcome readers do not know yet. Such a transaction is open, or its
marker is still at or above the high watermark. Every operation costs O(1), amortized. Source: Kafka's
`ProducerStateManager` (ongoingTxns, unreplicatedTxns, firstUnstableOffset, lastStableOffset).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from seqgate.log.format.record_batch import CONTROL_FLAG, BatchHeader
from seqgate.log.format.records import read_end_marker
from seqgate.log.segments.transaction_index import AbortedTransaction
from seqgate.seq_validator import NO_TRANSACTION, ProducerTable


class OpenTransaction(NamedTuple):
    """A producer's open transaction: the producer epoch, and the offset of its first record."""

    producer_epoch: int
    first_offset: int


class Transactions:
    """The transactions of one log. The producer table holds each producer's own transaction."""

    __slots__ = ("_producers", "ongoing")

    def __init__(self, producers: ProducerTable) -> None:
        self._producers = producers
        self.ongoing = OngoingTransactions(
            (entry.current_transaction_first_offset, entry.producer_id)
            for entry in producers.in_transaction()
        )

    @property
    def has_open(self) -> bool:
        return bool(self._producers.in_transaction())

    def last_stable_offset(self, high_watermark: int, log_start_offset: int) -> int:
        """Return the offset below which every record is decided (exclusive); never above the high watermark.
        An open transaction whose first records were deleted counts from the log start offset.
        """
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
        """Fold in a transactional batch that was written. Return the transaction that it aborts, if any.

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


class OngoingTransactions:
    """Transactions by first offset, which is unique and ascends. Holds at most one open transaction per
    producer, and the markers from the high watermark on.
    """

    __slots__ = ("_ended", "_open", "held", "undecided")

    def __init__(self, open_transactions: Iterable[tuple[int, int]] = ()) -> None:
        """Begin with these open transactions, (first_offset, producer_id) each, in any order."""
        self._open = OrderedDict(sorted(open_transactions))
        self.undecided = OrderedDict.fromkeys(self._open)
        self._ended: deque[tuple[int, int]] = deque()
        self.held: list[tuple[int, int]] = []

    def hold(self, first_offset: int, until_log_start: int) -> None:
        """Treat records from `first_offset` on as undecided until the log starts at `until_log_start`. This
        is for transactions that were open at a damaged batch: their markers may have been in that batch.
        """
        self.held.append((first_offset, until_log_start))

    def log_start_moved(self, log_start_offset: int) -> None:
        """Drop the holds of damaged batches that were deleted."""
        self.held = [held for held in self.held if held[1] > log_start_offset]

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Begin a producer's transaction at `first_offset`, the log end offset before its first batch."""
        self._open[first_offset] = producer_id
        self.undecided[first_offset] = None

    def end(self, first_offset: int, marker_offset: int, high_watermark: int) -> int:
        """End a transaction by the marker at `marker_offset`. Return the last stable offset after the marker.

        That is the first offset of the earliest other open transaction, or the offset after the marker. Kafka
        writes this value into the transaction index, and takes every marker to be below the high watermark.
        """
        del self._open[first_offset]
        self._ended.append((marker_offset, first_offset))
        self._forget_decided(high_watermark)
        return next(iter(self._open), marker_offset + 1)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return the first offset of the earliest undecided transaction; None without one."""
        if self._ended:
            self._forget_decided(high_watermark)
        first = next(iter(self.undecided), None)
        if self.held:
            held = min(self.held)[0]
            first = held if first is None else min(first, held)
        return first

    def open_transactions(self) -> list[tuple[int, int]]:
        """Return (first_offset, producer_id) of the open transactions, the earliest first."""
        return list(self._open.items())

    def _forget_decided(self, high_watermark: int) -> None:
        ended = self._ended
        while ended and ended[0][0] < high_watermark:
            del self.undecided[ended.popleft()[1]]


# A set of offsets, stored as ranges of consecutive offsets.

_NEVER: Final = 2**63 - 1


class OffsetRanges:
    """A set of offsets, added in ascending order and removed in any order. A lookup costs a binary search."""

    __slots__ = ("_firsts", "_lasts", "count")

    def __init__(self) -> None:
        self._firsts = array("q")
        self._lasts = array("q")
        self.count = 0

    def __contains__(self, offset: int) -> bool:
        return self.first_outside(offset) != offset

    @property
    def first(self) -> int | None:
        return self._firsts[0] if self._firsts else None

    def append(self, offset: int) -> None:
        """Add an offset above all others. Raises ValueError for a lower one."""
        last = self._lasts[-1] if self._lasts else -1
        if offset <= last:
            raise ValueError(f"offset {offset} must be above the last offset {last}")
        if self._lasts and offset == last + 1:
            self._lasts[-1] = offset
        else:
            self._firsts.append(offset)
            self._lasts.append(offset)
        self.count += 1

    def discard(self, offset: int) -> bool:
        """Remove an offset. Return whether the set had it."""
        index = bisect_right(self._firsts, offset) - 1
        if index < 0 or self._lasts[index] < offset:
            return False
        first, last = self._firsts[index], self._lasts[index]
        if first == last:
            del self._firsts[index], self._lasts[index]
        elif offset == first:
            self._firsts[index] = offset + 1
        elif offset == last:
            self._lasts[index] = offset - 1
        else:
            self._lasts[index] = offset - 1
            self._firsts.insert(index + 1, offset + 1)
            self._lasts.insert(index + 1, last)
        self.count -= 1
        return True

    def discard_all(self, offsets: Sequence[int]) -> int:
        """Remove ascending offsets in one pass over all ranges. Return how many of them the set had."""
        firsts, lasts = array("q"), array("q")
        before, self.count = self.count, 0
        taken = iter([*offsets, _NEVER])
        offset = next(taken)
        for range_first, last in zip(self._firsts, self._lasts, strict=True):
            first = range_first
            while offset < first:
                offset = next(taken)
            while offset <= last:
                if first < offset:
                    firsts.append(first)
                    lasts.append(offset - 1)
                    self.count += offset - first
                first = offset + 1
                offset = next(taken)
            if first <= last:
                firsts.append(first)
                lasts.append(last)
                self.count += last - first + 1
        self._firsts, self._lasts = firsts, lasts
        return before - self.count

    def discard_below(self, offset: int) -> int:
        """Remove all offsets below `offset`. Return the number of offsets removed."""
        end = bisect_left(self._lasts, offset)
        gone = sum(self._lasts[:end]) - sum(self._firsts[:end]) + end
        del self._firsts[:end], self._lasts[:end]
        if self._firsts and self._firsts[0] < offset:
            gone += offset - self._firsts[0]
            self._firsts[0] = offset
        self.count -= gone
        return gone

    def first_outside(self, offset: int) -> int:
        """Return the first offset from `offset` on that is not in the set."""
        index = bisect_right(self._firsts, offset) - 1
        return offset if index < 0 or self._lasts[index] < offset else self._lasts[index] + 1

    def within(self, first_offset: int, last_offset: int) -> list[tuple[int, int]]:
        """Return the ranges of the set between two offsets, cut at both; all inclusive."""
        index = bisect_left(self._lasts, first_offset)
        end = bisect_right(self._firsts, last_offset)
        return [
            (max(first, first_offset), min(last, last_offset))
            for first, last in zip(self._firsts[index:end], self._lasts[index:end], strict=True)
        ]
