"""Logs with random contents are compacted repeatedly; the newest value of each key stays the same."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from seqgate.log import LogConfig, PartitionLog, Storage
from seqgate.log.cleaning import cleanable
from seqgate.log.compaction.job import JobLimits
from seqgate.log.files.file_names import SNAPSHOT_SUFFIX
from seqgate.log.format.records import iterate_records
from seqgate.seq_validator import ProducerEntry
from tests.log.compaction.cleaning import LIMITS, Kept, compact, keyed, stored, stored_batches
from tests.log.support import NOW_MS, append_end_marker, flush, open_log

CONFIG = LogConfig(
    segment_bytes=2_000,
    index_interval_bytes=200,
    file_delete_delay_ms=0,
    delete_retention_ms=1_000,
    compact=True,
)
TINY_MAP = JobLimits(map_bytes=96, map_load_factor=1.0, read_bytes=256, bytes_per_s=0)
IDEMPOTENT = (1, 2)
TRANSACTIONAL = (11, 12)

keys = st.sampled_from(["a", "b", "c", "d", "e"])
values = st.none() | st.sampled_from(["1", "2", "x" * 40])


@dataclass(frozen=True)
class Send:
    producer_id: int
    records: list[tuple[str, str | None]]
    codec: str


@dataclass(frozen=True)
class End:
    producer_id: int
    commit: bool


@dataclass(frozen=True)
class Roll:
    pass


@dataclass(frozen=True)
class Clean:
    later_ms: int
    is_scanty: bool


sends = st.builds(
    Send,
    producer_id=st.sampled_from((-1, *IDEMPOTENT, *TRANSACTIONAL)),
    records=st.lists(st.tuples(keys, values), min_size=1, max_size=4),
    codec=st.sampled_from(["none", "none", "gzip", "zstd", "lz4", "snappy"]),
)
steps = st.lists(
    st.one_of(
        sends,
        sends,
        sends,
        st.builds(End, producer_id=st.sampled_from(TRANSACTIONAL), commit=st.booleans()),
        st.just(Roll()),
        st.builds(Clean, later_ms=st.sampled_from([0, 400, 2_000]), is_scanty=st.booleans()),
    ),
    min_size=5,
    max_size=40,
)


class Life:
    """A log and everything that was ever written to it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.storage = Storage()
        self.log = open_log(directory, CONFIG, storage=self.storage)
        self.now_ms = NOW_MS
        self.written: list[tuple[Kept, int]] = []
        """Each record, and the producer id of its transaction, or −1."""
        self.outcomes: dict[int, bool] = {}
        """The outcome by the offset of a transactional record; missing while undecided."""
        self.open: dict[int, list[int]] = {}
        self.sequences: dict[int, int] = {}
        self.clean_end_offset: int | None = None

    def send(self, step: Send) -> None:
        producer_id = step.producer_id
        sequence = self.sequences.get(producer_id, 0) if producer_id >= 0 else -1
        is_transactional = producer_id in TRANSACTIONAL
        data = keyed(
            *step.records,
            timestamp=self.now_ms,
            producer_id=producer_id,
            base_sequence=sequence,
            codec=step.codec,
            is_transactional=is_transactional,
        )
        base_offset = self.log.append(data, now_ms=self.now_ms, leader_epoch=1).base_offset
        self.sequences[producer_id] = sequence + len(step.records)
        for number, (key, value) in enumerate(step.records):
            kept = Kept(base_offset + number, key.encode(), None if value is None else value.encode())
            self.written.append((kept, producer_id if is_transactional else -1))
            if is_transactional:
                self.open.setdefault(producer_id, []).append(kept.offset)

    def end(self, step: End) -> None:
        append_end_marker(
            self.log,
            step.producer_id,
            0,
            commit=step.commit,
            coordinator_epoch=0,
            now_ms=self.now_ms,
            leader_epoch=1,
        )
        for offset in self.open.pop(step.producer_id, []):
            self.outcomes[offset] = step.commit

    def clean(self, step: Clean) -> None:
        flush(self.log)
        self.now_ms += step.later_ms
        limits = TINY_MAP if step.is_scanty else LIMITS
        found = cleanable(self.log, self.clean_end_offset, self.log.recovery_point, self.now_ms)
        if found.dirty_bytes:
            finished = compact(
                self.log,
                self.storage,
                clean_end_offset=self.clean_end_offset,
                now_ms=self.now_ms,
                limits=limits,
            )
            assert finished.clean_end_offset > found.first_dirty_offset
            self.clean_end_offset = finished.clean_end_offset

    # --- properties that must hold

    def committed(self) -> list[Kept]:
        """Return all written records that count, or that may still count."""
        return [
            kept
            for kept, producer_id in self.written
            if producer_id < 0 or self.outcomes.get(kept.offset) is not False
        ]

    def check(self) -> None:
        log = self.log
        found = stored(log)
        offsets = [kept.offset for kept in found]
        assert offsets == sorted(set(offsets))
        everything = {kept.offset: kept for kept, _ in self.written}
        assert all(everything[kept.offset] == kept for kept in found)
        counted = [kept for kept in found if self.outcomes.get(kept.offset) is not False]
        assert table(counted) == table(self.committed())
        clean_end = self.clean_end_offset or 0
        clean = [kept.key for kept in counted if kept.offset < clean_end]
        assert len(clean) == len(set(clean)), "an older value of a key stayed"
        assert not any(self.outcomes.get(offset) is False for offset in offsets if offset < clean_end)
        dirty = [kept for kept in self.committed() if kept.offset >= clean_end]
        assert [kept for kept in counted if kept.offset >= clean_end] == dirty
        self.check_batches()
        self.check_aborted()

    def check_batches(self) -> None:
        for header, data in stored_batches(self.log):
            assert header.partition_leader_epoch == 1
            deltas = [record.offset - header.base_offset for record in iterate_records(data)]
            assert len(deltas) == header.record_count
            assert all(0 <= delta <= header.last_offset_delta for delta in deltas)
            for record in iterate_records(data):
                assert NOW_MS <= record.timestamp <= header.max_timestamp <= self.now_ms + 4

    def check_aborted(self) -> None:
        """Check that a reader of committed records learns of every aborted transaction that still has
        records.
        """
        log = self.log
        aborted = set(log.segments.aborted_between(0, log.log_end_offset))
        producers = {producer_id for producer_id, _ in aborted}
        for kept in stored(log):
            if self.outcomes.get(kept.offset) is False:
                (producer_id,) = {owner for one, owner in self.written if one.offset == kept.offset}
                assert producer_id in producers
                assert any(first <= kept.offset for owner, first in aborted if owner == producer_id)


def table(records: list[Kept]) -> dict[bytes | None, bytes]:
    """Return the newest value of each key; a key whose newest record is a tombstone has no value."""
    found: dict[bytes | None, bytes] = {}
    for kept in records:
        if kept.value is None:
            found.pop(kept.key, None)
        else:
            found[kept.key] = kept.value
    return found


@contextmanager
def life() -> Iterator[Life]:
    root = Path(tempfile.mkdtemp())
    try:
        yield Life(root / "flights-0")
    finally:
        shutil.rmtree(root)


def states(log: PartitionLog, *, batches: int) -> dict[int, tuple[object, ...]]:
    def state(entry: ProducerEntry) -> tuple[object, ...]:
        return (
            entry.producer_epoch,
            entry.next_sequence,
            entry.last_offset,
            entry.current_transaction_first_offset,
            list(entry.batches)[-batches:],
        )

    return {entry.producer_id: state(entry) for entry in log.producers}


@settings(max_examples=40, deadline=None)
@given(steps)
def test_a_cleaned_log_says_what_the_dirty_one_said(story: list[Send | End | Roll | Clean]) -> None:
    with life() as lived:
        for step in [*story, Roll(), Clean(0, False), Clean(5_000, False)]:
            if isinstance(step, Send):
                lived.send(step)
            elif isinstance(step, End):
                lived.end(step)
            elif isinstance(step, Roll):
                lived.log.roll(lived.now_ms)
            else:
                lived.clean(step)
                lived.check()
        flush(lived.log)
        before, batches = stored(lived.log), [data for _, data in stored_batches(lived.log)]
        producers = states(lived.log, batches=5)
        end_offset = lived.log.log_end_offset
        lived.log.close(clean=False)
        again = open_log(lived.directory, CONFIG, recovery_point=end_offset)
        assert (stored(again), again.log_end_offset) == (before, end_offset)
        assert states(again, batches=5) == producers
        again.close(clean=False)
        for snapshot in lived.directory.glob(f"*{SNAPSHOT_SUFFIX}"):
            snapshot.unlink()
        rebuilt = open_log(lived.directory, CONFIG, recovery_point=end_offset)
        assert [data for _, data in stored_batches(rebuilt)] == batches
        # the last batch of each producer stays in the log, even if it has no records left
        assert_same_sequences(states(rebuilt, batches=1), states_of_last(producers))
        rebuilt.close(clean=False)


def states_of_last(producers: dict[int, tuple[object, ...]]) -> dict[int, tuple[object, ...]]:
    last = {}
    for producer_id, (*rest, batches) in producers.items():
        assert isinstance(batches, list)
        last[producer_id] = (*rest, batches[-1:])
    return last


def assert_same_sequences(
    rebuilt: dict[int, tuple[object, ...]], known: dict[int, tuple[object, ...]]
) -> None:
    assert rebuilt.keys() == known.keys()
    for producer_id, state in known.items():
        # the first offset of an open transaction is still in the log; its timestamp may be that of an earlier
        # kept record
        assert rebuilt[producer_id][:4] == state[:4]
