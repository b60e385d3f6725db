"""Follows the transactions during a cleaning: aborted records are dropped, and a marker stays while it has
records left.

Source: Kafka's `CleanedTransactionMetadata` (KIP-98).

The file `cleaner-offset-checkpoint` of a data directory: up to which offset each partition was compacted, in
Kafka's format.

Losing this file only costs time: a partition without an entry is cleaned again. Source: Kafka's
`LogCleanerManager`.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from seqgate.log.files.checkpoints import CorruptCheckpoint, decode_offsets, encode_offsets
from seqgate.log.files.file_names import replace
from seqgate.log.format.end_marker import EndMarker
from seqgate.log.segments.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from seqgate.log.files.storage import Storage

_logger = logging.getLogger(__name__)


class CleanedTransactions:
    """The transactions at one place of a log, while its batches are read in order from the log's start: the
    transactions that are open at this place, and the aborted ones that are announced for later batches.
    """

    __slots__ = ("_aborted", "_announced", "_committed", "_seen")

    def __init__(self) -> None:
        self._announced: list[AbortedTransaction] = []
        self._aborted: dict[int, AbortedTransaction] = {}
        self._seen: set[int] = set()
        """The producers whose aborted transaction still has batches in the log."""
        self._committed: set[int] = set()

    def announce(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Announce aborted transactions before their first batch comes. Announcing one twice is no error."""
        for transaction in aborted:
            heapq.heappush(self._announced, transaction)

    def is_aborted(self, producer_id: int, last_offset: int, *, is_transactional: bool) -> bool:
        """Take in a batch of records that ends at `last_offset`. Return whether the batch was aborted."""
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
        """Take in a control batch. Return whether its transaction has no batches left, and the index entry
        that must stay.

        `marker` is None for a batch that an earlier cleaning emptied. The entry belongs into the transaction
        index of the marker's segment.
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


CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"


def read_cleaned_offsets(storage: Storage, root: str) -> dict[tuple[str, int], int]:
    """Return the offsets by topic and partition; none if the file is missing or unreadable. Raises
    IncompatibleFormat.
    """
    path = f"{root}/{CLEANER_OFFSETS}"
    if not storage.exists(path):
        return {}
    try:
        return decode_offsets(storage.read_file(path), path)
    except (CorruptCheckpoint, OSError) as error:
        _logger.warning("%s: every compacted topic counts as dirty", error)
        return {}


def write_cleaned_offsets(storage: Storage, root: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Write the file without a flush; log an error."""
    path = f"{root}/{CLEANER_OFFSETS}"
    try:
        replace(storage, path, encode_offsets(offsets))
    except OSError as error:
        _logger.warning("%s can't be written: %s", path, error)
