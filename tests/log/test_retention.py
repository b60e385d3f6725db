"""Segments roll by time and are deleted; `test_retention_rules` has the rules themselves."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from seqgate.log import (
    DeletionReason,
    LocalDurability,
    OffsetOutOfRange,
    PartitionLog,
    Storage,
    StorageFailed,
    retention,
)
from seqgate.log.retention import SEGMENTS_AT_ONCE
from seqgate.log.segments.segment import NEVER
from seqgate.log.state.record_states import RecordStates
from tests.faults.simulated_disk import SimulatedDisk
from tests.log.support import (
    NOW_MS,
    SMALL,
    batch,
    delete_due,
    delete_old_segments,
    delete_records,
    fill,
    flush,
    open_log,
    persist,
    remove,
)

HOUR_MS = 3_600_000
HOURLY = replace(SMALL, segment_ms=HOUR_MS)
TINY = replace(SMALL, segment_bytes=100, retention_ms=0)
"""Limits so small that every batch is a segment."""


def one_batch_each(directory: Path, segments: int) -> PartitionLog:
    log = open_log(directory, TINY)
    fill(log, segments)
    flush(log)
    assert len(log.segments) == segments
    return log


def log_start_on_disk(directory: Path) -> int:
    return open_log(directory).log_start_offset


def time_to_roll_ms(log: PartitionLog, now_ms: int = NOW_MS) -> int:
    return log.segments.active.time_to_roll_ms(log.config, now_ms)


class TestRollingByTime:
    def test_an_idle_segment_is_closed(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", HOURLY)
        log.append(batch(), now_ms=NOW_MS)
        assert not retention.roll_by_time(log, NOW_MS + HOUR_MS)
        assert retention.roll_by_time(log, NOW_MS + HOUR_MS + 1)
        assert (len(log.segments), log.segments.active.base_offset) == (2, 1)
        assert log.append(batch(), now_ms=NOW_MS).base_offset == 1

    def test_an_empty_one_stays(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", HOURLY)
        assert not retention.roll_by_time(log, NOW_MS + 99 * HOUR_MS)
        assert time_to_roll_ms(log) == NEVER

    def test_old_records_that_arrive_now_do_not_close_it_again_and_again(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", HOURLY)
        log.append(batch(timestamp=NOW_MS - 1000 * HOUR_MS), now_ms=NOW_MS)
        assert not retention.roll_by_time(log, NOW_MS + HOUR_MS)
        assert retention.roll_by_time(log, NOW_MS + HOUR_MS + 1)

    def test_records_without_a_timestamp_count_from_when_the_segment_began(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", HOURLY)
        log.append(batch(timestamp=-1), now_ms=NOW_MS + 5)
        assert not retention.roll_by_time(log, NOW_MS + HOUR_MS)
        assert retention.roll_by_time(log, NOW_MS + HOUR_MS + 1)

    def test_restarts_do_not_put_it_off(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", HOURLY)
        log.append(batch(), now_ms=NOW_MS)
        log.close(clean=False)
        os.utime(tmp_path / "log" / f"{0:020d}.log", ns=(0, NOW_MS * 1_000_000))
        log = open_log(tmp_path / "log", HOURLY, now_ms=NOW_MS + HOUR_MS)
        assert time_to_roll_ms(log, NOW_MS + HOUR_MS) == NOW_MS + HOUR_MS + 1
        assert retention.roll_by_time(log, NOW_MS + HOUR_MS + 1)

    def test_many_partitions_do_not_roll_at_once(self, tmp_path: Path) -> None:
        config = replace(HOURLY, segment_jitter_ms=HOUR_MS // 2)
        rolls = set()
        for number in range(20):
            log = open_log(tmp_path / f"{number}", config)
            log.append(batch(), now_ms=NOW_MS)
            rolls.add(time_to_roll_ms(log) - NOW_MS)
        assert len(rolls) > 15
        assert min(rolls) > HOUR_MS // 2
        assert max(rolls) <= HOUR_MS + 1

    def test_jitter_counts_for_appends_too(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", replace(HOURLY, segment_jitter_ms=2 * HOUR_MS))
        log.append(batch(), now_ms=NOW_MS)
        due_ms = time_to_roll_ms(log)
        log.append(batch(timestamp=due_ms - 1), now_ms=due_ms)
        assert len(log.segments) == 1
        log.append(batch(timestamp=due_ms), now_ms=due_ms)
        assert len(log.segments) == 2

    def test_the_new_names_are_durable_after_a_flush(self, tmp_path: Path) -> None:
        disk = SimulatedDisk()
        disk.provide_directory(str(tmp_path / "log"))
        storage = Storage(disk=disk.process())
        log = open_log(tmp_path / "log", HOURLY, storage=storage)
        log.append(batch(producer_id=4, base_sequence=0), now_ms=NOW_MS)
        flush(log)
        assert retention.roll_by_time(log, NOW_MS + 2 * HOUR_MS)
        flush(log)
        disk.power_cut(None)
        names = {Path(path).name for path in disk.files()}
        assert {name for name in names if name.startswith(f"{1:020d}.")} == {
            f"{1:020d}.log",
            f"{1:020d}.snapshot",
        }


class TestRetention:
    def test_a_log_of_many_segments_goes_by_slices(self, tmp_path: Path) -> None:
        log = one_batch_each(tmp_path / "log", 2 * SEGMENTS_AT_ONCE + 3)
        gone = []
        while deleted := delete_old_segments(log, NOW_MS + HOUR_MS):
            assert log.log_start_offset == deleted[-1].end_offset
            gone.append(len(deleted))
        assert gone == [SEGMENTS_AT_ONCE, SEGMENTS_AT_ONCE, 3]
        assert (len(log.segments), log.log_start_offset, log.size_bytes) == (1, 2 * SEGMENTS_AT_ONCE + 3, 0)

    def test_what_delete_records_leaves_goes_next(self, tmp_path: Path) -> None:
        log = one_batch_each(tmp_path / "log", SEGMENTS_AT_ONCE + 3)
        log.update_config(replace(TINY, retention_ms=-1))
        assert delete_records(log, -1) == SEGMENTS_AT_ONCE + 3
        assert len(log.segments) == 3
        deleted = delete_old_segments(log, NOW_MS)
        assert [segment.reason for segment in deleted] == 2 * [DeletionReason.LOG_START_OFFSET]
        assert len(log.segments) == 1, "the active one stays, as in Kafka, although nothing in it can be read"

    def test_delayed_deletion_holds_for_deleted_records(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", replace(SMALL, file_delete_delay_ms=5))
        fill(log, 30)
        flush(log)
        delete_records(log, -1, NOW_MS)
        assert delete_due(log.environment, NOW_MS + 4) == 0
        assert delete_due(log.environment, NOW_MS + 5) > 0

    def test_held_records_stay_until_they_are_let_go(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        caplog.set_level("INFO")
        log = one_batch_each(tmp_path / "log", 10)
        monkeypatch.setattr(RecordStates, "kept_from", 4)
        delete_old_segments(log, NOW_MS + HOUR_MS)
        for _ in range(3):
            assert delete_old_segments(log, NOW_MS + HOUR_MS) == []
        assert log.log_start_offset == 4
        assert caplog.text.count("delayed records from offset 4 on must be kept") == 1
        monkeypatch.setattr(RecordStates, "kept_from", 7)
        delete_old_segments(log, NOW_MS + HOUR_MS)
        assert log.log_start_offset == 7


class TestRetentionByTicket:
    """Retention as the gateway runs it: another thread makes durable what must be durable before a deletion."""

    def test_leaves_no_flush_to_the_deletion(self, tmp_path: Path) -> None:
        disk = SimulatedDisk()
        disk.provide_directory(str(tmp_path / "log"))
        storage = Storage(disk=disk.process())
        log = open_log(tmp_path / "log", TINY, storage=storage)
        fill(log, 5)
        log.advance_high_watermark_to_end()
        ticket = retention.prepare_retention(log, NOW_MS + HOUR_MS)
        assert ticket is not None
        persist(ticket)
        before = len(disk.log)
        assert len(retention.complete_removal(log, ticket, NOW_MS + HOUR_MS)) == 5
        assert {operation.split()[0] for operation in list(disk.log)[before:]} == {"rename"}

    def test_nothing_to_do(self, tmp_path: Path) -> None:
        assert retention.prepare_retention(open_log(tmp_path / "log"), NOW_MS) is None

    def test_records_deleted_meanwhile_count_more(self, tmp_path: Path) -> None:
        log = one_batch_each(tmp_path / "log", 10)
        log.update_config(replace(TINY, retention_ms=-1, retention_bytes=log.size_bytes // 2))
        ticket = retention.prepare_retention(log, NOW_MS)
        assert ticket is not None
        assert delete_records(log, 9) == 9
        persist(ticket)
        retention.complete_removal(log, ticket, NOW_MS)
        assert delete_old_segments(log, NOW_MS) == []
        assert log_start_on_disk(tmp_path / "log") == 9

    def test_for_delete_records_leaves_no_flush_either(self, tmp_path: Path) -> None:
        disk = SimulatedDisk()
        disk.provide_directory(str(tmp_path / "log"))
        storage = Storage(disk=disk.process())
        log = open_log(tmp_path / "log", TINY, storage=storage)
        fill(log, 5)
        log.advance_high_watermark_to_end()
        ticket = retention.prepare_delete_records(log, 3, NOW_MS)
        assert ticket is not None
        persist(ticket)
        before = len(disk.log)
        retention.complete_removal(log, ticket, NOW_MS)
        assert log.log_start_offset == 3
        assert {operation.split()[0] for operation in list(disk.log)[before:]} == {"rename"}
        assert retention.prepare_delete_records(log, 3, NOW_MS) is None

    @pytest.mark.parametrize("offset", [-2, 3])
    def test_for_delete_records_outside_of_the_log(self, tmp_path: Path, offset: int) -> None:
        said = f"Offset {offset} must be between 0 and the high watermark 2, or -1"
        with pytest.raises(OffsetOutOfRange, match=said):
            retention.prepare_delete_records(one_batch_each(tmp_path / "log", 2), offset, NOW_MS)

    def test_a_log_closed_meanwhile_is_left_alone(self, tmp_path: Path) -> None:
        """Another log may have taken over the directory's name."""
        log = one_batch_each(tmp_path / "log", 10)
        ticket = retention.prepare_retention(log, NOW_MS + HOUR_MS)
        assert ticket is not None
        log.close(clean=False)
        persist(ticket)
        retention.complete_removal(log, ticket, NOW_MS)
        assert log_start_on_disk(tmp_path / "log") == 0

    @pytest.mark.parametrize("operation", range(1, 6))
    def test_a_failure_takes_the_log_offline(self, tmp_path: Path, operation: int) -> None:
        disk = SimulatedDisk()
        disk.provide_directory(str(tmp_path / "log"))
        storage = Storage(disk=disk.process())
        log = open_log(tmp_path / "log", TINY, storage=storage)
        fill(log, 5)
        flush(log)
        ticket = retention.prepare_retention(log, NOW_MS + HOUR_MS)
        assert ticket is not None
        disk.plan.fail_at = disk.plan.operations + operation
        with pytest.raises(OSError, match="Input/output error") as failed:
            persist(ticket)
        retention.fail_removal(log, ticket, failed.value)
        with pytest.raises(StorageFailed):
            delete_old_segments(log, NOW_MS + HOUR_MS)
        disk.plan.heal()
        log.reopen(NOW_MS)
        assert log.log_end_offset == 5

    def test_an_old_failure_does_not_harm_a_log_that_came_back(self, tmp_path: Path) -> None:
        log = one_batch_each(tmp_path / "log", 5)
        ticket = retention.prepare_retention(log, NOW_MS + HOUR_MS)
        assert ticket is not None
        log.go_offline("a test says so")
        log.reopen(NOW_MS)
        retention.fail_removal(log, ticket, OSError("late"))
        assert not log.offline


def test_the_log_start_survives_where_only_it_tells(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", storage=Storage())
    fill(log, 5)
    flush(log)
    delete_records(log, 3)
    assert log_start_on_disk(tmp_path / "log") == 3


class TestRemovalsBesideFlushes:
    def test_a_removal_persists_what_a_flush_in_flight_has_not(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", HOURLY)
        log.append(batch(producer_id=4, base_sequence=0), now_ms=NOW_MS)
        flush(log)
        assert retention.roll_by_time(log, NOW_MS + 2 * HOUR_MS)
        in_flight = log.prepare_flush()
        assert in_flight is not None
        snapshot = f"{log.directory}/{1:020d}.snapshot"
        assert snapshot in in_flight.paths
        ticket = retention.prepare_delete_records(log, 1, NOW_MS)
        assert ticket is not None
        # After the removal, only the snapshot has the producer's state.
        assert snapshot in ticket.flush.paths

    def test_no_power_cut_forgets_the_producers_of_removed_segments(self, tmp_path: Path) -> None:
        disk = SimulatedDisk()
        disk.provide_directory(str(tmp_path / "log"))
        log = open_log(tmp_path / "log", HOURLY, storage=Storage(disk=disk.process()))
        log.append(batch(producer_id=4, base_sequence=0), now_ms=NOW_MS)
        flush(log)
        assert retention.roll_by_time(log, NOW_MS + 2 * HOUR_MS)
        assert log.prepare_flush() is not None
        ticket = retention.prepare_delete_records(log, 1, NOW_MS)
        assert ticket is not None
        assert remove(log, ticket)
        log.environment.storage.fsync_directory(log.directory)  # as the kernel may do at any time
        disk.power_cut(None)
        log = open_log(tmp_path / "log", HOURLY, storage=Storage(disk=disk.process()))
        assert log.log_start_offset == 1
        assert log.append(batch(producer_id=4, base_sequence=0), now_ms=NOW_MS).is_duplicate

    def test_retention_without_limits_takes_what_delete_records_left(self, tmp_path: Path) -> None:
        directory = tmp_path / "log"
        log = open_log(directory, replace(TINY, retention_ms=-1, retention_bytes=-1))
        fill(log, 2 * SEGMENTS_AT_ONCE + 20)
        flush(log)
        delete_records(log, -1)
        left = []
        while delete_old_segments(log, NOW_MS):
            left.append(len(log.segments))
        assert left == [20, 1]

    def test_a_log_start_that_could_not_be_persisted_takes_the_log_offline(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = open_log(tmp_path / "log", HOURLY)
        fill(log, 2)
        flush(log)
        ticket = retention.prepare_delete_records(log, 1, NOW_MS)
        assert ticket is not None
        assert not ticket.flush.data

        def lose(_: LocalDurability, path: str, __: bytes) -> None:
            raise FileNotFoundError(path)

        monkeypatch.setattr(LocalDurability, "replace", lose)
        with pytest.raises(StorageFailed):
            remove(log, ticket)
        assert log.log_start_offset == 0
