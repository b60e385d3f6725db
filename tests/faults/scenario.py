"""The life of a partition in one run, the promises it gets, and the check that they hold."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from seqgate.log import LogConfig, PartitionLog, retention
from seqgate.log.format.records import NewRecord, build_batch
from tests.faults.directory_life import DirectoryLife, now_ms
from tests.faults.simulated_disk import SimulatedDisk
from tests.faults.written import COORDINATOR_EPOCH, Transactions, Written, committed_values, read_all
from tests.log.support import append_end_marker, delete_due, delete_records

TOPIC = "flights"
TOPIC_ID = uuid.UUID(int=77)
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150, retention_ms=-1, file_delete_delay_ms=0)
PRODUCERS = 3


@dataclass
class Promises:
    """The promises of a log to its caller. Offsets are exclusive."""

    written: list[Written] = field(default_factory=list)
    durable_end_offset: int = 0
    log_start_offset: int = 0
    asked_log_start_offset: int = 0
    sequences: dict[int, int] = field(default_factory=dict)

    def cut(self, log_end_offset: int) -> None:
        """Note that the log was cut at this offset: later batches no longer count, nor does their producer
        state.
        """
        self.written = [batch for batch in self.written if batch.end_offset <= log_end_offset]
        for producer_id in range(PRODUCERS):
            kept = [batch for batch in self.written if batch.producer_id == producer_id]
            last = kept[-1] if kept else None
            self.sequences[producer_id] = last.base_sequence + len(last.values) if last else 0

    def copy(self) -> Promises:
        return replace(self, written=list(self.written), sequences=dict(self.sequences))


LATER_MS = 1 << 43
"""A time at which every segment is old enough to remove, even one without a timestamp."""


class Life(DirectoryLife):
    """Drives a log directory; every step records what the log promises."""

    topic, topic_id, config = TOPIC, TOPIC_ID, CONFIG

    def __init__(
        self, disk: SimulatedDisk, promises: Promises | None = None, max_open_files: int = 512
    ) -> None:
        super().__init__(disk, max_open_files)
        self.promises = promises or Promises()

    def append(self, producer_id: int, count: int = 1, leader_epoch: int = 0) -> None:
        promises = self.promises
        sequence = promises.sequences.get(producer_id, 0)
        values = [f"p{producer_id}-{sequence + index:05d}".encode().ljust(40, b".") for index in range(count)]
        batch = encode(producer_id, sequence, values)
        base_offset = self.log.log_end_offset
        written = Written(base_offset, producer_id, sequence, values)
        # Even a failed append may have reached the disk completely.
        promises.written.append(written)
        info = self.log.append(batch, now_ms=now_ms(), leader_epoch=leader_epoch)
        assert info.base_offset == base_offset
        assert not info.is_duplicate
        promises.sequences[producer_id] = sequence + count

    def send(self, producer_id: int, count: int = 1, leader_epoch: int = 0) -> None:
        """Append to the producer's open transaction; begin one if none is open."""
        known = Transactions(self.promises.written).states[producer_id]
        sequence = known.next_sequence
        values = [f"t{producer_id}-{sequence + index:05d}".encode().ljust(40, b".") for index in range(count)]
        data = encode(
            producer_id, sequence, values, producer_epoch=known.producer_epoch, is_transactional=True
        )
        written = Written(
            self.log.log_end_offset,
            producer_id,
            sequence,
            values,
            known.producer_epoch,
            is_transactional=True,
        )
        self.promises.written.append(written)
        info = self.log.append(data, now_ms=now_ms(), leader_epoch=leader_epoch)
        assert (info.base_offset, info.is_duplicate) == (written.base_offset, False)

    def end(self, producer_id: int, *, commit: bool, leader_epoch: int = 0) -> None:
        """Append a marker, even if no transaction is open."""
        known = Transactions(self.promises.written).states[producer_id]
        producer_epoch = known.producer_epoch + producer_id % 2
        values = [struct.pack(">hi", 0, COORDINATOR_EPOCH)]
        self.promises.written.append(
            Written(
                self.log.log_end_offset,
                producer_id,
                -1,
                values,
                producer_epoch,
                is_transactional=True,
                marker=commit,
            )
        )
        append_end_marker(
            self.log,
            producer_id,
            producer_epoch,
            commit=commit,
            coordinator_epoch=COORDINATOR_EPOCH,
            now_ms=now_ms(),
            leader_epoch=leader_epoch,
        )

    def flush(self) -> None:
        ticket = self.log.prepare_flush()
        if ticket is not None:
            self.run_flush(ticket)
            self._note_durable()

    def _note_durable(self) -> None:
        self.promises.durable_end_offset = max(self.promises.durable_end_offset, self.log.recovery_point)

    def delete_records(self, offset: int) -> None:
        asked = self.log.high_watermark if offset == -1 else offset
        self.promises.asked_log_start_offset = max(self.promises.asked_log_start_offset, asked)
        self.promises.log_start_offset = delete_records(self.log, offset, now_ms())

    def retain(self=False, **limits: int) -> None:
        """Remove all segments beyond `limits`, as the retention job does."""
        log = self.log
        log.update_config(replace(CONFIG, **limits))
        try:
            doomed = retention.decide_retention(log, LATER_MS).doomed
            assert doomed, "nothing to remove"
            asked = doomed[-1][0].end_offset
            self.promises.asked_log_start_offset = max(self.promises.asked_log_start_offset, asked)
            ticket = retention.prepare_retention(log, LATER_MS)
            if ticket is not None:
                self.run_retention(ticket)
                self._note_durable()
        finally:
            log.update_config(CONFIG)
        self.promises.log_start_offset = log.log_start_offset

    def roll_by_time(self) -> None:
        log = self.log
        log.update_config(replace(CONFIG, segment_ms=10))
        try:
            is_rolled = retention.roll_by_time(log, log.segments.active.time_to_roll_ms(log.config, LATER_MS))
            assert is_rolled or log.segments.active.base_offset == log.log_end_offset
        finally:
            log.update_config(CONFIG)

    def checkpoint(self) -> None:
        assert self.directory is not None
        self.directory.checkpoint()

    def clean_up(self) -> None:
        assert self.directory is not None
        delete_due(self.directory.environment, now_ms() + 10_000_000)

    def stop(self, *, clean: bool = True) -> None:
        assert self.directory is not None
        if clean:
            self.flush()
        self.directory.close(clean=clean)
        self.directory = None

    def reopen(self) -> None:
        """Reopen the partition after a failure; promises about truncated batches are dropped."""
        self.log.reopen(now_ms())
        self.promises.cut(self.log.log_end_offset)


def steps(life: Life) -> list[Callable[[], object]]:
    """Return the steps of the life: three producers, rolled segments, flushes, a new leader epoch, deletions,
    clean stops and starts.
    """

    def some(*producers: int, leader_epoch: int = 0) -> list[Callable[[], object]]:
        return [
            lambda p=producer, n=number: life.append(p, 1 + n % 2, leader_epoch)
            for number, producer in enumerate(producers)
        ]

    first = some(0, 1, 2, 0, 1)
    return [
        life.open,
        *first[:2],
        life.flush,
        *first[2:],
        lambda: life.send(10),
        lambda: life.send(11, 2),
        life.flush,
        *some(0, 0, 1, 2),
        lambda: life.end(10, commit=False),
        lambda: life.log.roll(now_ms()),
        lambda: life.send(12),
        *some(2, 1),
        lambda: life.end(11, commit=False),
        life.flush,
        life.checkpoint,
        *some(0, 1, 2, 0, 1, 0, 0, 1, leader_epoch=3),
        lambda: life.send(11, leader_epoch=3),
        lambda: life.send(10, leader_epoch=3),
        life.flush,
        lambda: life.delete_records(9),
        lambda: life.end(12, commit=False, leader_epoch=3),
        lambda: life.end(10, commit=True, leader_epoch=3),
        *some(0, 1, leader_epoch=3),
        life.clean_up,
        lambda: life.log.roll(now_ms()),
        life.flush,
        lambda: life.delete_records(-1),
        life.clean_up,
        *some(1, 2, leader_epoch=3),
        lambda: life.send(12, leader_epoch=3),
        life.stop,
        life.open,
        lambda: life.end(11, commit=False, leader_epoch=4),
        *some(0, 0, 0, 1, 2, 0, leader_epoch=4),
        life.flush,
        lambda: life.send(10, leader_epoch=4),
        *some(1, 2, 2, leader_epoch=4),
        life.stop,
    ]


def encode(
    producer_id: int,
    sequence: int,
    values: list[bytes],
    *,
    producer_epoch: int = 0,
    is_transactional: bool = False,
) -> bytes:
    return build_batch(
        [NewRecord(value, timestamp=1_000 + sequence) for value in values],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


def check(log: PartitionLog, promises: Promises) -> None:
    """Check that no promised record is lost, duplicated or misplaced, and that every producer can continue."""
    assert log.log_end_offset >= promises.durable_end_offset
    assert promises.log_start_offset <= log.log_start_offset <= promises.asked_log_start_offset
    kept = [batch for batch in promises.written if batch.end_offset <= log.log_end_offset]
    assert [batch for batch in kept if batch.end_offset > log.log_start_offset] == read_all(log)
    if kept:
        assert kept[-1].end_offset == log.log_end_offset
    check_producers(log, kept)
    check_transactions(log, kept)


def check_producers(log: PartitionLog, kept: list[Written]) -> None:
    for producer_id in range(PRODUCERS):
        batches = [batch for batch in kept if batch.producer_id == producer_id]
        entry = log.producers.get(producer_id)
        if not batches:
            assert entry is None
            continue
        assert entry is not None, f"producer {producer_id} is forgotten"
        expected = [(batch.base_sequence, batch.base_offset, batch.end_offset - 1) for batch in batches[-5:]]
        assert [
            (batch.base_sequence, batch.base_offset, batch.last_offset) for batch in entry.batches
        ] == expected
        end_offset = log.log_end_offset
        for batch in batches[-5:]:
            again = log.append(
                encode(producer_id, batch.base_sequence, batch.values), now_ms=now_ms(), leader_epoch=9
            )
            assert again.is_duplicate
            assert again.base_offset == batch.base_offset
        assert log.log_end_offset == end_offset


def check_transactions(log: PartitionLog, kept: list[Written]) -> None:
    """Check that the open transactions and the committed records agree with the batches."""
    transactions = Transactions(kept)
    assert dict(log.transactions.open_transactions()) == {
        producer_id: (state.producer_epoch, state.first_offset)
        for producer_id, state in transactions.states.items()
        if state.first_offset is not None
    }
    for producer_id, state in transactions.states.items():
        entry = log.producers.get(producer_id)
        assert (entry is not None) == (state.batches > 0)
        if entry is not None:
            assert (entry.producer_epoch, entry.next_sequence) == (state.producer_epoch, state.next_sequence)
    assert log.last_stable_offset == transactions.last_stable_offset(log.log_start_offset, log.high_watermark)
    for offset in {log.log_start_offset, (log.log_start_offset + log.log_end_offset) // 2}:
        assert committed_values(log, offset) == transactions.committed(offset, log.last_stable_offset)
