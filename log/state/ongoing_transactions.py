"""Tracks the transactions of one partition whose outcome readers do not know yet.

Such a transaction is open, or its marker is still at or above the high watermark. Every operation costs O(1), amortized.
Source: Kafka's `ProducerStateManager` (ongoingTxns, unreplicatedTxns, firstUnstableOffset, lastStableOffset).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class OngoingTransactions:
    """Transactions by first offset, which is unique and ascends.

    Holds at most one open transaction per producer, and the markers from the high watermark on.
    """

    __slots__ = ("_ended", "_held", "_open", "_undecided")

    def __init__(self, open_transactions: Iterable[tuple[int, int]] = ()) -> None:
        """Begin with these open transactions, (first_offset, producer_id) each, in any order."""
        self._open = OrderedDict(sorted(open_transactions))
        self._undecided = OrderedDict.fromkeys(self._open)
        self._ended: deque[tuple[int, int]] = deque()
        self._held: list[tuple[int, int]] = []

    def __bool__(self) -> bool:
        """Return whether a transaction may be undecided. If not, all records below the high watermark are stable."""
        return bool(self._undecided) or bool(self._held)

    def hold(self, first_offset: int, until_log_start: int) -> None:
        """Treat all records from `first_offset` on as undecided until the log starts at `until_log_start` or later.

        This is for transactions that were open at a damaged batch: their markers may have been in that batch.
        """
        self._held.append((first_offset, until_log_start))

    def log_start_moved(self, log_start_offset: int) -> None:
        """Drop the holds of damaged batches that were deleted."""
        self._held = [held for held in self._held if held[1] > log_start_offset]

    def __len__(self) -> int:
        """Return the number of open transactions."""
        return len(self._open)

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Begin a producer's transaction at `first_offset`, the log end offset before its first batch."""
        self._open[first_offset] = producer_id
        self._undecided[first_offset] = None

    def end(self, first_offset: int, marker_offset: int, high_watermark: int) -> int:
        """End a transaction by the marker at `marker_offset`. Return the last stable offset after the marker.

        That is the first offset of the earliest other open transaction, or the offset after the marker. Kafka writes this value
        into the transaction index, and treats every marker as already below the high watermark.
        """
        del self._open[first_offset]
        self._ended.append((marker_offset, first_offset))
        self._forget_decided(high_watermark)
        return next(iter(self._open), marker_offset + 1)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return the first offset of the earliest undecided transaction; None without one."""
        if self._ended:
            self._forget_decided(high_watermark)
        first = next(iter(self._undecided), None)
        if self._held:
            held = min(self._held)[0]
            first = held if first is None else min(first, held)
        return first

    def open_transactions(self) -> list[tuple[int, int]]:
        """Return (first_offset, producer_id) of the open transactions, the earliest first."""
        return list(self._open.items())

    def _forget_decided(self, high_watermark: int) -> None:
        ended = self._ended
        while ended and ended[0][0] < high_watermark:
            del self._undecided[ended.popleft()[1]]
