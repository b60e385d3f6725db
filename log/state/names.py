"""A log's producer names: restored from a snapshot, replayed from the log, captured for flushes.

Retention, DeleteRecords or compaction may remove the only record that carries a name. So the log persists the
names before such a removal. `RecordRules` judges batches by these names.

The files: `<20 digits>.names` is a snapshot in the format of `seqgate.seq_validator`. The digits are the
log_end_offset of the snapshot. A snapshot is written only after all records below that offset are durable,
first under a temporary file name. So no crash leaves a snapshot that knows more than the log.
`deduplication-start-checkpoint` has the offset from which names are tracked, in the format of Kafka's offset
checkpoints. A log that began in a topic that deduplicates has this offset, 0, in `partition.metadata` too. A
crash keeps no record of a new log without that file, so the first named record need not wait for the
checkpoint.

`DerivedState` is the port by which a partition log drives its derived state: delayed records and producer
names. A state can be replayed from the batches, as long as the log has them. The log drives a state in one
order:

    restore, replay*          at a start: restore the newest sound side file, then replay the batches after it
    fold_in                   fold in each batch, after the log wrote it
    capture → flush → saved   the ticket that makes the data durable writes the side file after the data
    discard_below             the log start offset moved
    close

Judging a batch is not part of the port: `RecordRules` and `seqgate.seq_validator` judge, and change nothing.
A state sees batches and offsets, never segments, tickets or system calls. A new kind of state is one class,
and one row in `RecordStates.all`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from seqgate.log.config import LogConfig, LogPlace
from seqgate.log.durability.unflushed import Capture, SideFile, WriteOnly
from seqgate.log.errors import CorruptRecord, InvalidRecord, UnsupportedCompressionType
from seqgate.log.files.checkpoints import (
    CorruptCheckpoint,
    decode_offset,
    encode_offsets,
    tracks_names_from_start,
)
from seqgate.log.files.file_names import (
    DEDUPLICATION_START,
    NAMES_SUFFIX,
    PARTITION_METADATA,
    offset_name,
    offsets_of,
)
from seqgate.log.files.storage import DurableFiles, Storage
from seqgate.log.format.batch_validation import check_countable
from seqgate.log.format.named_records import NameHeaders, named_records
from seqgate.log.format.record_batch import TRANSACTIONAL_FLAG, BatchHeader, crc_matches
from seqgate.log.format.records import read_end_marker
from seqgate.log.state.transactions import Transactions
from seqgate.seq_validator.names import (
    NO_PRODUCER,
    CorruptNames,
    NameAdvance,
    NamedRecord,
    NameTable,
    TopicNames,
    WrittenName,
    advances_of,
    decode_names,
    encode_names,
)

_logger = logging.getLogger(__name__)

REPLAYED_RECORD_BYTES: Final = 100
"""The least bytes that a replayed record counts as: a small compressed one takes as long as a large one."""


class Names:
    """The producer names of one log of a topic that deduplicates. Calls `on_due(True)` when the log needs a
    replay or a snapshot, and `on_due(False)` when it does not.
    """

    @property
    def kept_from(self) -> int:
        """NOT_KEPT: names outlive their records."""
        return NOT_KEPT

    def __init__(
        self,
        storage: Storage,
        place: LogPlace,
        config: LogConfig,
        topic_names: TopicNames,
        file: SideFile,
        on_due: Callable[[bool], None],
        decided_start: int | None = None,
    ) -> None:
        """Begin without names. `file` guards the writes of the log's snapshots. `decided_start` is the offset
        from which names are tracked, if no flush has persisted that offset yet.
        """
        self.table = NameTable(topic_names)
        self.topic_names = topic_names
        self.replay_offset: int | None = None
        """The offset up to which the log was replayed; None when the whole log was."""
        self.changed = False
        """Whether names changed since the last capture."""
        self.has_gap = False
        """Whether unread records were deleted, so that only a snapshot by the next flush keeps the names."""
        self.unsaved_start: int | None = None
        """The offset from which names are tracked, while no side file holds that offset; otherwise None."""
        self._decided_start = decided_start
        self._start_is_implied = False
        """Whether the next start finds the offset from which names are tracked even without the side file."""
        self._storage = storage
        self._place = place
        self._file = file
        self._on_due = on_due
        self._changed_records = 0
        self._surplus_names = 0
        """The number of names evicted during a replay because of the limit."""
        self.unsaved_from: int | None = None
        """The offset from which names may be in no durable snapshot; None when all are saved."""
        self._saved_end = 0
        """The log end offset of the newest durable snapshot."""
        self.pending: NamesCapture | None = None
        """The newest capture, perhaps already taken by a ticket; None when that capture is durable."""
        self._saved_number = 0
        self.apply(config)

    def apply(self, config: LogConfig) -> None:
        """Use other settings of the topic from now on."""
        self._config = config
        self._headers = configured_headers(config)
        self.topic_names.max_names = config.deduplication_names_max

    @property
    def header_names(self) -> tuple[bytes, bytes, bytes]:
        """The record headers from which names are decoded now."""
        return self._headers.names

    # --- restoring names at a start

    def restore(self, log_start_offset: int, log_end_offset: int) -> int:
        """Load the newest snapshot. Return the offset to replay from. Raises OSError."""
        newest = newest_names(self._storage, self._place.directory, log_end_offset)
        start_offset = self._tracked_from(log_start_offset, log_end_offset, is_known=newest is not None)
        if newest is not None:
            self._saved_end = newest.log_end_offset
            self.table.restore(newest.names)
            start_offset = max(start_offset, newest.log_end_offset)
        return start_offset

    def _tracked_from(self, log_start_offset: int, log_end_offset: int, *, is_known: bool) -> int:
        """Return the offset from which names are tracked, decided when the log is first deduplicated."""
        storage, directory = self._storage, self._place.directory
        start_offset = read_start(storage, directory)
        path = f"{directory}/{PARTITION_METADATA}"
        if start_offset is None and storage.exists(path) and tracks_names_from_start(storage.read_file(path)):
            self._start_is_implied, self.unsaved_start = True, 0
            return 0
        if start_offset is None:
            start_offset, self.unsaved_start = self._decided_start, self._decided_start
        if start_offset is not None and start_offset <= log_end_offset:
            return start_offset
        self._start_is_implied = is_known or (
            start_offset is None and self._config.deduplication_from_log_start
        )
        start_offset = log_start_offset if self._start_is_implied else log_end_offset
        self.unsaved_start = start_offset
        return start_offset

    def begin_replay(
        self, start_offset: int, log_start_offset: int, log_end_offset: int, transactions: Transactions
    ) -> None:
        """Begin the replay where `restore` said, or at the log start. Removed records leave a gap."""
        if start_offset < log_start_offset:
            _logger.warning(
                "%s: the records from %d to %d were removed unread; producer names that only they carried "
                "are lost",
                self._place,
                start_offset,
                log_start_offset - 1,
            )
            self._forget_transactions(start_offset, transactions, log_end_offset)
            start_offset = log_start_offset
            self.changed = self.has_gap = True
        if start_offset < log_end_offset:
            self.replay_offset = self.unsaved_from = start_offset
        if self.replay_offset is not None or self.has_gap:
            self._on_due(True)

    def replay(self, batch: BatchHeader, view: memoryview, now_ms: int, high_watermark: int) -> None:
        """Fold in a batch read from the log. The names of a batch that can't be decoded are not tracked.
        Raises CorruptRecord for a damaged batch. Its names are unknown, so the log accepts no named records
        until `seqgate repair` removes the batch.
        """
        if not crc_matches(batch, view):
            raise CorruptRecord(f"The batch at offset {batch.base_offset} is damaged: its CRC is wrong.")
        self.replay_offset = batch.last_offset + 1
        if batch.is_control:
            self._end_transaction(batch, view, high_watermark)
            return
        try:
            check_countable(batch, self._config)
            limit = self._config.max_decompressed_bytes
            records = named_records(batch, view, self._headers, limit, is_strict=False)
        except (InvalidRecord, UnsupportedCompressionType) as error:
            _logger.warning(
                "%s: the records from %d to %d can't be decoded, their producer names are not tracked: %s",
                self._place,
                batch.base_offset,
                batch.last_offset,
                error,
            )
            return
        self.fold_advances(batch, advances_of(records), now_ms, high_watermark, is_replay=True)
        self._forget_surplus()

    def finish_replay(self, log_end_offset: int, transactions: Transactions, high_watermark: int) -> None:
        """End the replay, and abort transactions whose markers compaction may have removed meanwhile."""
        self.replay_offset = None
        self._forget_transactions(log_end_offset, transactions, high_watermark)
        if self._surplus_names:
            _logger.warning(
                "%s had more producer names than may be tracked; the %d longest idle ones are evicted",
                self._place,
                self._surplus_names,
            )
            self._surplus_names = 0
        if not self.has_gap:
            self._on_due(False)

    def _forget_surplus(self) -> None:
        """Evict the longest idle names beyond limit and slack: a replay may bring evicted names back."""
        config = self._config
        slack = config.deduplication_snapshot_records
        forgotten = self.table.forget_surplus(
            config.deduplication_names_max + slack, self.topic_names.budget.max_in_all + slack
        )
        if forgotten:
            self.changed = self.has_gap = True
            self._surplus_names += forgotten

    def _forget_transactions(self, end_offset: int, transactions: Transactions, high_watermark: int) -> None:
        """Abort the tracked transactions that are no longer open, as their outcome is unknown."""
        for producer_id in self.table.open_transactions():
            transaction = transactions.open_transaction(producer_id)
            if transaction is None or transaction.first_offset >= end_offset:
                _logger.warning(
                    "%s: the outcome of a transaction of producer %d is unknown; its producer names are not "
                    "tracked",
                    self._place,
                    producer_id,
                )
                self.table.end_transaction(
                    producer_id, commit=False, marker_offset=-1, high_watermark=high_watermark
                )

    # --- batches

    def records_of(self, batch: BatchHeader, view: memoryview) -> list[NamedRecord]:
        """Return a batch's records that carry a name. Raises InvalidRecord, UnsupportedCompressionType."""
        if batch.is_control:
            return []
        check_countable(batch, self._config)
        return named_records(batch, view, self._headers, self._config.max_decompressed_bytes)

    def fold_in(
        self,
        batch: BatchHeader,
        view: memoryview,
        advances: Sequence[NameAdvance],
        now_ms: int,
        high_watermark: int,
    ) -> None:
        """Fold in a batch that was written. A replay under way folds in the marker itself later."""
        if batch.is_control:
            if self.replay_offset is None:
                self._end_transaction(batch, view, high_watermark)
        elif advances:
            self.fold_advances(batch, advances, now_ms, high_watermark)

    def fold_advances(
        self,
        batch: BatchHeader,
        advances: Sequence[NameAdvance],
        now_ms: int,
        high_watermark: int,
        *,
        is_replay: bool = False,
    ) -> None:
        """Fold in the new sequence ids of a batch, by name."""
        self.table.update(
            advances,
            batch.base_offset,
            now_ms,
            high_watermark=high_watermark,
            transaction_of=transaction_of(batch),
            is_replay=is_replay,
        )
        self._note_change(batch)
        self._changed_records += batch.record_count
        if self._changed_records >= self._config.deduplication_snapshot_records:
            self._on_due(True)

    def raise_epochs(self, advances: Sequence[NameAdvance]) -> None:
        """Raise the name epochs of a batch with only duplicates. A snapshot with them is then due."""
        self.table.raise_epochs(advances)
        self.changed = True
        self._on_due(True)

    def touch(self, advances: Sequence[NameAdvance], duplicates: int, now_ms: int) -> None:
        """Count a batch that is not stored as activity of its names."""
        self.table.touch(advances, now_ms)
        self.topic_names.budget.dropped_records += duplicates
        self.changed = True

    def _end_transaction(self, batch: BatchHeader, view: memoryview, high_watermark: int) -> None:
        marker = read_end_marker(view)
        if marker is not None:
            self.table.end_transaction(
                batch.producer_id,
                commit=marker.is_commit,
                marker_offset=batch.base_offset,
                high_watermark=high_watermark,
            )
            self._note_change(batch)

    def _note_change(self, batch: BatchHeader) -> None:
        self.changed = True
        if self.unsaved_from is None:
            self.unsaved_from = batch.base_offset

    # --- the tracked names

    @property
    def is_ready(self) -> bool:
        """Whether the whole log was replayed, so that all names are known."""
        return self.replay_offset is None

    def has_idle(self, now_ms: int) -> bool:
        """Return whether `expire` would forget a name."""
        expiration_ms = self._config.deduplication_expiration_ms
        return self.is_ready and expiration_ms >= 0 and self.table.has_idle(now_ms, expiration_ms)

    def expire(self, now_ms: int) -> int:
        """Forget names that are idle in all open partitions of the topic. Return the number of names. A name
        is idle message.deduplication.expiration.ms after its last record.
        """
        if not self.has_idle(now_ms):
            return 0
        self.changed = True
        return self.table.expire(now_ms, self._config.deduplication_expiration_ms)

    # --- snapshots

    def unsaved_below(self, offset: int) -> bool:
        """Return whether a record before `offset` may have a name that is in no durable snapshot. A start
        does not read records before the log start, so it would forget such a name.
        """
        if self.unsaved_from is not None and self.unsaved_from < offset:
            return True
        # After a gap nobody knows whether a later marker ends a transaction of the snapshot or a newer one.
        return self._saved_end < offset and bool(self.table.open_transactions())

    def capture(self, covered_offset: int, log_end_offset: int) -> NamesCapture | None:  # noqa: ARG002
        """Capture all names, open transactions as such; None when nothing changed, or during a replay."""
        if not self.is_ready or not (self.changed or self.table.has_forgotten):
            return None
        self.changed = self.has_gap = False
        self._changed_records = 0
        self._on_due(False)
        names, times = self.table.written()
        self.pending = NamesCapture(self, names, times, log_end_offset, self._file.next_number())
        return self.pending

    def write(self, capture: NamesCapture, files: DurableFiles) -> None:
        """Persist a snapshot, all records of which are durable, and delete old ones. Two captures at one
        offset share a file name, so an older one must not overwrite a newer one. Raises OSError.
        """
        self._file.write(capture.number, lambda: self._replace(capture, files))

    def _replace(self, capture: NamesCapture, files: DurableFiles) -> None:
        storage, directory = self._storage, self._place.directory
        path = f"{directory}/{offset_name(capture.log_end_offset, NAMES_SUFFIX)}"
        files.replace(path, encode_names(capture.names, capture.log_end_offset))
        if storage.keeps_deleted:
            return
        offsets = offsets_of(storage.list_directory(directory), NAMES_SUFFIX)
        for offset in offsets[:-KEPT_SNAPSHOTS]:
            storage.delete(f"{directory}/{offset_name(offset, NAMES_SUFFIX)}")

    def saved(self, capture: NamesCapture) -> None:
        if capture.number <= self._saved_number:
            return
        self._saved_number = capture.number
        self._saved_end = max(self._saved_end, capture.log_end_offset)
        self.table.is_written(capture.times)
        is_all = not self.changed and capture is self.pending
        self.unsaved_from = None if is_all else capture.log_end_offset
        if capture is self.pending:
            self.pending = None

    def capture_start(self) -> Capture | None:
        """Capture the offset from which names are tracked for a flush; None if a side file holds it."""
        if self.unsaved_start is None:
            return None
        place, file = self._place, self._file
        path = f"{place.directory}/{DEDUPLICATION_START}"
        content = encode_offsets({(place.topic, place.partition): self.unsaved_start})
        return WriteOnly(
            lambda files: file.write_unnumbered(lambda: files.replace(path, content)), self._start_saved
        )

    def _start_saved(self) -> None:
        self.unsaved_start = None

    @property
    def is_start_safe(self) -> bool:
        """Whether the next start finds the offset from which names are tracked, also after a crash. Otherwise
        no named record may be written before a flush: a crash could lose only the offset.
        """
        return self.unsaved_start is None or self._start_is_implied

    def discard_below(self, log_start_offset: int) -> None:
        """Keep all names: names outlive their records."""

    def close(self) -> None:
        """Drop all names, and release their part of the budget."""
        self.table.clear()
        self.replay_offset = None


def configured_headers(config: LogConfig) -> NameHeaders:
    return NameHeaders(
        config.deduplication_name_header.encode(),
        config.deduplication_sequence_header.encode(),
        config.deduplication_epoch_header.encode(),
        config.deduplication_name_max_bytes,
    )


def transaction_of(batch: BatchHeader) -> int:
    """Return the producer id of a transactional batch, NO_PRODUCER for any other batch."""
    return batch.producer_id if batch.attributes & TRANSACTIONAL_FLAG else NO_PRODUCER


KEPT_SNAPSHOTS: Final = 2
"""Snapshots kept per partition; older ones are deleted when a new one is written."""


class NamesCapture(msgspec.Struct, frozen=True, eq=False):
    """The producer names when the log ended at `log_end_offset`. `write` may be called in any thread."""

    owner: Names
    names: list[WrittenName]
    times: int
    log_end_offset: int
    number: int

    def write(self, files: DurableFiles) -> None:
        self.owner.write(self, files)

    def saved(self) -> None:
        self.owner.saved(self)


class ReadNames(NamedTuple):
    """The content of a snapshot, taken when the log ended at `log_end_offset`."""

    names: list[WrittenName]
    log_end_offset: int


def newest_names(storage: Storage, directory: str, log_end_offset: int) -> ReadNames | None:
    """Return the newest sound snapshot of a log that ends at `log_end_offset`; None without one. A damaged
    snapshot is ignored: an older snapshot and a longer replay give the same names. Raises OSError.
    """
    offsets = offsets_of(storage.list_directory(directory), NAMES_SUFFIX)
    for offset in reversed(offsets):
        path = f"{directory}/{offset_name(offset, NAMES_SUFFIX)}"
        if offset > log_end_offset:
            continue
        try:
            names, belongs_to = decode_names(storage.read_file(path))
        except CorruptNames as error:
            _logger.warning("%s is not used: %s", path, error)
            continue
        if belongs_to == offset:
            return ReadNames(names, offset)
        _logger.warning("%s is not used: its content belongs to offset %d", path, belongs_to)
    return None


def read_start(storage: Storage, directory: str) -> int | None:
    """Return the offset from which names are tracked; None if the log never tracked names. Returns 0 for a
    damaged file: a replay of too many records does less harm than one of too few. Raises OSError.
    """
    path = f"{directory}/{DEDUPLICATION_START}"
    if not storage.exists(path):
        return None
    try:
        return decode_offset(storage.read_file(path), path)
    except CorruptCheckpoint as error:
        _logger.warning("%s Names are read from the start of the log.", error)
        return 0


NOT_KEPT = 2**63 - 1
"""The value of `kept_from` for a state that keeps no records."""


class DerivedState(Protocol):
    """State derived from a log's batches. `replay` and `fold_in` change the state in the same way."""

    def restore(self, log_start_offset: int, log_end_offset: int) -> int:
        """Load the newest sound side file. Return the offset to replay batches from. Raises OSError."""

    def replay(self, batch: BatchHeader, view: memoryview, now_ms: int, high_watermark: int) -> None:
        """Fold in a batch read from the log. Raises CorruptRecord."""

    @property
    def kept_from(self) -> int:
        """The offset from which neither retention nor backlog expiry may remove records, or NOT_KEPT."""

    def unsaved_below(self, offset: int) -> bool:
        """Return whether state from records before `offset` is in no durable side file."""

    def capture(self, covered_offset: int, log_end_offset: int) -> Capture | None:
        """Return the capture for the next ticket; None when nothing changed, or replay is not over. All
        records below `covered_offset` are decided, and durable when the ticket writes the capture.
        """

    def discard_below(self, log_start_offset: int) -> None:
        """Forget the state of records before the new log start offset."""

    def close(self) -> None:
        """Release the budgets that the state uses, and write no more side files."""
