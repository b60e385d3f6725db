"""What a partition log remembers of producer names: taken up from its snapshot, read again from the log after it.

What is remembered is written down by `log.kept_names_log`, and made use of by `log.deduplicated_log`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from log.delayed_log import DelayedLog
from log.errors import CorruptRecord, InvalidRecord, StorageFailed, UnsupportedCompressionType
from log.format.batch_validation import check_countable
from log.format.end_marker import read_end_marker
from log.format.named_records import NameHeaders, named_records
from log.format.record_batch import TRANSACTIONAL_FLAG, crc_matches, whole_batches
from log.state.name_snapshots import NamesCapture, NameSnapshots, newest_names, read_start
from seq_validator.names import NO_PRODUCER, NameTable, advances_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from log.format.record_batch import BatchHeader
    from log.recovery.load import LoadedLog
    from seq_validator.names import NameAdvance, NameState, TopicNames

_logger = logging.getLogger(__name__)
REPLAYED_AT_ONCE_BYTES: Final = 256 * 1024
"""What is read of the log for names at a time."""
_REPLAYED_RECORD_BYTES: Final = 100
"""What a record counts at least when it is read again: compressed ones take as long as others."""


class NamedLog(DelayedLog):
    """A partition log's memory of producer names."""

    names: NameTable | None = None
    """What is remembered; None where the topic does not deduplicate."""
    _name_headers: NameHeaders
    _topic_names: TopicNames
    _replay_offset: int | None = None
    """Up to where the log has been read for names; None when all of it has."""
    _names_changed: bool = False
    """Since they were last captured."""
    _named_since_capture: int = 0
    _captured: NamesCapture | None = None
    """What the next flush is to write down."""
    _captures_out: int = 0
    """How many flushes that write down names are under way."""
    _has_gap: bool = False
    """Whether records went that were not read for names: what is known is to be written down at once, as the log can't tell it again."""
    _surplus_names: int = 0
    """How many were forgotten while the log was read again, as there were too many."""
    _unwritten_from: int | None = None
    """The offset from which on records may have names that no durable snapshot knows; None when all are known there."""

    _written_end: int = 0
    """Where the log ended for the newest durable snapshot."""
    _unwritten_start: int | None = None
    """From which offset on names are remembered, where that is not written down; it is before the first of them comes."""
    _snapshots: NameSnapshots
    """Where the present table is written down."""

    def _take(self, loaded: LoadedLog) -> None:
        super()._take(loaded)
        self._stop_deduplicating()
        if self.config.deduplicates:
            self._begin_deduplicating()

    def reopen(self, now_ms: int) -> None:
        """As RetainedLog's; what flushes under way would still write down may be more than the disk has."""
        if self.names is not None:
            self._snapshots.close()
        super().reopen(now_ms)

    def _apply_name_settings(self) -> None:
        self._name_headers = self._configured_headers()
        self._topic_names.max_names = self.config.deduplication_names_max

    def _configured_headers(self) -> NameHeaders:
        config = self.config
        return NameHeaders(
            config.deduplication_name_header.encode(),
            config.deduplication_sequence_header.encode(),
            config.deduplication_epoch_header.encode(),
            config.deduplication_name_max_bytes,
        )

    def _begin_deduplicating(self) -> None:
        """Take up what is written down; the log after it is read later, by `replay_names`. Raises OSError."""
        self._topic_names = self._environment.names_of(self.topic_id)
        self._apply_name_settings()
        storage = self._environment.storage
        with storage.may_wait():
            newest = newest_names(storage, self.directory, self.log_end_offset)
            start_offset = self._names_start(is_remembered=newest is not None)
        table = self.names = NameTable(self._topic_names)
        self._snapshots = NameSnapshots(storage, self.directory)
        self._environment.deduplicating[self] = None
        self._unwritten_from = None
        self._written_end = 0 if newest is None else newest.log_end_offset
        self._names_changed = self._has_gap = False
        if newest is not None:
            table.restore(newest.names)
            start_offset = max(start_offset, newest.log_end_offset)
        if start_offset < self.log_start_offset:
            _logger.warning(
                "%s-%d: the records from %d to %d are gone; of producer names that only they had nothing is remembered",
                self.topic,
                self.partition,
                start_offset,
                self.log_start_offset - 1,
            )
            self._forget_transactions_of(table, start_offset)
            start_offset = self.log_start_offset
            self._names_changed = self._has_gap = True
        self._named_since_capture = 0
        if start_offset < self.log_end_offset:
            self._replay_offset = self._unwritten_from = start_offset
        if self._replay_offset is not None or self._has_gap:
            self._environment.names_overdue[self] = None

    def _names_start(self, *, is_remembered: bool) -> int:
        """The offset from which on names are remembered, which is decided when that first begins. Raises OSError."""
        start_offset = read_start(self._environment.storage, self.directory)
        self._unwritten_start = None
        if start_offset is not None and start_offset <= self.log_end_offset:
            return start_offset
        if is_remembered or (start_offset is None and self.config.deduplication_from_log_start):
            start_offset = self.log_start_offset
        else:
            start_offset = self.log_end_offset
        self._unwritten_start = start_offset
        return start_offset

    def _stop_deduplicating(self) -> None:
        if self.names is not None:
            self.names.clear()
            self.names = None
            self._snapshots.close()
        self._captured = None
        self._captures_out = 0
        self._environment.deduplicating.pop(self, None)
        self._environment.names_overdue.pop(self, None)
        self._environment.names_partial.pop(self, None)
        self._replay_offset = None

    def note_whole_topic(self) -> None:
        """The names of all partitions of the topic are at hand."""
        self._topic_names.is_whole = True

    @property
    def names_ready(self) -> bool:
        """Whether all of the log has been read for names, and so all is remembered that is to be."""
        return self._replay_offset is None

    def name_state(self, name: bytes) -> NameState | None:
        """What is known of a name; None when it is not remembered."""
        return None if self.names is None else self.names.state(name, self.high_watermark)

    def name_states(self) -> list[NameState]:
        """What is known of every name, the longest idle first."""
        return [] if self.names is None else self.names.states(self.high_watermark)

    def has_idle_names(self, now_ms: int) -> bool:
        """Whether `expire_names` would forget some."""
        expiration_ms = self.config.deduplication_expiration_ms
        return (
            self.names is not None
            and self.names_ready
            and expiration_ms >= 0
            and self.names.has_idle(now_ms, expiration_ms)
        )

    def expire_names(self, now_ms: int) -> int:
        """Forget names that all partitions that are open last heard of message.deduplication.expiration.ms ago; returns how many."""
        if self.names is None or not self.has_idle_names(now_ms):
            return 0
        self._names_changed = True
        return self.names.expire(now_ms, self.config.deduplication_expiration_ms)

    def replay_names(self, max_bytes: int, now_ms: int) -> bool:
        """Read about so many bytes more of the log for names, or a batch; whether all is read. Raises StorageFailed.

        A record counts as 100 bytes at least.
        """
        self._check_online()
        if self.names is None or self._replay_offset is None:
            return True
        try:
            with self._environment.storage.may_wait():
                self._replay(self.names, self._replay_offset, max_bytes, now_ms)
        except (CorruptRecord, OSError) as error:
            raise StorageFailed(f"{self.topic}-{self.partition} can't be read: {error}") from error
        if self.names_ready and not self._has_gap:
            self._environment.names_overdue.pop(self, None)
        return self.names_ready

    def _replay(self, names: NameTable, offset: int, max_bytes: int, now_ms: int) -> None:
        end_offset = self.log_end_offset
        offset = max(offset, self.log_start_offset)
        while offset < end_offset and max_bytes > 0:
            at_once = min(max_bytes, REPLAYED_AT_ONCE_BYTES)
            region = self._reader.find(offset, at_once, end_offset, end_offset, True)
            if region is None:
                offset = end_offset
                break
            data = memoryview(region.read())
            begun_at = offset
            for position, batch in whole_batches(data):
                if batch.last_offset >= offset:
                    self._replay_batch(names, batch, data[position : position + batch.size_bytes], now_ms)
                    offset = batch.last_offset + 1
                    self._replay_offset = offset
                    max_bytes -= max(batch.size_bytes, batch.record_count * _REPLAYED_RECORD_BYTES)
                    if max_bytes <= 0:
                        break
            if offset == begun_at:
                raise CorruptRecord(f"There is no whole batch at offset {offset}.")
        self._replay_offset = offset if offset < end_offset else None
        if self._replay_offset is None:
            # compaction may have taken markers while nobody looked at names
            self._forget_transactions_of(names, end_offset)
            self._tell_surplus()

    def _tell_surplus(self) -> None:
        if self._surplus_names:
            _logger.warning(
                "%s-%d had more producer names than may be remembered; the %d that were heard of longest ago are forgotten",
                self.topic,
                self.partition,
                self._surplus_names,
            )
            self._surplus_names = 0

    def _replay_batch(self, names: NameTable, batch: BatchHeader, view: memoryview, now_ms: int) -> None:
        if not crc_matches(batch, view):
            # which names it had can't be told, so none is taken for new until `seqgate repair` gave it up
            raise CorruptRecord(f"The batch at offset {batch.base_offset} is damaged: the CRC is wrong.")
        if batch.is_control:
            self._end_names(names, batch, view)
            return
        try:
            check_countable(batch, self.config)
            records = named_records(
                batch, view, self._name_headers, self.config.max_decompressed_bytes, is_strict=False
            )
        except (InvalidRecord, UnsupportedCompressionType) as error:
            _logger.warning(
                "%s-%d: the records from %d to %d can't be read, of their producer names nothing is remembered: %s",
                self.topic,
                self.partition,
                batch.base_offset,
                batch.last_offset,
                error,
            )
            return
        self._fold_names(names, batch, advances_of(records), now_ms, is_replay=True)
        self._forget_surplus(names)

    def _forget_surplus(self, names: NameTable) -> None:
        """Have no more names than may be remembered, and were perhaps forgotten since they were last written down."""
        config = self.config
        forgotten = names.forget_surplus(
            config.deduplication_names_max + config.deduplication_snapshot_records,
            self._environment.name_budget.max_in_all + config.deduplication_snapshot_records,
        )
        if forgotten:
            self._names_changed = self._has_gap = True
            self._surplus_names += forgotten

    def _fold_names(
        self,
        names: NameTable,
        batch: BatchHeader,
        advances: Sequence[NameAdvance],
        now_ms: int,
        *,
        is_replay: bool = False,
    ) -> None:
        names.update(
            advances,
            batch.base_offset,
            now_ms,
            high_watermark=self.high_watermark,
            transaction_of=transaction_of(batch),
            is_replay=is_replay,
        )
        self._note_change(batch)
        self._named_since_capture += batch.record_count
        if self._named_since_capture >= self.config.deduplication_snapshot_records:
            self._environment.names_overdue[self] = None

    def _end_names(self, names: NameTable, batch: BatchHeader, view: memoryview) -> None:
        marker = read_end_marker(view)
        if marker is not None:
            names.end_transaction(
                batch.producer_id,
                commit=marker.is_commit,
                marker_offset=batch.base_offset,
                high_watermark=self.high_watermark,
            )
            self._note_change(batch)

    def _note_change(self, batch: BatchHeader) -> None:
        """What the batch in the log changed is to be written down."""
        self._names_changed = True
        if self._unwritten_from is None:
            self._unwritten_from = batch.base_offset

    def _forget_transactions_of(self, names: NameTable, end_offset: int) -> None:
        """The log from `end_offset` on was deleted unread, or is read: what was open then and is not any more ended somewhere."""
        for producer_id in names.open_transactions():
            transaction = self.open_transaction(producer_id)
            if transaction is None or transaction.first_offset >= end_offset:
                _logger.warning(
                    "%s-%d: how a transaction of producer %d ended is not known any more; its records are not remembered",
                    self.topic,
                    self.partition,
                    producer_id,
                )
                names.end_transaction(
                    producer_id, commit=False, marker_offset=-1, high_watermark=self.high_watermark
                )

    def _follow_transaction(self, batch: BatchHeader, view: memoryview, now_ms: int) -> None:
        super()._follow_transaction(batch, view, now_ms)
        if self.names is not None and batch.is_control and self._replay_offset is None:
            self._end_names(self.names, batch, view)


def transaction_of(batch: BatchHeader) -> int:
    """The producer id of a batch in a transaction, NO_PRODUCER of any other."""
    return batch.producer_id if batch.attributes & TRANSACTIONAL_FLAG else NO_PRODUCER
