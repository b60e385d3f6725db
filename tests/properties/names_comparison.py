"""Compares a deduplicating partition with the history of its batches: it must store and remember exactly
that.
"""

from __future__ import annotations

from collections import Counter

from seqgate.log import LogConfig
from seqgate.seq_validator.names import NameState
from tests.faults.directory_life import DirectoryLife
from tests.faults.simulated_disk import SimulatedDisk
from tests.properties.history_of_names import History, KnownName
from tests.properties.named_log_content import read_all, told


class ComparedNames(DirectoryLife):
    """Compares a partition, which another class operates, with the model."""

    topic_config: LogConfig

    def __init__(self, disk: SimulatedDisk) -> None:
        super().__init__(disk)
        self.history = History()
        self.active: dict[bytes, int] = {}
        """When each name was last active, as far as known since the partition was loaded."""
        self.counts: Counter[str] = Counter()
        self.has_forgiven = False
        self.is_damaged = False
        """Whether snapshots were lost, so that names may be missing in the next comparison."""
        self.gone_while_off: set[int] = set()
        """Base offsets of batches that were deleted before their names were read."""

    def compare(self) -> None:
        """Check that the log holds and remembers what the model says."""
        self._compare_content()
        log = self.log
        if log.record_states.names is not None and log.record_states.names_ready:
            self._compare_names()

    def _compare_content(self) -> None:
        log, history = self.log, self.history
        found = read_all(log)
        expected = [batch for batch in history.batches if batch.last_offset >= log.log_start_offset]
        if not self.topic_config.compact:
            assert found == [told(batch) for batch in expected], (
                "the log must hold exactly the records of the model"
            )
        else:
            records = {record for batch in expected for record in told(batch)[-1]}
            assert {record for batch in found for record in batch[-1]} <= records
        committed = history.committed(only_counted=True)
        assert len(committed) == len(set(committed)), "a record was stored twice"

    def _compare_names(self) -> None:
        states = {state.name: state for state in self.log.record_states.name_states()}
        promised = self.history.promised_epochs
        self.history.promised_epochs = {name: epoch for name, epoch in promised.items() if name in states}
        self.counts["known again"] += self.history.settle_forgotten(
            lambda name, known: self._complaint(states.get(name), known) is None
        )
        if self.is_damaged or self.gone_while_off:
            self._forgive(states)
            self.has_forgiven = True
        self._compare_activity(states)
        # names that only the lost snapshots had are gone; other losses look the same
        if not self.has_forgiven:
            expected = self.history.known()
            assert set(states) == set(expected), f"remembered {set(states)}, not {set(expected)}"
            for name, known in expected.items():
                complaint = self._complaint(states[name], known)
                assert complaint is None, f"{name!r} {complaint}"
        self.history.epochs = {name: state.epoch for name, state in states.items()}

    def _complaint(self, state: NameState | None, known: KnownName | None) -> str | None:
        """Return why the remembered state of a name is wrong."""
        if state is None or known is None:
            return None if state is known else "is forgotten" if state is None else "is remembered"
        if state.pushed_sequence != known.sequence_id:
            return f"is remembered up to {state.pushed_sequence}, not {known.sequence_id}"
        if state.is_pending != bool(known.open_sequences):
            return "is part of another transaction"
        lowest_epoch = max(self.history.promised_epochs.get(state.name, -1), known.epoch)
        highest_epoch = max(self.history.epochs.get(state.name, -1), known.epoch)
        if not lowest_epoch <= state.epoch <= highest_epoch:
            return f"has the epoch {state.epoch}, not {lowest_epoch} to {highest_epoch}"
        log = self.log
        if state.persisted_sequence > known.persisted(max(log.high_watermark, log.recovery_point)):
            return "is persisted too early"
        if log.high_watermark == log.log_end_offset and state.persisted_sequence != known.sequence_id:
            return "is persisted too late"
        return None

    def _compare_activity(self, states: dict[bytes, NameState]) -> None:
        for name, state in states.items():
            # After a start, a name's last activity comes from the log. A batch that had only duplicates was
            # not stored, so the log does not show its activity.
            assert state.last_active_ms == self.active.setdefault(name, state.last_active_ms)
            assert state.last_active_ms <= self.now_ms()

    def _forgive(self, states: dict[bytes, NameState]) -> None:
        """Remove from the model the names that the log was allowed to forget, and did, after their records
        were deleted.
        """
        history, names = self.history, self.log.record_states.names
        assert names is not None
        lies = {record[0] for batch in read_all(self.log) for record in batch[-1]}
        before = history.known()
        was = {id(batch): batch.items for batch in history.batches}
        for batch in history.batches:
            if self.is_damaged or batch.base_offset in self.gone_while_off:
                batch.items = [one for one in batch.items if one.offset in lies or not one.item.name]
        left = history.known()
        for name, known in before.items():
            state, entry = states.get(name), names.table._entries.get(name)
            if state is None or entry is None:
                continue
            assert state.pushed_sequence <= known.sequence_id
            rest = left.get(name)
            if rest is not None and (rest.sequence_id, rest.open_sequences) == (
                state.pushed_sequence,
                entry.open_sequences,
            ):
                continue
            # the log remembers names whose records it no longer has
            for batch in history.batches:
                is_open = batch.base_offset >= known.open_from(batch.producer_id)
                most = entry.open_sequences.get(batch.producer_id, -1) if is_open else state.pushed_sequence
                batch.items = [
                    one.of_epoch(name, state.epoch)
                    for one in was[id(batch)]
                    if one in batch.items or (one.item.name == name and one.item.sequence_id <= most)
                ]
        self.is_damaged = False
        self.gone_while_off.clear()
