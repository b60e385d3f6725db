"""What of a partition log belongs to records that are due later: read at append, kept beside the log, found again at start.

Topics that name no record header (`delivery.delay.header`) pay for one look at `delays`. The log itself holds such records as any
others; who delivers them asks `delays` which are due.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from log.compacted_log import CompactedLog
from log.errors import (
    CorruptRecord,
    DelayedLimitReached,
    InvalidRecord,
    StorageFailed,
    UnsupportedCompressionType,
)
from log.files.file_names import DELAYED_RECORDS, TEMPORARY_SUFFIX
from log.format.batch_validation import check_countable
from log.format.due_times import due_values, parse_due_ms
from log.format.end_marker import read_end_marker
from log.format.record_batch import whole_batches
from log.removal.retention_rules import NOT_HELD
from log.state.delayed_records import NEVER_DUE, DelayedRecords
from log.state.delayed_snapshots import CorruptDelayedSnapshot, DelayedSnapshot, decode, encode

if TYPE_CHECKING:
    from log.config import LogConfig
    from log.durability.flush_ticket import FlushTicket
    from log.format.record_batch import BatchHeader
    from log.recovery.load import CleanStop, LoadedLog
    from log.removal.retention_rules import RetentionDecision

_logger = logging.getLogger(__name__)
_SCAN_BYTES: Final = 1 << 20

DueTimes = list[tuple[int, int]]
"""(offset_delta, due_ms) of the records of a batch that are due later."""


class DelayedLog(CompactedLog):
    """A partition log's view of records that are due later."""

    delays: DelayedRecords | None = None
    """The records that are not due, as of the last `release_due`; None where the topic delays nothing."""
    undated_records: int = 0
    """Records whose header told no time, since the start: they were due at once."""
    _loaded_at_ms: int = 0
    _noted: tuple[int, int, int] | None = None
    """What the file was last written for."""

    def _load(self, recovery_point: int, clean_stop: CleanStop | None, now_ms: int) -> None:
        self._loaded_at_ms = now_ms
        super()._load(recovery_point, clean_stop, now_ms)

    def _take(self, loaded: LoadedLog) -> None:
        super()._take(loaded)
        self._stop_delaying()
        if self.config.delivery_delay_header:
            self._restore_delays()

    def update_config(self, config: LogConfig) -> None:
        """Go on with another configuration of the topic.

        Where it delays and this one did not, as the log was loaded before its configuration was known, what waits is looked
        for. Raises StorageFailed.
        """
        before = self.config.delivery_delay_header
        self.config = config
        if self.delays is not None:
            self.delays.hold_ms = config.delivery_delay_hold_ms
        if config.delivery_delay_header != before and not self.offline:
            self._stop_delaying()
            if config.delivery_delay_header:
                self._restore_delays()

    def alter_delays(self, config: LogConfig) -> None:
        """Go on with another `delivery.delay.header`, or none: what waits is due, and it holds for records to come only."""
        self.config = config
        if self.offline:
            return
        self._stop_delaying()
        self._delete_snapshot()
        if config.delivery_delay_header:
            self._begin_delaying()
            self.note_delays()

    def _begin_delaying(self) -> DelayedRecords:
        if self.delays is None:
            self.delays = DelayedRecords(self._environment.delayed_limit, self.config.delivery_delay_hold_ms)
            self._environment.delaying[self] = None
        return self.delays

    def _stop_delaying(self) -> None:
        """All that waits is due, and nothing is held."""
        if self.delays is not None:
            self.delays.clear()
            self.delays = None
        self._environment.delaying.pop(self, None)
        self.held_from = NOT_HELD
        self._noted = None

    # Appending.

    def _due_times(self, batch: BatchHeader, view: memoryview, now_ms: int) -> DueTimes:
        """What of a batch is due later. Raises DelayedLimitReached, InvalidRecord, UnsupportedCompressionType."""
        assert self.delays is not None
        if batch.is_control:
            return []
        config = self.config
        check_countable(batch, config)
        latest_ms = now_ms + config.delivery_delay_max_ms
        due_times = self._read_due_times(batch, view, now_ms)
        for _, due_ms in due_times:
            if due_ms > latest_ms:
                raise InvalidRecord(
                    f"A record is due {due_ms - now_ms} ms from now; delivery.delay.max.ms is {config.delivery_delay_max_ms}."
                )
        if due_times:
            refusal = self.delays.refusal(len(due_times))
            if refusal is not None:
                self.release_due(now_ms)
                refusal = self.delays.refusal(len(due_times))
            if refusal is not None:
                raise DelayedLimitReached(f"No room for records that are due later: {refusal}.")
        return due_times

    def _read_due_times(self, batch: BatchHeader, view: memoryview, after_ms: int) -> DueTimes:
        config = self.config
        values = due_values(batch, view, config.delivery_delay_header.encode(), config.max_decompressed_bytes)
        found: DueTimes = []
        undated = 0
        for offset_delta, value in values:
            due_ms = parse_due_ms(value)
            if due_ms is None:
                undated += 1
            elif due_ms > after_ms:
                found.append((offset_delta, due_ms))
        if undated:
            self.undated_records += undated
            _logger.warning(
                "%s-%d: the header %s of %d records of a batch tells no time in ms, they are due at once",
                self.topic,
                self.partition,
                config.delivery_delay_header,
                undated,
            )
        return found

    def _track(self, batch: BatchHeader, due_times: DueTimes) -> None:
        """Have records of a batch that was written wait until they are due."""
        assert self.delays is not None
        transaction_of = batch.producer_id if batch.is_transactional else None
        for offset_delta, due_ms in due_times:
            self.delays.add(batch.base_offset + offset_delta, due_ms, transaction_of)
        self.held_from = self.delays.held_from

    def _follow_transaction(self, batch: BatchHeader, view: memoryview, now_ms: int) -> None:
        super()._follow_transaction(batch, view, now_ms)
        if self.delays is not None and batch.is_control:
            self._end_delayed(self.delays, batch, view)

    def _end_delayed(self, delays: DelayedRecords, batch: BatchHeader, view: memoryview) -> None:
        marker = read_end_marker(view)
        if marker is not None:
            delays.end_transaction(batch.producer_id, commit=marker.is_commit)
            self.held_from = delays.held_from

    # Time and deletion.

    def release_due(self, now_ms: int) -> bool:
        """Let go of the records that are due, of many the first; whether there were any."""
        if self.delays is None:
            return False
        released = self.delays.release(now_ms)
        self.held_from = self.delays.held_from
        return released

    @property
    def next_due_ms(self) -> int:
        """When the next record is due, or a little earlier; NEVER_DUE when none waits."""
        return NEVER_DUE if self.delays is None else self.delays.next_due_ms

    def decide_retention(self, now_ms: int) -> RetentionDecision:
        """As RetainedLog's, for what is held now. Raises StorageFailed, CorruptRecord."""
        self.release_due(now_ms)
        return super().decide_retention(now_ms)

    def _move_log_start(self, offset: int) -> None:
        super()._move_log_start(offset)
        if self.delays is not None:
            self.delays.discard_below(self.log_start_offset)
            self.held_from = self.delays.held_from

    # What is kept beside the log.

    def note_delays(self) -> None:
        """Write down what waits, as far as the log is durable, unless that is written; what fails is only logged."""
        self._note(min(self.recovery_point, self.last_stable_offset))

    def _note(self, covered_offset: int) -> None:
        """What waits below an offset, all of which is decided."""
        if self.delays is None or self.offline:
            return
        entries = self.delays.entries()
        if covered_offset < self.log_end_offset:
            entries = [entry for entry in entries if entry[1] < covered_offset]
        holds = self.delays.holds()
        state = covered_offset, len(entries), hash((tuple(holds), self.config.delivery_delay_header))
        if state == self._noted:
            return
        snapshot = DelayedSnapshot(covered_offset, self.config.delivery_delay_header, holds, entries)
        path = f"{self.directory}/{DELAYED_RECORDS}"
        storage = self._environment.storage
        try:
            storage.write_file(path + TEMPORARY_SUFFIX, encode(snapshot))
            storage.rename(path + TEMPORARY_SUFFIX, path)
        except OSError as error:
            _logger.warning("%s can't be written, the next start reads more of the log: %s", path, error)
            return
        self._undurable.add([path], self.directory)
        self._noted = state

    def _restore_delays(self) -> None:
        """Find what waits: from the file, and from the log after what it covers. Raises OSError."""
        delays = self._begin_delaying()
        snapshot = self._read_delayed_snapshot()
        start_offset = self.log_start_offset
        if snapshot is not None:
            delays.restore((entry for entry in snapshot.entries if start_offset <= entry[1]), snapshot.holds)
            start_offset = max(start_offset, snapshot.covered_offset)
        try:
            self._scan_for_delayed(delays, start_offset)
        except (CorruptRecord, OSError) as error:
            self._stop_delaying()
            raise StorageFailed(f"{self.topic}-{self.partition} can't be read: {error}") from error
        self.held_from = delays.held_from
        self.note_delays()

    def _read_delayed_snapshot(self) -> DelayedSnapshot | None:
        path = f"{self.directory}/{DELAYED_RECORDS}"
        storage = self._environment.storage
        if not storage.exists(path):
            return None
        try:
            snapshot = decode(storage.read_file(path), path)
        except CorruptDelayedSnapshot as error:
            _logger.warning("%s The log is read instead.", error)
            return None
        if snapshot.header_name != self.config.delivery_delay_header:
            return None
        if snapshot.covered_offset > self.log_end_offset:
            _logger.warning("%s is of a longer log. The log is read instead.", path)
            self._delete_snapshot()
            return None
        return snapshot

    def _delete_snapshot(self) -> None:
        path = f"{self.directory}/{DELAYED_RECORDS}"
        try:
            self._environment.storage.delete(path)
        except OSError as error:
            _logger.warning("%s stays: %s", path, error)

    def _scan_for_delayed(self, delays: DelayedRecords, offset: int) -> None:
        after_ms = self._loaded_at_ms - self.config.delivery_delay_hold_ms
        while offset < self.log_end_offset:
            region, offset = self._reader.find_sound(offset, _SCAN_BYTES, self.log_end_offset)
            if region is None:
                return
            data = memoryview(region.read())
            next_offset = offset
            for position, batch in whole_batches(data):
                if batch.last_offset >= offset:
                    self._find_delayed(delays, batch, data[position : position + batch.size_bytes], after_ms)
                next_offset = batch.last_offset + 1
            if next_offset <= offset:
                return
            offset = next_offset

    def _find_delayed(
        self, delays: DelayedRecords, batch: BatchHeader, view: memoryview, after_ms: int
    ) -> None:
        if batch.is_control:
            self._end_delayed(delays, batch, view)
            return
        try:
            due_times = self._read_due_times(batch, view, after_ms)
        except (InvalidRecord, UnsupportedCompressionType) as error:
            _logger.warning(
                "%s-%d: the records from %d to %d can't be read, they are due at once: %s",
                self.topic,
                self.partition,
                batch.base_offset,
                batch.last_offset,
                error,
            )
            return
        transaction_of = batch.producer_id if batch.is_transactional else None
        for offset_delta, due_ms in due_times:
            if batch.base_offset + offset_delta >= self.log_start_offset:
                delays.add(batch.base_offset + offset_delta, due_ms, transaction_of)

    def prepare_close(self) -> FlushTicket | None:
        """As DurableLog's; what waits is noted, and durable with the rest."""
        first_open = next(iter(self._transactions.open_transactions()), (self.log_end_offset,))
        self._note(first_open[0])
        return super().prepare_close()

    def finish_close(
        self, ticket: FlushTicket | None, error: OSError | None, *, clean: bool = True
    ) -> CleanStop | None:
        """As DurableLog's."""
        stop = super().finish_close(ticket, error, clean=clean)
        self._stop_delaying()
        return stop
