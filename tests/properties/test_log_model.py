"""Random lives of a partition on a disk that may lose its power, compared with a list of promises."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from seqgate.log import OffsetOutOfRange, StorageFailed
from tests.faults.directory_life import new_disk, now_ms
from tests.faults.scenario import CONFIG, PRODUCERS, Life, check_producers, check_transactions, encode
from tests.faults.written import TRANSACTIONAL, read_all
from tests.log.support import delete_old_segments, delete_records

HOUR_MS = 3_600_000


class PartitionLife(RuleBasedStateMachine):
    """Each rule changes the log and the promises in the same way."""

    def __init__(self) -> None:
        super().__init__()
        self.leader_epoch = 0

    @initialize()
    def begin(self) -> None:
        self.life = Life(new_disk(), max_open_files=3)
        self.life.open()

    @rule(producer_id=st.integers(0, PRODUCERS - 1), count=st.integers(1, 6))
    def append(self, producer_id: int, count: int) -> None:
        self.life.append(producer_id, count, self.leader_epoch)

    @rule(producer_id=st.sampled_from(TRANSACTIONAL), count=st.integers(1, 3))
    def send(self, producer_id: int, count: int) -> None:
        self.life.send(producer_id, count, self.leader_epoch)

    @rule(producer_id=st.sampled_from(TRANSACTIONAL), commit=st.booleans())
    def end(self, producer_id: int, commit: bool) -> None:
        self.life.end(producer_id, commit=commit, leader_epoch=self.leader_epoch)

    @rule(producer_id=st.integers(0, PRODUCERS - 1), back=st.integers(1, 5))
    def retry(self, producer_id: int, back: int) -> None:
        sent = [batch for batch in self.life.promises.written if batch.producer_id == producer_id]
        if len(sent) >= back:
            original = sent[-back]
            info = self.life.log.append(
                encode(producer_id, original.base_sequence, original.values), now_ms=now_ms()
            )
            assert info.is_duplicate
            assert info.base_offset == original.base_offset

    @rule()
    def flush(self) -> None:
        self.life.flush()

    @rule()
    def roll(self) -> None:
        self.life.log.roll(now_ms())

    @rule()
    def lead_under_a_new_epoch(self) -> None:
        self.leader_epoch += 1

    @rule()
    def checkpoint(self) -> None:
        self.life.checkpoint()

    @rule(part=st.integers(0, 100))
    def delete_records(self, part: int) -> None:
        log = self.life.log
        self.life.delete_records(
            log.log_start_offset + (log.high_watermark - log.log_start_offset) * part // 100
        )

    @rule()
    def delete_more_than_is_committed(self) -> None:
        try:
            delete_records(self.life.log, self.life.log.high_watermark + 1)
        except OffsetOutOfRange:
            return
        raise AssertionError("records beyond the high watermark were deleted")

    @rule(kept=st.integers(0, 3000))
    def retain(self, kept: int) -> None:
        log = self.life.log
        config = log.config
        log.update_config(CONFIG.__class__(segment_bytes=700, index_interval_bytes=150, retention_bytes=kept))
        delete_old_segments(log, now_ms())
        log.update_config(config)
        promises = self.life.promises
        promises.log_start_offset = log.log_start_offset
        promises.asked_log_start_offset = max(promises.asked_log_start_offset, log.log_start_offset)

    @rule()
    def delete_files(self) -> None:
        self.life.clean_up()

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self.life.stop(clean=clean)
        self.life.open()
        assert self.life.directory is not None
        assert self.life.directory.was_clean == clean
        self.life.promises.durable_end_offset = self.life.log.log_end_offset

    @rule()
    def fail_and_reopen(self) -> None:
        self.life.log.go_offline("a test says so")
        try:
            self.life.append(0)
        except StorageFailed:
            self.life.promises.written.pop()
        self.life.reopen()
        self.life.promises.durable_end_offset = self.life.log.log_end_offset

    @rule(seed=st.integers(0, 10_000))
    def power_cut(self, seed: int) -> None:
        promises, disk = self.life.promises, self.life.disk
        disk.power_cut_by_seed(seed)
        self.life = Life(disk, promises, max_open_files=3)
        self.life.open()
        log = self.life.log
        assert log.log_end_offset >= promises.durable_end_offset
        assert promises.log_start_offset <= log.log_start_offset <= promises.asked_log_start_offset
        promises.cut(log.log_end_offset)
        promises.durable_end_offset = log.log_end_offset
        promises.log_start_offset = log.log_start_offset

    @invariant()
    def reads_what_was_written(self) -> None:
        log = self.life.log
        written = self.life.promises.written
        assert read_all(log) == [batch for batch in written if batch.end_offset > log.log_start_offset]
        assert log.log_end_offset == (written[-1].end_offset if written else log.log_start_offset)
        assert log.size_bytes == sum(
            size for path, size in self.life.disk.files(log.directory).items() if path.endswith(".log")
        )
        assert len(self.life.storage.descriptors) <= 3

    @invariant()
    def readers_of_committed_records_see_what_is_committed(self) -> None:
        check_transactions(self.life.log, self.life.promises.written)

    def teardown(self) -> None:
        check_producers(self.life.log, self.life.promises.written)


PartitionLife.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestPartitionLife = PartitionLife.TestCase
