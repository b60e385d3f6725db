"""Holds the states of a log that decode records: names and delays, if the topic's settings ask for them.

`RecordRules` judges the records of a batch: which are duplicates by producer name, and which are due later.
Topics that neither deduplicate nor delay have no record rules, and pay for one check. A duplicate record is
acknowledged and not stored. The batch's other records keep the offsets and sequences of the whole batch.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple, Protocol

from seqgate.log.config import LogConfig, LogPlace
from seqgate.log.durability.unflushed import SideFile, Unflushed
from seqgate.log.environment import LogEnvironment
from seqgate.log.errors import (
    CorruptRecord,
    DelayedLimitReached,
    NameFenced,
    NameLimitReached,
    NamesNotReady,
    NameUndecided,
    StorageFailed,
)
from seqgate.log.files.page_cache import NotCached
from seqgate.log.format.batch_validation import empty_batch, plain_records, rewritten_batch, stored_records
from seqgate.log.format.record_batch import NO_TIMESTAMP, BatchHeader, parse_header
from seqgate.log.log_lists import LogLists
from seqgate.log.segments.reader import SegmentList
from seqgate.log.state.delays import (
    NEVER_DUE,
    NOTHING_DUE_LATER,
    REPLAY_BYTES,
    DelayedRecords,
    Delays,
    DueTimes,
)
from seqgate.log.state.names import (
    NOT_KEPT,
    REPLAYED_RECORD_BYTES,
    DerivedState,
    Names,
    configured_headers,
    transaction_of,
)
from seqgate.log.state.transactions import Transactions
from seqgate.seq_validator.names import NameAdvance, NameRejectionReason, NamesRejected, NameState

_logger = logging.getLogger(__name__)

_ALL_BYTES: Final = 1 << 62
REPLAYED_AT_ONCE_BYTES: Final = 256 * 1024
"""Bytes of the log that one read of a replay for names takes; the next read continues after them."""


class RecordStates:
    """The names and delays of one log, None if the topic uses none, and the rules that judge by them."""

    __slots__ = (
        "_environment",
        "_lists",
        "_loaded_at_ms",
        "_log_reference",
        "_names_file",
        "_place",
        "_unflushed",
        "_unsaved_start",
        "delays",
        "names",
        "rules",
    )

    def __init__(
        self,
        environment: LogEnvironment,
        place: LogPlace,
        unflushed: Unflushed,
        lists: LogLists[Any],
        log: ReplayedLog,
    ) -> None:
        """Begin without names and delays; `begin` makes them if the topic's configuration asks for it."""
        self._environment = environment
        self._place = place
        self._unflushed = unflushed
        self._lists = lists
        # A strong reference would close a cycle. Only the garbage collector frees a cycle, and the gateway
        # hides open partitions' objects from it, so deleted partitions would never be freed.
        self._log_reference = weakref.ref(log)
        self._loaded_at_ms = 0
        self._names_file = SideFile()
        self._unsaved_start: int | None = None
        """The offset from which names were tracked when deduplication ended, if no flush had persisted it."""
        self.names: Names | None = None
        self.delays: Delays | None = None
        self.rules: RecordRules | None = None
        """The rules; None if the topic needs no decoding of records at append."""

    @property
    def _log(self) -> ReplayedLog:
        log = self._log_reference()
        assert log is not None, f"{self._place} was used after its log was freed"
        return log

    def begin(self, config: LogConfig, now_ms: int) -> None:
        """Make the states of a log that was just loaded or reopened. Raises OSError, StorageFailed."""
        self.close()
        self._loaded_at_ms = now_ms
        self._names_file = SideFile()
        self._unsaved_start = None
        if config.delivery_delay_header:
            self._begin_delaying(config)
        if config.deduplicates:
            self._begin_deduplicating(config)
        self._make_rules(config)

    def _make_rules(self, config: LogConfig) -> None:
        has_rules = self.names is not None or self.delays is not None
        self.rules = RecordRules(config, self.names, self.delays) if has_rules else None

    @property
    def all(self) -> list[DerivedState]:
        """The states that the topic uses, by their common port."""
        states: tuple[DerivedState | None, ...] = self.delays, self.names
        return [state for state in states if state is not None]

    @property
    def kept_from(self) -> int:
        return min((state.kept_from for state in self.all), default=NOT_KEPT)

    def unsaved_below(self, offset: int) -> bool:
        return any(state.unsaved_below(offset) for state in self.all)

    def discard_below(self, log_start_offset: int) -> None:
        for state in self.all:
            state.discard_below(log_start_offset)

    def close(self) -> None:
        """Drop all states, and stop flushes in flight from writing side files."""
        self._names_file.close()
        self._stop_delaying()
        self._stop_deduplicating()
        self.rules = None

    # --- changed settings

    def change(self, config: LogConfig, before: LogConfig) -> None:
        """Use other settings of the topic from now on. Raises OSError, StorageFailed, NotCached.

        A log may be loaded before its topic's settings are known. So if the topic delays records now and did
        not before, the log is replayed for delayed records. If the log could not be read then, the next call
        replays it. If deduplication ends, a snapshot keeps the names for when it begins again.
        """
        if self.delays is not None:
            self.delays.apply(config)
        header = config.delivery_delay_header
        if header != before.delivery_delay_header or (header and self.delays is None):
            self._stop_delaying()
            if header:
                self._begin_delaying(config)
        if self.names is None:
            if config.deduplicates:
                self._begin_deduplicating(config)
        elif not config.deduplicates:
            # Records that are deleted from now on are not replayed for names, so capture the names now.
            self._capture_all_names()
            self._stop_deduplicating()
        else:
            if configured_headers(config).names != self.names.header_names:
                # A replay would search for the new headers in records that have the old ones.
                self._capture_all_names()
            self.names.apply(config)
        self._make_rules(config)

    def alter_delays(self, config: LogConfig) -> None:
        environment = self._environment
        delays = self.delays or Delays(environment.storage, self._place, config, environment.delayed_limit, 0)
        # Close the side file first. Otherwise a flush in flight could bring that file back.
        self._stop_delaying()
        delays.delete_file()
        if config.delivery_delay_header:
            self._make_delays(config)
            self.capture_delays()
        self._make_rules(config)

    # --- judging a batch before it is written

    def judge(self, batch: BatchHeader, view: memoryview, now_ms: int, high_watermark: int) -> BatchFindings:
        """Return the rules' findings about a batch. Raises LogError, OSError.

        If the names are not fully replayed, replay one more slice first. If the limit of delayed records is
        reached, release the records that are due and judge again.
        """
        rules = self.rules
        assert rules is not None
        found = self._judge(rules, batch, view, now_ms, high_watermark)
        if found.wants_replay:
            if not self.replay_names(REPLAYED_AT_ONCE_BYTES, now_ms):
                raise NamesNotReady("The producer names of the partition are still being read from its log.")
            found = self._judge(rules, batch, view, now_ms, high_watermark)
        if found.refused is NameRejectionReason.FORGETTING:
            self._set_due(True)
        elif found.refused is NameRejectionReason.PARTIAL:
            self._lists.waiting_for_other_partitions[self._log] = None
        if found.refused is not None or found.raises_epochs:
            rules.settle(found, now_ms)
        if found.advances and self.names is not None and not self.names.is_start_safe:
            raise NamesNotReady(
                "The offset from which the partition tracks producer names is being persisted. Retry later."
            )
        return found

    def _judge(
        self, rules: RecordRules, batch: BatchHeader, view: memoryview, now_ms: int, high_watermark: int
    ) -> BatchFindings:
        try:
            return rules.judge(batch, view, now_ms, high_watermark)
        except DelayedLimitReached:
            if not self.release_due(now_ms):
                raise
            return rules.judge(batch, view, now_ms, high_watermark)

    # --- the tracked state

    @property
    def delayed(self) -> DelayedRecords | None:
        """The records that are not due, as of the last `release_due`; None if the topic delays no records."""
        return None if self.delays is None else self.delays.records

    @property
    def next_due_ms(self) -> int:
        """The time at which the next record is due, or a little earlier; NEVER_DUE if no record waits."""
        return NEVER_DUE if self.delays is None else self.delays.records.next_due_ms

    @property
    def names_ready(self) -> bool:
        """Whether the whole log was replayed for names, or the topic does not deduplicate."""
        return self.names is None or self.names.is_ready

    def name_state(self, name: bytes) -> NameState | None:
        """Return the state of a producer name; None for a name that is not tracked."""
        return None if self.names is None else self.names.table.state(name, self._log.high_watermark)

    def name_states(self) -> list[NameState]:
        """Return the states of all producer names, the longest idle first."""
        return [] if self.names is None else self.names.table.states(self._log.high_watermark)

    def has_idle_names(self, now_ms: int) -> bool:
        """Return whether `expire_names` would forget a name."""
        return self.names is not None and self.names.has_idle(now_ms)

    def expire_names(self, now_ms: int) -> int:
        """Forget names that are idle in all open partitions of the topic. Return the number of names."""
        return 0 if self.names is None else self.names.expire(now_ms)

    def note_whole_topic(self) -> None:
        """Record that the names of all partitions of the topic are known."""
        if self.names is not None:
            self.names.topic_names.is_whole = True

    # --- delays

    def release_due(self, now_ms: int) -> bool:
        """Release a bounded number of due records, the earliest first. Return whether any were due."""
        return self.delays is not None and self.delays.records.release(now_ms)

    def _make_delays(self, config: LogConfig) -> Delays:
        environment = self._environment
        self.delays = Delays(
            environment.storage, self._place, config, environment.delayed_limit, self._loaded_at_ms
        )
        self._lists.delaying[self._log] = None
        return self.delays

    def _begin_delaying(self, config: LogConfig) -> None:
        """Restore delayed records by side file and log. Raises OSError, StorageFailed, NotCached."""
        log, delays = self._log, self._make_delays(config)
        offset = delays.restore(log.log_start_offset, log.log_end_offset)
        try:
            for batch, view in log.segments.batches(
                offset, log.log_end_offset, REPLAY_BYTES, skips_damage=True
            ):
                delays.replay(batch, view, self._loaded_at_ms, log.high_watermark)
        except CorruptRecord as error:
            _logger.error(  # noqa: TRY400
                "%s: records after the damage are due at once: %s", self._place, error
            )
        except OSError as error:
            self._stop_delaying()
            raise StorageFailed(f"{self._place} can't be read: {error}") from error
        except NotCached:
            self._stop_delaying()
            raise
        self.capture_delays()

    def _stop_delaying(self) -> None:
        """Treat all waiting records as due, and hold no records."""
        if self.delays is not None:
            self.delays.close()
            self.delays = None
            self._lists.delaying.pop(self._log, None)

    def capture_delays(self) -> bool:
        """Capture the records that wait below the durable, decided offset. Return False if all are saved."""
        log = self._log
        stable = log.transactions.last_stable_offset(log.high_watermark, log.log_start_offset)
        return self._capture_delays(min(self._unflushed.durable_end_offset, stable))

    def _capture_delays(self, covered_offset: int) -> bool:
        capture = None
        if self.delays is not None:
            capture = self.delays.capture(covered_offset, self._log.log_end_offset)
        if capture is None:
            return False
        self._unflushed.add_capture(capture)
        return True

    # --- producer names

    def _begin_deduplicating(self, config: LogConfig) -> None:
        """Restore the newest snapshot; `replay_names` replays the log after it later. Raises OSError."""
        log, storage = self._log, self._environment.storage
        topic_names = self._environment.names_of(self._place.topic_id)
        names = Names(
            storage, self._place, config, topic_names, self._names_file, self._set_due, self._unsaved_start
        )
        with storage.may_wait():
            start_offset = names.restore(log.log_start_offset, log.log_end_offset)
        self.names = names
        self._lists.deduplicating[self._log] = None
        start = names.capture_start()
        if start is not None:
            self._unflushed.add_capture(start)
        names.begin_replay(start_offset, log.log_start_offset, log.log_end_offset, log.transactions)
        if self._unflushed.is_removing:
            # The log start is about to move. Replay the records before it while the log still has them.
            self.replay_names(_ALL_BYTES, self._loaded_at_ms)

    def _set_due(self, is_due: bool) -> None:
        if is_due:
            self._lists.due_for_snapshot[self._log] = None
        else:
            self._lists.due_for_snapshot.pop(self._log, None)

    def _stop_deduplicating(self) -> None:
        if self.names is not None:
            self._unsaved_start = self.names.unsaved_start
            self.names.close()
            self.names = None
        for listed in (
            self._lists.deduplicating,
            self._lists.due_for_snapshot,
            self._lists.waiting_for_other_partitions,
        ):
            listed.pop(self._log, None)

    def replay_names(self, max_bytes: int, now_ms: int) -> bool:
        """Replay about `max_bytes` more, at least a batch. Return whether the log is fully replayed. A record
        counts REPLAYED_RECORD_BYTES at least. Raises StorageFailed.
        """
        names, log = self.names, self._log
        if names is None or names.replay_offset is None:
            return True
        offset, end_offset = max(names.replay_offset, log.log_start_offset), log.log_end_offset
        try:
            with self._environment.storage.may_wait():
                chunk_bytes = min(max_bytes, REPLAYED_AT_ONCE_BYTES)
                for batch, view in log.segments.batches(offset, end_offset, chunk_bytes, skips_damage=False):
                    names.replay(batch, view, now_ms, log.high_watermark)
                    offset = batch.last_offset + 1
                    max_bytes -= max(batch.size_bytes, batch.record_count * REPLAYED_RECORD_BYTES)
                    if max_bytes <= 0:
                        break
                else:
                    offset = end_offset
        except (CorruptRecord, OSError) as error:
            raise StorageFailed(f"{self._place} can't be read: {error}") from error
        if offset >= end_offset:
            names.finish_replay(end_offset, log.transactions, log.high_watermark)
        return names.is_ready

    def capture_names(self) -> bool:
        """Capture the names for a flush. Return False if all are saved or not replayed. Raises OSError."""
        names = self.names
        if names is None:
            return False
        replaced = names.pending
        capture = names.capture(self._log.log_end_offset, self._log.log_end_offset)
        if capture is None:
            return False
        self._unflushed.add_capture(capture, replaced)
        return True

    def _capture_all_names(self) -> None:
        if self.names is not None and self.names.is_ready:
            self.names.changed = True
            self.capture_names()

    def capture_all(self) -> None:
        """Capture all states for a clean stop's flush, which persists the whole log first. Raises OSError."""
        self.capture_names()
        self._capture_delays(self._log.transactions.first_open_offset(self._log.log_end_offset))

    def capture_below(self, offset: int) -> None:
        """Capture unsaved names of records before `offset` for the next ticket. Captures again even if a
        capture is in flight: the new ticket must not complete before it. Raises OSError.
        """
        if self.names is not None and self.names.unsaved_below(offset):
            self.names.changed = True
            self.capture_names()


_REFUSALS: Final = {
    NameRejectionReason.FENCED: NameFenced,
    NameRejectionReason.UNDECIDED: NameUndecided,
    NameRejectionReason.LIMIT_REACHED: NameLimitReached,
    NameRejectionReason.FORGETTING: NamesNotReady,
    NameRejectionReason.PARTIAL: NamesNotReady,
}


class BatchFindings(NamedTuple):
    """The findings about a batch: the part to store, and what to fold in afterwards."""

    batch: BatchHeader
    view: memoryview
    advances: Sequence[NameAdvance] = ()
    """The highest new sequence id of each producer name in the batch."""
    duplicates: int = 0
    """The number of records that are not stored."""
    due_times: DueTimes = NOTHING_DUE_LATER
    wants_replay: bool = False
    """Whether the batch has producer names that can't be judged before the log is fully replayed."""
    refused: NameRejectionReason | None = None
    refusal: str = ""
    raises_epochs: bool = False
    """Whether the batch has a new name epoch, which must be durable before the answer, and duplicates."""
    is_dropped: bool = False
    """Whether all records of the batch are duplicates, so that nothing is stored."""
    answer_after: int = -1
    """The offset that must be durable before a dropped batch may be acknowledged."""


class RecordRules(NamedTuple):
    """The rules of one topic. Judging changes nothing."""

    config: LogConfig
    names: Names | None
    """The names to judge by; None if the topic uses none, as for the delays."""
    delays: Delays | None

    def judge(self, batch: BatchHeader, view: memoryview, now_ms: int, high_watermark: int) -> BatchFindings:
        """Return the findings about a batch: duplicates by producer name, and records due later. Raises
        InvalidRecord, UnsupportedCompressionType, DelayedLimitReached.
        """
        found = self._judge_names(batch, view, now_ms, high_watermark)
        is_stored = not (found.is_dropped or found.raises_epochs or found.wants_replay or found.refused)
        if self.delays is not None and is_stored:
            return found._replace(due_times=self.delays.judge(found.batch, found.view, now_ms))
        return found

    def _judge_names(
        self, batch: BatchHeader, view: memoryview, now_ms: int, high_watermark: int
    ) -> BatchFindings:
        names = self.names
        records = [] if names is None else names.records_of(batch, view)
        if names is None or not records:
            return BatchFindings(batch, view)
        if not names.is_ready:
            return BatchFindings(batch, view, wants_replay=True)
        verdict = names.table.judge(
            records, now_ms, high_watermark=high_watermark, transaction_of=transaction_of(batch)
        )
        if isinstance(verdict, NamesRejected):
            return BatchFindings(batch, view, refused=verdict.reason, refusal=verdict.message)
        advances, duplicates = verdict.advances, verdict.duplicates
        if not duplicates:
            return BatchFindings(batch, view, advances)
        if names.table.raises_epochs(advances):
            return BatchFindings(batch, view, advances, raises_epochs=True)
        if len(duplicates) == batch.record_count and batch.producer_id < 0:
            return BatchFindings(
                batch, view, advances, len(duplicates), is_dropped=True, answer_after=verdict.wait_for_offset
            )
        batch, view = _without(batch, view, set(duplicates), self.config)
        return BatchFindings(batch, view, advances, len(duplicates))

    def settle(self, found: BatchFindings, now_ms: int) -> None:
        """Count the duplicates of a batch that is not stored, or raise the LogError of its refusal."""
        names = self.names
        assert names is not None
        if found.refused is not None:
            raise _REFUSALS[found.refused](found.refusal)
        if found.raises_epochs:
            names.raise_epochs(found.advances)
            raise NamesNotReady(
                "The batch raises the epoch of a producer name and repeats stored records; the epoch is "
                "being persisted. Retry later."
            )
        names.touch(found.advances, found.duplicates, now_ms)

    def fold_in(
        self, found: BatchFindings, batch: BatchHeader, view: memoryview, now_ms: int, high_watermark: int
    ) -> None:
        if self.delays is not None:
            self.delays.fold_in(batch, view, found.due_times)
        if self.names is not None:
            self.names.fold_in(batch, view, found.advances, now_ms, high_watermark)
            self.names.topic_names.budget.dropped_records += found.duplicates


def _without(
    batch: BatchHeader, view: memoryview, duplicates: Collection[int], config: LogConfig
) -> tuple[BatchHeader, memoryview]:
    """Return the batch without the records at these deltas. Without any record it has no max_timestamp."""
    if len(duplicates) == batch.record_count:
        batch.max_timestamp = NO_TIMESTAMP
        rewritten = empty_batch(batch)
    else:
        plain = plain_records(batch, view, config.max_decompressed_bytes)
        first = batch.base_offset
        kept = [record for record in stored_records(batch, plain) if record.offset - first not in duplicates]
        rewritten = rewritten_batch(batch, plain, kept)
    return parse_header(rewritten), memoryview(rewritten)


# The port through which the states of a partition log read the log.


class ReplayedLog(Protocol):
    """The parts of a partition log that the states use."""

    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    transactions: Transactions
    segments: SegmentList
