"""Mistakes about producer names: which records count as duplicates, what is durable, and what a start
restores.
"""

from __future__ import annotations

from typing import Any

from seqgate.log import LocalDurability
from seqgate.log.files.file_names import NAMES_SUFFIX
from seqgate.log.format.named_records import named_records
from seqgate.log.recovery.load import _Loader
from seqgate.log.state import names as names_state
from seqgate.log.state.names import Names, ReadNames, newest_names
from seqgate.log.state.record_states import BatchFindings, RecordRules, RecordStates
from seqgate.seq_validator.entry import NO_OFFSET
from seqgate.seq_validator.names import NamedRecord, NameTable
from seqgate.seq_validator.names.entry import NameEntry
from seqgate.seq_validator.names.table import TopicNames
from tests.simulation.planted.fault import Change, fault_in


@fault_in("names and power")
def names_written_before_the_data() -> list[Change]:
    """the snapshot of names becomes durable before the records that it covers, and outlives their loss"""
    capture, drop = RecordStates.capture_names, _Loader.drop_snapshots_of_lost_batches

    def at_once(self: RecordStates) -> bool:
        is_captured = capture(self)
        if is_captured and self.names is not None and self.names.pending is not None:
            self.names.pending.write(LocalDurability(self._environment.storage))
        return is_captured

    def keep_names(self: _Loader) -> None:
        kept = {name: entry for name, entry in self.listing.files.items() if name.endswith(NAMES_SUFFIX)}
        for name in kept:
            del self.listing.files[name]
        drop(self)
        self.listing.files.update(kept)

    def newest(storage: Any, directory: str, log_end_offset: int) -> ReadNames | None:
        found = newest_names(storage, directory, 2**62)
        if found is None:
            return None
        return found._replace(log_end_offset=min(found.log_end_offset, log_end_offset))

    return [
        (RecordStates, "capture_names", at_once),
        (_Loader, "drop_snapshots_of_lost_batches", keep_names),
        (names_state, "newest_names", newest),
    ]


@fault_in("names and power")
def pushed_counts_as_persisted() -> list[Change]:
    """records that are written but not yet durable count as persisted"""
    return [
        (NameEntry, "persisted_sequence", lambda self, high_watermark: self.sequence_id),
        (NameEntry, "offset_to_wait_for", lambda *_: NO_OFFSET),
    ]


@fault_in("names")
def aborted_lines_count() -> list[Change]:
    """sequence ids of an aborted transaction count"""
    end_transaction = NameTable.end_transaction

    def commit_all(self: NameTable, producer_id: int, *, commit: bool, **about: Any) -> None:
        end_transaction(self, producer_id, commit=True, **about)

    return [(NameTable, "end_transaction", commit_all)]


@fault_in("names")
def open_lines_count() -> list[Change]:
    """sequence ids in an open transaction count at once"""
    update = NameTable.update

    def at_once(self: NameTable, *args: Any, transaction_of: int, **about: Any) -> None:
        update(self, *args, **about)

    return [(NameTable, "update", at_once)]


@fault_in("names")
def names_not_replayed() -> list[Change]:
    """a start loads the snapshot of names and does not replay the log behind it"""
    begin_replay = Names.begin_replay

    def snapshot_only(self: Names, *args: Any) -> None:
        begin_replay(self, *args)
        self.replay_offset = None

    return [(Names, "begin_replay", snapshot_only)]


@fault_in("names")
def nothing_left_of_duplicates() -> list[Change]:
    """an idempotent producer's batch of duplicates leaves no empty batch, so its next sequence is out of
    order
    """
    judge = RecordRules.judge

    def drop(self: RecordRules, *args: Any) -> BatchFindings:
        found = judge(self, *args)
        if found.duplicates and not found.batch.record_count:
            return found._replace(is_dropped=True)
        return found

    return [(RecordRules, "judge", drop)]


@fault_in("names")
def active_names_evicted() -> list[Change]:
    """only one name fits, so a name is evicted while its application is still running"""
    enter = TopicNames.enter

    def push_out(self: TopicNames, table: NameTable, name: bytes, now_ms: int, **about: Any) -> None:
        for other in [known for known in self._names if known != name]:
            for holder in list(self._names[other].tables):
                if not holder.is_pending(other):
                    holder.forget(other)
        enter(self, table, name, now_ms, **about)

    return [(TopicNames, "enter", push_out)]


@fault_in("names")
def names_gone_with_their_segments() -> list[Change]:
    """segments are removed before the names in them are in a snapshot, so a restart loses these names"""
    return [
        (RecordStates, "capture_below", lambda *_: None),
        (RecordStates, "capture_names", lambda _: False),
        (RecordStates, "unsaved_below", lambda *_: False),
    ]


@fault_in("names")
def duplicates_within_a_batch_only() -> list[Change]:
    """records are compared only with their own batch, and not with earlier ones"""
    judge = NameTable.judge

    def forgetful(self: NameTable, *args: Any, **about: Any) -> Any:
        entries, self._entries = self._entries, type(self._entries)()
        try:
            return judge(self, *args, **about)
        finally:
            self._entries = entries

    return [(NameTable, "judge", forgetful)]


@fault_in("names")
def partly_duplicate_batches_stored_whole() -> list[Change]:
    """a batch whose first records are duplicates is stored whole"""
    judge = NameTable.judge

    def lenient(self: NameTable, records: Any, *args: Any, **about: Any) -> Any:
        asked = list(records)
        verdict = judge(self, asked, *args, **about)
        duplicates = getattr(verdict, "duplicates", ())
        if duplicates and len(duplicates) < len(asked):
            duplicates.clear()
        return verdict

    return [(NameTable, "judge", lenient)]


@fault_in("names")
def old_name_epochs_accepted() -> list[Change]:
    """a fenced application with an older name epoch may still write"""

    def without_epochs(*args: Any, **about: Any) -> list[NamedRecord]:
        return [record._replace(epoch=-1) for record in named_records(*args, **about)]

    return [(names_state, "named_records", without_epochs)]


@fault_in("names")
def pending_names_accepted() -> list[Change]:
    """records are accepted although another producer's open transaction holds their name"""
    judge = NameTable.judge

    def blind(self: NameTable, *args: Any, transaction_of: int = -1, **about: Any) -> Any:
        held = {entry: dict(entry.open_sequences) for entry in self._entries.values()}
        for entry in held:
            for producer_id in list(entry.open_sequences):
                if producer_id != transaction_of:
                    del entry.open_sequences[producer_id]
        try:
            return judge(self, *args, transaction_of=transaction_of, **about)
        finally:
            for entry, before in held.items():
                entry.open_sequences.clear()
                entry.open_sequences.update(before)

    return [(NameTable, "judge", blind)]


@fault_in("names")
def markers_not_replayed() -> list[Change]:
    """the replay for names ignores the ends of transactions"""
    replay = Names.replay

    def data_only(self: Names, batch: Any, *args: Any) -> None:
        if batch.is_control:
            self.replay_offset = batch.last_offset + 1
        else:
            replay(self, batch, *args)

    return [(Names, "replay", data_only)]


@fault_in("names")
def changes_while_off_forgotten() -> list[Change]:
    """records written while deduplication was off are not read when it is turned on again"""
    change = RecordStates.change

    def no_replay(self: RecordStates, *args: Any) -> None:
        was_off = self.names is None
        change(self, *args)
        if was_off and self.names is not None:
            self.names.replay_offset = None

    return [(RecordStates, "change", no_replay)]


@fault_in("names and power", "names")
def epoch_of_duplicates_not_durable() -> list[Change]:
    """a newer name epoch that comes with duplicates only is acknowledged before it is durable"""

    def at_once(self: NameTable, advances: Any) -> bool:
        self.raise_epochs(advances)
        return False

    return [(NameTable, "raises_epochs", at_once)]
