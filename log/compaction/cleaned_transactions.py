"""The transactions that a cleaning passes: what was aborted goes, and a marker stays as long as something of it is there.

Source: Kafka's `CleanedTransactionMetadata` (KIP-98).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from log.format.end_marker import EndMarker
from log.segments.transaction_index import AbortedTransaction


class CleanedTransactions:
    """Follows the batches of a log from its start on, in order.

    Holds the transactions that are under way at one place of the log, and the aborted ones announced for what follows.
    """

    __slots__ = ("_aborted", "_announced", "_committed", "_seen")

    def __init__(self) -> None:
        self._announced: list[AbortedTransaction] = []
        self._aborted: dict[int, AbortedTransaction] = {}
        self._seen: set[int] = set()
        """Producers whose aborted transaction has a batch that was passed."""
        self._committed: set[int] = set()

    def announce(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Tell of aborted transactions before their first batch comes; one may be told of more than once."""
        for transaction in aborted:
            heapq.heappush(self._announced, transaction)

    def is_aborted(self, producer_id: int, last_offset: int, *, is_transactional: bool) -> bool:
        """Take in a batch of records that ends at `last_offset`; whether it was aborted."""
        self._begin(last_offset)
        if not is_transactional:
            return False
        if producer_id in self._aborted:
            self._seen.add(producer_id)
            return True
        self._committed.add(producer_id)
        return False

    def end(
        self, producer_id: int, offset: int, marker: EndMarker | None
    ) -> tuple[bool, AbortedTransaction | None]:
        """Take in a control batch; whether nothing is left of what its marker ended, and the entry that must stay.

        `marker` is None for a batch that was emptied before, which nobody needs. The entry belongs into the index of
        aborted transactions beside the marker.
        """
        self._begin(offset)
        if marker is None:
            return True, None
        if marker.is_commit:
            was_seen = producer_id in self._committed
            self._committed.discard(producer_id)
            return not was_seen, None
        transaction = self._aborted.pop(producer_id, None)
        if transaction is not None and producer_id in self._seen:
            self._seen.discard(producer_id)
            return False, transaction
        return True, None

    def _begin(self, offset: int) -> None:
        announced = self._announced
        while announced and announced[0].first_offset <= offset:
            transaction = heapq.heappop(announced)
            if transaction.last_offset >= offset:
                self._aborted.setdefault(transaction.producer_id, transaction)
