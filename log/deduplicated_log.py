"""What of a partition log belongs to producer names: judged at append, kept beside the log, read again at start.

Topics that don't deduplicate pay for one look at `names`. A record that was there before is acknowledged and not stored; the
rest of its batch is stored with the offsets and the sequences that it came with.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from log.batch_validation import check_countable
from log.compaction.batch_rewriting import empty_batch, plain_records, rewritten_batch, stored_records
from log.delayed_log import DelayedLog
from log.end_marker import read_end_marker
from log.errors import (
    CorruptRecord,
    InvalidRecord,
    NameFenced,
    NameLimitReached,
    NamesNotReady,
    NameUndecided,
    StorageFailed,
    UnsupportedCompressionType,
)
from log.name_snapshots import NamesCapture, newest_names, read_start, write_start
from log.named_records import NameHeaders, named_records
from log.record_batch import (
    CONTROL_FLAG,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    crc_matches,
    parse_header,
    whole_batches,
)
from log.results import AppendInfo
from log.retention import RetentionDecision
from seq_validator.names import (
    NO_PRODUCER,
    NameRejectionReason,
    NamesRejected,
    NameTable,
    advances_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from log.compaction.cleanable import Cleanable
    from log.config import LogConfig
    from log.delayed_log import DueTimes
    from log.flush import FlushTicket
    from log.record_batch import BatchHeader
    from log.recovery import CleanStop, LoadedLog
    from log.results import DeletedSegment
    from log.retained_log import RetentionTicket
    from log.segment import Segment
    from seq_validator.names import NameAdvance, NamedRecord, NameState, TopicNames

_logger = logging.getLogger(__name__)
REPLAYED_AT_ONCE_BYTES: Final = 256 * 1024
"""What an append that must know the names reads of the log at most, before it is refused for now."""
_REPLAYED_RECORD_BYTES: Final = 100
"""What a record counts at least when it is read again: compressed ones take as long as others."""
_WITHOUT_A_LIMIT: Final = 1 << 62
_REFUSALS: Final = {
    NameRejectionReason.FENCED: NameFenced,
    NameRejectionReason.UNDECIDED: NameUndecided,
    NameRejectionReason.LIMIT_REACHED: NameLimitReached,
}


class BatchContent(NamedTuple):
    """What is to be stored of a batch whose records were looked at, and what is to be remembered of them then."""

    batch: BatchHeader
    view: memoryview
    advances: Sequence[NameAdvance] = ()
    """How far it takes producer names."""
    duplicates: int = 0
    """How many of its records are not stored."""
    due_times: DueTimes | None = None
    is_known: AppendInfo | None = None
    """The answer where nothing is to be stored."""


class DeduplicatedLog(DelayedLog):
    """A partition log's view of producer names."""

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
    _unwritten_from: int | None = None
    """The offset from which on records may have names that no durable snapshot knows; None when all are known there."""

    _unwritten_start: int | None = None
    """From which offset on names are remembered, where that is not written down; it is before the first of them comes."""
    _names_lock: threading.Lock

    def _take(self, loaded: LoadedLog) -> None:
        super()._take(loaded)
        self._stop_deduplicating()
        self._captured = None
        self._names_lock = threading.Lock()
        self._captures_out = 0
        if self.config.deduplicates:
            self._begin_deduplicating()

    def update_config(self, config: LogConfig) -> None:
        """As DelayedLog's. What was remembered when deduplication ended is remembered when it begins again.

        The log is offline when its files can't be read or written.
        """
        super().update_config(config)
        if self.offline:
            return
        if self.names is not None and config.deduplicates:
            self._apply_name_settings()
            return
        try:
            if config.deduplicates:
                self._begin_deduplicating()
            elif self.names is not None:
                self._write_start()
                if self.names_ready:
                    # what is deleted from now on is not looked at for names
                    self._write_names(self._loaded_at_ms)
                self._stop_deduplicating()
        except StorageFailed:
            return
        except OSError as error:
            self.take_offline(
                f"what is remembered of producer names can't be read or written: {error}", error
            )

    def _apply_name_settings(self) -> None:
        config = self.config
        self._name_headers = NameHeaders(
            config.deduplication_name_header.encode(),
            config.deduplication_sequence_header.encode(),
            config.deduplication_epoch_header.encode(),
            config.deduplication_name_max_bytes,
        )
        self._topic_names.max_names = config.deduplication_names_max

    def _begin_deduplicating(self) -> None:
        """Take up what is written down; the log after it is read later, by `replay_names`. Raises OSError."""
        self._topic_names = self._environment.names_of(self.topic_id)
        self._apply_name_settings()
        storage = self._environment.storage
        waits, storage.waits = storage.waits, True
        try:
            newest = newest_names(storage, self.directory, self.log_end_offset)
            start_offset = self._names_start(is_remembered=newest is not None)
        finally:
            storage.waits = waits
        table = self.names = NameTable(self._topic_names)
        self._environment.deduplicating[self] = None
        self._unwritten_from = None
        self._names_changed = False
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
        self._named_since_capture = 0
        if start_offset < self.log_end_offset:
            self._replay_offset = self._unwritten_from = start_offset
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

    def _write_start(self) -> None:
        """Have it durable from which offset on names are remembered. Raises OSError."""
        if self._unwritten_start is not None:
            storage = self._environment.storage
            write_start(storage, self.directory, self.topic, self.partition, self._unwritten_start)
            self._unwritten_start = None

    def _stop_deduplicating(self) -> None:
        if self.names is not None:
            self.names.clear()
            self.names = None
        self._environment.deduplicating.pop(self, None)
        self._environment.names_overdue.pop(self, None)
        self._replay_offset = None

    # Appending.

    def _look_into(self, batch: BatchHeader, view: memoryview, now_ms: int) -> BatchContent:
        """Judge the producer names of a batch, and see what is due later.

        Raises InvalidRecord, UnsupportedCompressionType, NameFenced, NameUndecided, NameLimitReached, NamesNotReady,
        DelayedLimitReached.
        """
        content = self._deduplicate(batch, view, now_ms)
        if self.delays is not None and content.is_known is None:
            content = content._replace(due_times=self._due_times(content.batch, content.view, now_ms))
        return content

    def _deduplicate(self, batch: BatchHeader, view: memoryview, now_ms: int) -> BatchContent:
        names = self.names
        records = [] if names is None else self._named_records(batch, view)
        if names is None or not records:
            return BatchContent(batch, view)
        if self._replay_offset is not None and not self.replay_names(REPLAYED_AT_ONCE_BYTES, now_ms):
            raise NamesNotReady("What is remembered of producer names is still being read from the log.")
        if self._unwritten_start is not None:
            try:
                self._write_start()
            except OSError as error:
                self._fail(
                    f"the start of what is remembered of producer names could not be written: {error}", error
                )
        verdict = names.judge(
            records, now_ms, high_watermark=self.high_watermark, transaction_of=_transaction_of(batch)
        )
        if isinstance(verdict, NamesRejected):
            raise _REFUSALS[verdict.reason](verdict.message)
        advances, duplicates = verdict.advances, verdict.duplicates
        if not duplicates:
            return BatchContent(batch, view, advances)
        if len(duplicates) == batch.record_count and batch.producer_id < 0:
            names.touch(advances, now_ms)
            self._environment.name_budget.dropped_records += len(duplicates)
            self._names_changed = True
            info = AppendInfo(-1, verdict.wait_for_offset, -1, self.log_start_offset, True)
            return BatchContent(batch, view, is_known=info)
        batch, view = _without(batch, view, set(duplicates), self.config)
        return BatchContent(batch, view, advances, len(duplicates))

    def _named_records(self, batch: BatchHeader, view: memoryview) -> list[NamedRecord]:
        if batch.attributes & CONTROL_FLAG:
            return []
        check_countable(batch, self.config)
        return named_records(batch, view, self._name_headers, self.config.max_decompressed_bytes)

    def _take_account(self, content: BatchContent, now_ms: int) -> None:
        """Remember what a batch that was written tells."""
        if content.due_times:
            self._track(content.batch, content.due_times)
        if content.advances and self.names is not None:
            self._fold_names(self.names, content.batch, content.advances, now_ms)
            self._environment.name_budget.dropped_records += content.duplicates

    def _fold_names(
        self, names: NameTable, batch: BatchHeader, advances: Sequence[NameAdvance], now_ms: int
    ) -> None:
        names.update(
            advances,
            batch.base_offset,
            now_ms,
            high_watermark=self.high_watermark,
            transaction_of=_transaction_of(batch),
        )
        self._note_change(batch)
        self._named_since_capture += batch.record_count
        if self._named_since_capture >= self.config.deduplication_snapshot_records:
            self._environment.names_overdue[self] = None

    def _follow_transaction(self, batch: BatchHeader, view: memoryview, now_ms: int) -> None:
        super()._follow_transaction(batch, view, now_ms)
        if self.names is not None and batch.is_control and self._replay_offset is None:
            self._end_names(self.names, batch, view)

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

    # What is known.

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

    def expire_names(self, now_ms: int) -> int:
        """Forget names idle for message.deduplication.expiration.ms; returns how many."""
        expiration_ms = self.config.deduplication_expiration_ms
        if self.names is None or self._replay_offset is not None or expiration_ms < 0:
            return 0
        expired = self.names.expire(now_ms, expiration_ms)
        self._names_changed = self._names_changed or expired > 0
        return expired

    # Reading the log again.

    def replay_names(self, max_bytes: int, now_ms: int) -> bool:
        """Read about so many bytes more of the log for names, or a batch; whether all is read. Raises StorageFailed.

        A record counts as 100 bytes at least.
        """
        self._check_online()
        if self.names is None or self._replay_offset is None:
            return True
        storage = self._environment.storage
        waits, storage.waits = storage.waits, True
        try:
            self._replay(self.names, self._replay_offset, max_bytes, now_ms)
        except (CorruptRecord, OSError) as error:
            raise StorageFailed(f"{self.topic}-{self.partition} can't be read: {error}") from error
        finally:
            storage.waits = waits
        if self.names_ready:
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

    def _forget_transactions_of(self, names: NameTable, end_offset: int) -> None:
        """The log from `end_offset` on was deleted unread: what was open then and is not any more ended there, perhaps."""
        for producer_id in names.open_transactions():
            transaction = self.open_transaction(producer_id)
            if transaction is None or transaction.first_offset >= end_offset:
                _logger.warning(
                    "%s-%d: how a transaction of producer %d ended is not known any more; its records are not remembered",
                    self.topic,
                    self.partition,
                    producer_id,
                )
                self._names_changed = True
                names.end_transaction(
                    producer_id, commit=False, marker_offset=-1, high_watermark=self.high_watermark
                )

    def _replay_batch(self, names: NameTable, batch: BatchHeader, view: memoryview, now_ms: int) -> None:
        if batch.is_control:
            self._end_names(names, batch, view)
            return
        try:
            if not crc_matches(batch, view):
                raise InvalidRecord("its CRC-32C does not fit")  # noqa: TRY301 - told as any other damage
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
        self._fold_names(names, batch, advances_of(records), now_ms)

    # What is kept beside the log.

    def capture_names(self) -> bool:
        """Have what is remembered now written down by the next flush; False when it is written, or not complete."""
        if self.names is None or self._replay_offset is not None or self.offline or not self._names_changed:
            return False
        try:
            self._write_start()
        except OSError as error:
            self.take_offline(
                f"the start of what is remembered of producer names could not be written: {error}", error
            )
            return False
        self._captured = NamesCapture(
            self._environment.storage,
            self.directory,
            self.names.written(),
            self.log_end_offset,
            self._names_lock,
        )
        self._names_changed = False
        self._named_since_capture = 0
        self._environment.names_overdue.pop(self, None)
        self._undurable.add([], self.directory)
        return True

    def prepare_flush(self) -> FlushTicket | None:
        """As DurableLog's; the ticket writes down what was captured, once the records are durable."""
        ticket = super().prepare_flush()
        if ticket is not None and self._captured is not None:
            ticket.names, self._captured = self._captured, None
            self._captures_out += 1
        return ticket

    def complete_flush(self, ticket: FlushTicket) -> None:
        """As DurableLog's."""
        super().complete_flush(ticket)
        if ticket.names is not None and ticket.generation == self._generation:
            self._captures_out -= 1
            is_all = not self._names_changed and self._captured is None and not self._captures_out
            self._unwritten_from = None if is_all else ticket.names.log_end_offset

    def roll(self, now_ms: int) -> None:
        """As RetainedLog's; a closed segment need not be read again for names."""
        super().roll(now_ms)
        self.capture_names()

    def decide_retention(self, now_ms: int) -> RetentionDecision:
        """As DelayedLog's; nothing goes that has not been read for names."""
        if self._replay_offset is not None:
            return RetentionDecision([], "it is still being read for producer names")
        return super().decide_retention(now_ms)

    def prepare_retention(self, now_ms: int) -> RetentionTicket | None:
        """As RetainedLog's. What goes may be all that has some of the names, so they are written down."""
        self._capture_names_below(self.log_end_offset)
        return super().prepare_retention(now_ms)

    def delete_old_segments(self, now_ms: int) -> list[DeletedSegment]:
        """As RetainedLog's."""
        if self._unwritten_from is not None:
            doomed = self.decide_retention(now_ms).doomed
            self._write_names_below(doomed[-1][0].end_offset if doomed else 0, now_ms)
        return super().delete_old_segments(now_ms)

    def prepare_delete_records(self, offset: int) -> RetentionTicket | None:
        """As RetainedLog's. What goes may be all that has some of the names, so they are written down; of a log that is still
        read for them `delete_records_before` does that, and until then nothing may be made durable.
        """
        wanted = self._wanted_start(offset)
        if self._replay_offset is not None:
            return None
        self._capture_names_below(wanted)
        return super().prepare_delete_records(wanted)

    def delete_records_before(self, offset: int, now_ms: int = 0) -> int:
        """As RetainedLog's."""
        self._write_names_below(self._wanted_start(offset), now_ms)
        return super().delete_records_before(offset, now_ms)

    def _must_flush_before(self, start_offset: int) -> bool:
        return self._has_unwritten_below(start_offset) or super()._must_flush_before(start_offset)

    def _has_unwritten_below(self, offset: int) -> bool:
        """Whether a record before the offset may have a name that only the log tells of: a start does not read what is deleted."""
        return self.names is not None and self._unwritten_from is not None and self._unwritten_from < offset

    def _capture_names_below(self, offset: int) -> None:
        """Once more if that is under way: the ticket that is made now must not be done before them."""
        if self._has_unwritten_below(offset):
            self._names_changed = True
            self.capture_names()

    def _write_names_below(self, offset: int, now_ms: int) -> None:
        if self._has_unwritten_below(offset):
            self._write_names(now_ms)

    def _remove(self, doomed: list[Segment], now_ms: int) -> None:
        if doomed:
            end_offset = self._bases[len(doomed)] if len(doomed) < len(self._bases) else self.log_end_offset
            self._write_names_below(end_offset, now_ms)
        super()._remove(doomed, now_ms)

    def cleanable(self, clean_end_offset: int | None, durable_end_offset: int, now_ms: int) -> Cleanable:
        """As CompactedLog's; only what is written down of names."""
        if self.names is not None and self._unwritten_from is not None:
            durable_end_offset = min(durable_end_offset, self._unwritten_from)
        return super().cleanable(clean_end_offset, durable_end_offset, now_ms)

    def _write_names(self, now_ms: int) -> None:
        """Have all names of the log durable now. Raises StorageFailed."""
        self.replay_names(_WITHOUT_A_LIMIT, now_ms)
        self._names_changed = True
        self.capture_names()
        ticket = self.prepare_flush()
        if ticket is None:
            self._check_online()
            return
        try:
            ticket.run()
        except OSError as error:
            self.fail_flush(ticket, error)
            self._check_online()
        else:
            self.complete_flush(ticket)

    def prepare_close(self) -> FlushTicket | None:
        """As DelayedLog's; what is remembered is written down with the rest."""
        self.capture_names()
        return super().prepare_close()

    def finish_close(
        self, ticket: FlushTicket | None, error: OSError | None, *, clean: bool = True
    ) -> CleanStop | None:
        """As DelayedLog's."""
        stop = super().finish_close(ticket, error, clean=clean)
        self._stop_deduplicating()
        return stop


def _transaction_of(batch: BatchHeader) -> int:
    return batch.producer_id if batch.attributes & TRANSACTIONAL_FLAG else NO_PRODUCER


def _without(
    batch: BatchHeader, view: memoryview, duplicates: Collection[int], config: LogConfig
) -> tuple[BatchHeader, memoryview]:
    """The batch without the records at these offset deltas. One that is left empty has no time, as no record has it."""
    if len(duplicates) == batch.record_count:
        batch.max_timestamp = NO_TIMESTAMP
        rewritten = empty_batch(batch)
    else:
        plain = plain_records(batch, view, config.max_decompressed_bytes)
        first = batch.base_offset
        kept = [record for record in stored_records(batch, plain) if record.offset - first not in duplicates]
        rewritten = rewritten_batch(batch, plain, kept)
    return parse_header(rewritten), memoryview(rewritten)
