"""Tracks the records of one partition log that are due later: judged at append, saved in a side file, restored at a start.

The log stores delayed records like all others. Share groups ask `Delays.records` which of them are due.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from log.durability.unflushed import SideFile
from log.errors import DelayedLimitReached, InvalidRecord, UnsupportedCompressionType
from log.files.file_names import DELAYED_RECORDS
from log.format.batch_validation import check_countable
from log.format.due_times import due_values, parse_due_ms, read_end_marker
from log.state.delayed_records import NEVER_DUE, DelayedRecords
from log.state.delayed_snapshots import CorruptDelayedSnapshot, DelayedSnapshot, decode, encode

if TYPE_CHECKING:
    from log.config import LogConfig
    from log.environment import DelayedLimit
    from log.files.durable_files import DurableFiles
    from log.files.storage import Storage
    from log.format.record_batch import BatchHeader
    from log.place import LogPlace

_logger = logging.getLogger(__name__)
REPLAY_BYTES: Final = 1 << 20
"""Bytes of the log that one read of a replay takes; the next read continues after them."""


class DueTimes(NamedTuple):
    """The due times of a batch's records."""

    later: list[tuple[int, int]]
    """(offset_delta, due_ms) of the records that are due later."""
    undated: int = 0
    """The number of records whose header holds no valid time. Such records are due at once."""


NOTHING_DUE_LATER: Final = DueTimes([])


class Delays:
    """The delayed records of a log whose topic sets `delivery.delay.header`."""

    replay_offset: int | None = None
    """Always None: the whole log is replayed before clients may use the log."""

    def __init__(
        self, storage: Storage, place: LogPlace, config: LogConfig, limit: DelayedLimit, loaded_at_ms: int
    ) -> None:
        """Begin without delayed records. A replay takes `loaded_at_ms` for the present time."""
        self.records = DelayedRecords(limit, config.delivery_delay_hold_ms)
        self.undated_records = 0
        """The number of records with an invalid due time since the log was opened."""
        self._storage = storage
        self._place = place
        self._config = config
        self._loaded_at_ms = loaded_at_ms
        self._log_start_offset = 0
        self._path = f"{place.directory}/{DELAYED_RECORDS}"
        self._file = SideFile()
        self._captured: tuple[int, int, int] | None = None
        """A fingerprint of the last capture, to skip an equal one."""

    def apply(self, config: LogConfig) -> None:
        """Take over changed limits of the delay; the header stays the same."""
        self._config = config
        self.records.hold_ms = config.delivery_delay_hold_ms

    # --- judging a batch before it is written

    def judge(self, batch: BatchHeader, view: memoryview, now_ms: int) -> DueTimes:
        """Return which records of a batch are due later.

        Raises DelayedLimitReached, InvalidRecord, UnsupportedCompressionType.
        """
        if batch.is_control:
            return NOTHING_DUE_LATER
        check_countable(batch, self._config)
        found = self._due_times(batch, view, now_ms)
        latest_ms = now_ms + self._config.delivery_delay_max_ms
        for _, due_ms in found.later:
            if due_ms > latest_ms:
                raise InvalidRecord(
                    f"A record is due {due_ms - now_ms} ms from now; "
                    f"delivery.delay.max.ms is {self._config.delivery_delay_max_ms}."
                )
        refusal = self.records.refusal(len(found.later)) if found.later else None
        if refusal is not None:
            raise DelayedLimitReached(f"No more records that are due later can be tracked: {refusal}.")
        return found

    def _due_times(self, batch: BatchHeader, view: memoryview, after_ms: int) -> DueTimes:
        config = self._config
        header = config.delivery_delay_header.encode()
        later = []
        undated = 0
        for offset_delta, value in due_values(batch, view, header, config.max_decompressed_bytes):
            due_ms = parse_due_ms(value)
            if due_ms is None:
                undated += 1
            elif due_ms > after_ms:
                later.append((offset_delta, due_ms))
        return DueTimes(later, undated)

    # --- folding in a written batch

    def fold_in(self, batch: BatchHeader, view: memoryview, due_times: DueTimes) -> None:
        """Track the delayed records of a batch that was written. A marker ends its transaction."""
        if batch.is_control:
            self._end_transaction(batch, view)
            return
        self._count_undated(due_times.undated)
        self._track(batch, due_times, from_offset=0)

    def replay(self, batch: BatchHeader, view: memoryview, now_ms: int, high_watermark: int) -> None:  # noqa: ARG002 - part of the port
        """Fold in a batch read from the log. Records that became due shortly before the load are still held for a while."""
        if batch.is_control:
            self._end_transaction(batch, view)
            return
        try:
            due_times = self._due_times(batch, view, self._loaded_at_ms - self._config.delivery_delay_hold_ms)
        except (InvalidRecord, UnsupportedCompressionType) as error:
            _logger.warning(
                "%s: the records from %d to %d can't be decoded, they are due at once: %s",
                self._place,
                batch.base_offset,
                batch.last_offset,
                error,
            )
            return
        self._count_undated(due_times.undated)
        self._track(batch, due_times, from_offset=self._log_start_offset)

    def _track(self, batch: BatchHeader, due_times: DueTimes, from_offset: int) -> None:
        transaction_of = batch.producer_id if batch.is_transactional else None
        for offset_delta, due_ms in due_times.later:
            if batch.base_offset + offset_delta >= from_offset:
                self.records.add(batch.base_offset + offset_delta, due_ms, transaction_of)

    def _count_undated(self, undated: int) -> None:
        if undated:
            self.undated_records += undated
            _logger.warning(
                "%s: the header %s of %d records of a batch holds no time in ms, these records are due at once",
                self._place,
                self._config.delivery_delay_header,
                undated,
            )

    def _end_transaction(self, batch: BatchHeader, view: memoryview) -> None:
        marker = read_end_marker(view)
        if marker is not None:
            self.records.end_transaction(batch.producer_id, commit=marker.is_commit)

    @property
    def kept_from(self) -> int:
        """The offset from which neither retention nor backlog expiry may remove records."""
        return self.records.held_from

    @property
    def next_due_ms(self) -> int:
        """The time at which the next record is due, or a little earlier; NEVER_DUE if no record waits."""
        return self.records.next_due_ms if len(self.records) else NEVER_DUE

    def discard_below(self, log_start_offset: int) -> None:
        """Forget the records before the new log start."""
        self._log_start_offset = log_start_offset
        self.records.discard_below(log_start_offset)

    # --- the side file

    def restore(self, log_start_offset: int, log_end_offset: int) -> int:
        """Load the side file. Return the offset to replay from. Raises OSError, IncompatibleFormat."""
        self._log_start_offset = log_start_offset
        snapshot = self._read_snapshot(log_end_offset)
        if snapshot is None:
            return log_start_offset
        waiting = (entry for entry in snapshot.entries if log_start_offset <= entry[1])
        self.records.restore(waiting, snapshot.holds)
        return max(log_start_offset, snapshot.covered_offset)

    def _read_snapshot(self, log_end_offset: int) -> DelayedSnapshot | None:
        if not self._storage.exists(self._path):
            return None
        try:
            snapshot = decode(self._storage.read_file(self._path), self._path)
        except CorruptDelayedSnapshot as error:
            _logger.warning("%s The log is read instead.", error)
            return None
        if snapshot.header_name != self._config.delivery_delay_header:
            return None
        if snapshot.covered_offset > log_end_offset:
            _logger.warning(
                "%s covers offsets up to %d, beyond the log end offset %d. The log is read instead.",
                self._path,
                snapshot.covered_offset,
                log_end_offset,
            )
            self.delete_file()
            return None
        return snapshot

    def delete_file(self) -> None:
        """Delete the side file, so that the next start replays the log; an error is only logged."""
        try:
            self._storage.delete(self._path)
        except OSError as error:
            _logger.warning("%s can't be deleted: %s", self._path, error)

    def unsaved_below(self, offset: int) -> bool:  # noqa: ARG002 - part of the port
        """Return False: a removed record no longer waits, so nothing of it must be saved."""
        return False

    def capture(self, covered_offset: int, log_end_offset: int) -> DelaysCapture | None:
        """Capture the records that wait below `covered_offset`, all decided; None when the last capture had the same."""
        entries = self.records.entries()
        if covered_offset < log_end_offset:
            entries = [entry for entry in entries if entry[1] < covered_offset]
        holds = self.records.holds()
        header = self._config.delivery_delay_header
        state = covered_offset, len(entries), hash((tuple(holds), header))
        if state == self._captured:
            return None
        self._captured = state
        snapshot = DelayedSnapshot(covered_offset, header, holds, entries)
        return DelaysCapture(self._file, self._path, snapshot)

    def close(self) -> None:
        """Release the waiting records' part of the limit, and write no more."""
        self.records.clear()
        self._file.close()


class DelaysCapture:
    """The records that waited at one moment. `write` may be called in any thread."""

    __slots__ = ("_file", "_number", "_path", "_snapshot")

    def __init__(self, file: SideFile, path: str, snapshot: DelayedSnapshot) -> None:
        """Create with the content of the file, and the number of this capture."""
        self._file = file
        self._path = path
        self._snapshot = snapshot
        self._number = file.next_number()

    def write(self, files: DurableFiles) -> None:
        """Persist the side file. An error is only logged: the next start replays more of the log."""
        try:
            self._file.write(self._number, lambda: files.replace(self._path, encode(self._snapshot)))
        except FileNotFoundError:
            raise
        except OSError as error:
            _logger.warning(
                "%s can't be written, the next start reads more of the log: %s", self._path, error
            )

    def saved(self) -> None:
        """Do nothing: no record waits for the side file."""
