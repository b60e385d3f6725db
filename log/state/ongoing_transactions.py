"""The transactions of one partition whose outcome its readers do not know yet.

They are open, or ended by a marker that is still at or above the high watermark. Every operation costs O(1), amortized.
Source: Kafka's `ProducerStateManager` (ongoingTxns, unreplicatedTxns, firstUnstableOffset, lastStableOffset).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class OngoingTransactions:
    """Transactions by their first offset, which is unique; they begin in ascending order.

    Holds at most one open transaction per producer, and the markers since the high watermark.
    """

    __slots__ = ("_ended", "_held", "_open", "_undecided")

    def __init__(self, open_transactions: Iterable[tuple[int, int]] = ()) -> None:
        """Begin with these open ones, (first_offset, producer_id) each, in any order."""
        self._open = OrderedDict(sorted(open_transactions))
        self._undecided = OrderedDict.fromkeys(self._open)
        self._ended: deque[tuple[int, int]] = deque()
        self._held: list[tuple[int, int]] = []

    def __bool__(self) -> bool:
        """Whether there may be any; without one all below the high watermark is stable."""
        return bool(self._undecided) or bool(self._held)

    def hold(self, first_offset: int, until_log_start: int) -> None:
        """Take all from `first_offset` on for undecided until the log starts at `until_log_start` or later.

        For transactions that were open where a damaged batch begins: their markers may have been in it.
        """
        self._held.append((first_offset, until_log_start))

    def log_start_moved(self, log_start_offset: int) -> None:
        """Drop the holds of damaged batches that were deleted."""
        self._held = [held for held in self._held if held[1] > log_start_offset]

    def __len__(self) -> int:
        """Return how many are open."""
        return len(self._open)

    def begin(self, producer_id: int, first_offset: int) -> None:
        """A producer's first transactional batch was written at `first_offset`, the end of the log."""
        self._open[first_offset] = producer_id
        self._undecided[first_offset] = None

    def end(self, first_offset: int, marker_offset: int, high_watermark: int) -> int:
        """A marker at `marker_offset` ended the transaction; return the last stable offset as the marker makes it.

        That is where the earliest of the others begins, or the end of the log. It is what Kafka notes in the index of
        aborted transactions, and takes every marker as if it were already below the high watermark.
        """
        del self._open[first_offset]
        self._ended.append((marker_offset, first_offset))
        self._forget_decided(high_watermark)
        return next(iter(self._open), marker_offset + 1)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset of the earliest one; None when there is none."""
        if self._ended:
            self._forget_decided(high_watermark)
        first = next(iter(self._undecided), None)
        if self._held:
            held = min(self._held)[0]
            first = held if first is None else min(first, held)
        return first

    def open_transactions(self) -> list[tuple[int, int]]:
        """(first_offset, producer_id) of the open ones, the earliest first."""
        return list(self._open.items())

    def _forget_decided(self, high_watermark: int) -> None:
        ended = self._ended
        while ended and ended[0][0] < high_watermark:
            del self._undecided[ended.popleft()[1]]
