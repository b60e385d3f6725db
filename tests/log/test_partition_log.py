from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from seqgate.log import CorruptRecord, InvalidProducerEpoch, LogConfig, OffsetOutOfRange, PartitionLog
from seqgate.log.environment import LogEnvironment
from seqgate.log.errors import DerivedProducer, OutOfOrderSequence, ProducerLimitReached, StorageFailed
from seqgate.log.segments.indexes import SegmentIndexes
from seqgate.log.segments.segment import Segment
from seqgate.seq_validator import FIRST_DERIVED_ID, ProducerLimit
from tests.log.support import (
    NOW_MS,
    SMALL,
    batch,
    delete_due,
    delete_old_segments,
    delete_records,
    fill,
    flush,
    offsets_read,
    open_log,
    persist,
    read_log,
)
from tests.support.batches import Batch, read_batches

HOUR_MS = 3_600_000


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return open_log(tmp_path / "log")


class TestAppend:
    def test_assigns_dense_offsets(self, log: PartitionLog) -> None:
        infos = [log.append(batch(count), now_ms=NOW_MS) for count in (1, 3, 2)]
        assert [(info.base_offset, info.last_offset) for info in infos] == [(0, 0), (1, 3), (4, 5)]
        assert log.log_end_offset == 6
        assert log.high_watermark == 0

    def test_body_is_stored_untouched_with_the_leader_epoch(self, log: PartitionLog) -> None:
        data = batch(5, codec="zstd")
        log.append(batch(), now_ms=NOW_MS)
        log.append(data, now_ms=NOW_MS, leader_epoch=3)
        stored = read_log(log, 1, 9999, upper_bound=6)
        (view,), _ = read_batches(stored)
        assert (view.base_offset, view.partition_leader_epoch, view.crc_is_right) == (1, 3, True)
        assert stored[16:] == data[16:]
        assert log.epochs.end_offset(0, log.log_end_offset) == (0, 1)

    def test_trailing_cut_batch_is_not_stored(self, log: PartitionLog) -> None:
        log.append(batch() + batch()[:-1], now_ms=NOW_MS)
        assert log.size_bytes == len(batch())

    def test_refused_batch_changes_nothing(self, log: PartitionLog) -> None:
        with pytest.raises(CorruptRecord):
            log.append(Batch(crc=1).encode(), now_ms=NOW_MS)
        assert (log.log_end_offset, log.size_bytes, log.offline) == (0, 0, False)

    def test_log_append_time(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", replace(SMALL, message_timestamp_type="LogAppendTime"))
        info = log.append(batch(2, timestamp=5), now_ms=NOW_MS)
        assert info.log_append_time_ms == NOW_MS
        (view,), _ = read_batches(read_log(log, 0, 9999, upper_bound=2))
        assert (view.max_timestamp, view.attributes & 0x08, view.crc_is_right) == (NOW_MS, 0x08, True)

    def test_deep_validation_stores_the_true_max_timestamp(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", replace(SMALL, deep_validation=True))
        log.append(Batch(base_timestamp=NOW_MS, max_timestamp=NOW_MS + 77).encode(), now_ms=NOW_MS)
        (view,), _ = read_batches(read_log(log, 0, 9999, upper_bound=1))
        assert (view.max_timestamp, view.crc_is_right) == (NOW_MS, True)


class TestProducers:
    def test_duplicate_is_answered_with_the_original(self, log: PartitionLog) -> None:
        fill(log, 3)
        first = log.append(batch(2, producer_id=9, base_sequence=0), now_ms=NOW_MS)
        log.append(batch(2, producer_id=9, base_sequence=2), now_ms=NOW_MS)
        again = log.append(batch(2, producer_id=9, base_sequence=0), now_ms=NOW_MS)
        assert again.is_duplicate
        assert again[:2] == first[:2]
        assert log.log_end_offset == 7

    def test_gap_and_old_epoch_are_refused(self, log: PartitionLog) -> None:
        log.append(batch(producer_id=9, base_sequence=0, producer_epoch=2), now_ms=NOW_MS)
        with pytest.raises(OutOfOrderSequence):
            log.append(batch(producer_id=9, base_sequence=5, producer_epoch=2), now_ms=NOW_MS)
        with pytest.raises(InvalidProducerEpoch):
            log.append(batch(producer_id=9, base_sequence=1, producer_epoch=1), now_ms=NOW_MS)
        assert log.log_end_offset == 1

    def test_only_gateways_write_with_derived_ids_to_a_topic_of_dead_letters(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", LogConfig(has_dead_letters=True))
        derived = batch(producer_id=FIRST_DERIVED_ID, base_sequence=0)
        with pytest.raises(DerivedProducer):
            log.append(derived, now_ms=NOW_MS)
        assert log.append(derived, now_ms=NOW_MS, may_derive=True).base_offset == 0
        for later in ({"base_sequence": 0}, {"base_sequence": 1}, {"base_sequence": 0, "producer_epoch": 1}):
            with pytest.raises(DerivedProducer):
                log.append(batch(producer_id=FIRST_DERIVED_ID, **later), now_ms=NOW_MS)
        with pytest.raises(DerivedProducer):
            log.end_marker(FIRST_DERIVED_ID, 1, commit=False, coordinator_epoch=0, now_ms=NOW_MS)
        assert (
            log.append(batch(producer_id=FIRST_DERIVED_ID - 1, base_sequence=0), now_ms=NOW_MS).base_offset
            == 1
        )
        log.update_config(LogConfig())
        assert log.append(batch(producer_id=2**63 - 1, base_sequence=0), now_ms=NOW_MS).base_offset == 2

    def test_limit(self, tmp_path: Path) -> None:
        limit = ProducerLimit(max_per_partition=1, min_idle_ms=HOUR_MS)
        log = open_log(tmp_path / "log", environment=LogEnvironment(producer_limit=limit))
        log.append(batch(producer_id=1, base_sequence=0), now_ms=NOW_MS)
        with pytest.raises(ProducerLimitReached):
            log.append(batch(producer_id=2, base_sequence=0), now_ms=NOW_MS)

    def test_expiry(self, log: PartitionLog) -> None:
        log.append(batch(producer_id=1, base_sequence=0), now_ms=NOW_MS)
        assert log.expire_producers(NOW_MS + 23 * HOUR_MS) == 0
        assert log.expire_producers(NOW_MS + 24 * HOUR_MS) == 1


class TestRoll:
    def test_by_size(self, log: PartitionLog) -> None:
        fill(log, 20)
        assert len(log.segments) > 3
        assert all(path.stat().st_size <= 600 for path in Path(log.directory).glob("*.log"))

    def test_by_record_time(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", LogConfig(segment_ms=1000))
        for delta in (0, 1000, 1001):
            log.append(batch(timestamp=NOW_MS + delta), now_ms=NOW_MS)
        assert log.segments.active.base_offset == 2

    def test_without_timestamps_by_the_clock(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", LogConfig(segment_ms=1000))
        for delta in (0, 1000, 1001):
            log.append(batch(timestamp=-1), now_ms=NOW_MS + delta)
        assert log.segments.active.base_offset == 2

    def test_under_log_append_time_the_clients_time_does_not_roll(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", LogConfig(message_timestamp_type="LogAppendTime"))
        for _ in range(3):
            log.append(batch(timestamp=NOW_MS + 9999 * HOUR_MS), now_ms=NOW_MS)
        assert len(log.segments) == 1
        log.append(batch(timestamp=1), now_ms=NOW_MS + 169 * HOUR_MS)
        assert log.segments.active.base_offset == 3

    def test_by_full_index(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", LogConfig(index_interval_bytes=0, segment_index_bytes=48))
        fill(log, 12)
        assert len(log.segments) > 2

    def test_offsets_stay_within_int32_of_the_base(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", LogConfig(deep_validation=False))
        huge = Batch(last_offset_delta=2**31 - 2, record_count=2**31 - 1, base_timestamp=NOW_MS).encode()
        for _ in range(3):
            log.append(huge, now_ms=NOW_MS)
        log.append(batch(), now_ms=NOW_MS)
        log.append(batch(), now_ms=NOW_MS)
        assert len(log.segments) == 4
        log.close(clean=True)
        for path in Path(log.directory).glob("*.index"):
            assert SegmentIndexes(path.read_bytes()).is_sane(10**9)

    def test_a_segment_that_can_not_be_read_is_no_failed_write(
        self, log: PartitionLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: object) -> bool:
            raise OSError(errno.EIO, "bad sector")

        monkeypatch.setattr(Segment, "must_roll", broken)
        with pytest.raises(StorageFailed, match=r"the active segment can't be read: .*bad sector"):
            log.append(batch(), now_ms=NOW_MS)
        assert log.offline

    def test_a_damaged_segment_that_must_close_leaves_the_log_readable(
        self, log: PartitionLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fill(log, 3)
        end_offset, segments = log.log_end_offset, len(log.segments)

        def damaged(*_: object, **__: object) -> list[str]:
            raise CorruptRecord("damaged")

        monkeypatch.setattr(Segment, "must_roll", lambda *_: True)
        monkeypatch.setattr(Segment, "write_indexes", damaged)
        with pytest.raises(CorruptRecord):
            log.append(batch(), now_ms=NOW_MS)
        assert (log.offline_because, log.log_end_offset, len(log.segments)) == (None, end_offset, segments)
        assert log.find(0, 1000, upper_bound=end_offset) is not None

    def test_empty_segment_is_not_rolled(self, log: PartitionLog) -> None:
        log.roll(NOW_MS)
        assert len(log.segments) == 1


class TestRead:
    def test_all_by_small_reads_across_rolls(self, log: PartitionLog) -> None:
        fill(log, 30, count=2)
        flush(log)
        for start in range(60):
            first = start - start % 2
            assert offsets_read(log, start) == list(range(first, 60, 2))

    def test_nothing_at_or_above_the_bound(self, log: PartitionLog) -> None:
        fill(log, 30)
        for bound in range(31):
            found: list[int] = []
            while not found or found[-1] + 1 < bound:
                data = read_log(log, found[-1] + 1 if found else 0, 150, upper_bound=bound)
                if not data:
                    break
                found += [view.base_offset for view in read_batches(data)[0]]
            assert found == list(range(bound))

    def test_high_watermark_moves_in_steps(self, log: PartitionLog) -> None:
        for _ in range(10):
            ticket = None
            fill(log, 1)
            ticket = log.prepare_flush()
            fill(log, 2)
            assert ticket is not None
            persist(ticket)
            log.complete_flush(ticket)
            log.advance_high_watermark(log.recovery_point)
            assert offsets_read(log, 0) == list(range(log.high_watermark))
            assert log.high_watermark == log.log_end_offset - 2
        log.advance_high_watermark(5)
        log.advance_high_watermark(10**9)
        assert log.high_watermark == 28

    def test_first_batch_comes_whole(self, log: PartitionLog) -> None:
        fill(log, 2)
        assert len(read_log(log, 0, 1, upper_bound=2)) == len(batch())
        assert len(read_log(log, 0, 0, upper_bound=2)) == len(batch())
        assert read_log(log, 0, 10, upper_bound=2, min_one_batch=False) == b""
        assert read_log(log, 0, 0, upper_bound=2, min_one_batch=False) == b""

    def test_range(self, log: PartitionLog) -> None:
        fill(log, 3)
        assert read_log(log, 3, 100, upper_bound=3) == b""
        for offset in (-1, 4):
            with pytest.raises(OffsetOutOfRange):
                read_log(log, offset, 100, upper_bound=3)


class TestDeleteRecords:
    def test_moves_the_start_and_drops_whole_segments(self, log: PartitionLog) -> None:
        fill(log, 30)
        flush(log)
        segments = len(log.segments)
        assert delete_records(log, 17) == 17
        assert len(log.segments) < segments
        assert offsets_read(log, 17) == list(range(17, 30))
        with pytest.raises(OffsetOutOfRange):
            read_log(log, 16, 100, upper_bound=30)
        assert delete_records(log, 5) == 17

    def test_beyond_the_high_watermark(self, log: PartitionLog) -> None:
        fill(log, 3)
        with pytest.raises(OffsetOutOfRange):
            delete_records(log, 1)

    def test_to_the_end_survives_a_restart_and_a_crash(self, tmp_path: Path) -> None:
        for clean in (True, False):
            log = open_log(tmp_path / f"{clean}")
            fill(log, 30)
            flush(log)
            assert delete_records(log, -1) == 30
            stop = log.close(clean=clean)
            log = open_log(tmp_path / f"{clean}", clean_stop=stop)
            assert (log.log_start_offset, log.log_end_offset) == (30, 30)
            assert log.append(batch(), now_ms=NOW_MS).base_offset == 30

    def test_leader_epochs_follow(self, log: PartitionLog) -> None:
        for epoch in (0, 2, 5):
            log.append(batch(4), now_ms=NOW_MS, leader_epoch=epoch)
        flush(log)
        delete_records(log, 6)
        assert log.epochs.end_offset(0, log.log_end_offset) == (0, 6)
        assert log.epochs.end_offset(2, log.log_end_offset) == (2, 8)


class TestRetention:
    def test_of_everything_including_the_active_segment(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", replace(SMALL, retention_ms=HOUR_MS))
        log.append(batch(3, producer_id=4, base_sequence=0), now_ms=NOW_MS)
        fill(log, 30)
        flush(log)
        deleted = delete_old_segments(log, NOW_MS + 2 * HOUR_MS)
        assert sum(segment.size_bytes for segment in deleted) > 30 * 60
        assert (log.log_start_offset, log.log_end_offset, log.size_bytes, len(log.segments)) == (33, 33, 0, 1)
        assert delete_old_segments(log, NOW_MS + 9 * HOUR_MS) == []
        again = open_log(tmp_path / "log")
        assert (again.log_start_offset, again.log_end_offset) == (33, 33)
        assert again.append(batch(3, producer_id=4, base_sequence=0), now_ms=NOW_MS).is_duplicate

    def test_records_without_timestamps_go_by_the_files_age(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", replace(SMALL, retention_ms=HOUR_MS))
        fill(log, 30, timestamp=-1, step_ms=0)
        flush(log)
        written_ms = log.environment.storage.modified_ms(f"{log.directory}/{0:020d}.log")
        assert delete_old_segments(log, written_ms) == []
        assert len(delete_old_segments(log, written_ms + 10 * HOUR_MS)) > 3

    def test_files_are_renamed_and_go_after_the_delay(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", replace(SMALL, retention_bytes=1000, file_delete_delay_ms=5000))
        fill(log, 60)
        flush(log)
        assert delete_old_segments(log, NOW_MS)
        waiting = len(list((tmp_path / "log").glob("*.deleted")))
        assert waiting > 0
        assert delete_due(log.environment, NOW_MS + 4999) == 0
        assert delete_due(log.environment, NOW_MS + 5000) == waiting
        assert not list((tmp_path / "log").glob("*.deleted"))


def test_update_config(log: PartitionLog) -> None:
    log.update_config(replace(SMALL, segment_bytes=10_000))
    fill(log, 20)
    assert len(log.segments) == 1
