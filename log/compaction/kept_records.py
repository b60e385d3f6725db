"""Decides which records stay when a log is cleaned, batch by batch, from the batch's bytes.

A record stays unless a newer record has the same key. A tombstone (a record without a value) stays until its batch's delete
horizon, which the first cleaning of the batch sets. Aborted records never stay. A transaction marker stays while batches of its
transaction are left, and then until its own horizon. A batch that loses all records stays as an empty one if its offsets and
sequences are needed: as the last batch of a remembered producer, or the last batch of the cleaning.
Source: Kafka's `Cleaner.cleanInto`, `MemoryRecords.filterTo` (KIP-98, KIP-534).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from log.compaction.cleaned_transactions import CleanedTransactions
from log.compaction.offset_map import OffsetMap
from log.config import DEFAULT_DECOMPRESSED_BYTES
from log.format.batch_rewriting import (
    StoredRecord,
    delete_horizon_ms,
    empty_batch,
    plain_records,
    rewritten_batch,
    stored_records,
)
from log.format.end_marker import read_end_marker
from log.format.record_batch import BatchHeader
from log.segments.transaction_index import AbortedTransaction

LastOfProducer = tuple[int, int]
"""(last_offset of the producer's newest batch, -1 if the producer only has a marker; producer_epoch)."""


@dataclass(slots=True)
class KeptRecords:
    """The rules of one cleaning, applied to the batches of a log in order. Times in ms.

    `producers` are the remembered producers of the partition. `round_end_offset` (exclusive) is where the cleaning ends.
    """

    offset_map: OffsetMap
    producers: Mapping[int, LastOfProducer]
    now_ms: int
    delete_retention_ms: int
    round_end_offset: int
    limit_bytes: int = DEFAULT_DECOMPRESSED_BYTES
    transactions: CleanedTransactions = field(default_factory=CleanedTransactions)
    aborted_kept: list[AbortedTransaction] = field(default_factory=list)
    """The aborted transactions whose markers were kept since the list was last cleared."""
    records_read: int = 0
    records_kept: int = 0
    keyless_records: int = 0

    def of_batch(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        """Return `batch` itself if all of it stays, a smaller batch, or None if nothing stays.

        Raises InvalidRecord, UnsupportedCompressionType.
        """
        self.records_read += header.record_count
        horizon_ms = delete_horizon_ms(header)
        is_last = self._is_last_of_producer(header)
        if header.is_control:
            # An emptied control batch has no marker.
            marker = read_end_marker(batch) if header.record_count else None
            is_spent, entry = self.transactions.end(header.producer_id, header.last_offset, marker)
            if entry is not None:
                self.aborted_kept.append(entry)
            # If a producer has no batches left, only its last marker holds the producer epoch.
            is_dropped = is_spent and horizon_ms is not None and horizon_ms <= self.now_ms and not is_last
            if marker is None and header.record_count:
                is_spent = is_dropped = False  # a control record that this version does not know
        else:
            is_spent = is_dropped = self.transactions.is_aborted(
                header.producer_id, header.last_offset, is_transactional=header.is_transactional
            )
        keep_empty = is_last or header.last_offset + 1 == self.round_end_offset
        if is_dropped or not header.record_count:
            return self._emptied(header, batch) if keep_empty else None
        return self._filtered(header, batch, horizon_ms, is_spent and header.is_control, keep_empty)

    def _filtered(
        self,
        header: BatchHeader,
        batch: memoryview,
        horizon_ms: int | None,
        is_spent_marker: bool,
        keep_empty: bool,
    ) -> bytes | memoryview | None:
        plain = plain_records(header, batch, self.limit_bytes)
        has_tombstone = False
        kept: list[StoredRecord] = []
        for record in stored_records(header, plain):
            if header.is_control or self._stays(record, horizon_ms):
                kept.append(record)
                has_tombstone = has_tombstone or not record.has_value
        if not kept:
            return self._emptied(header, batch) if keep_empty else None
        self.records_kept += len(kept)
        if (has_tombstone or is_spent_marker) and horizon_ms is None:
            new_horizon_ms = self.now_ms + self.delete_retention_ms
            return rewritten_batch(header, plain, kept, new_horizon_ms=new_horizon_ms)
        if len(kept) == header.record_count:
            return batch
        return rewritten_batch(header, plain, kept)

    def _stays(self, record: StoredRecord, horizon_ms: int | None) -> bool:
        if record.offset > self.offset_map.latest_offset:
            return True
        if record.key is None:
            self.keyless_records += 1
            return False
        if record.offset < self.offset_map.get(record.key):
            return False
        return record.has_value or horizon_ms is None or self.now_ms < horizon_ms

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self.producers.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        last_offset, producer_epoch = last
        if last_offset >= 0:
            return header.last_offset == last_offset
        return header.is_control and header.producer_epoch == producer_epoch

    @staticmethod
    def _emptied(header: BatchHeader, batch: memoryview) -> bytes | memoryview:
        return empty_batch(header) if header.record_count else batch
