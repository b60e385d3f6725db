"""The state of producer names becomes durable before the records that it was read from are removed."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from seqgate.log import LogConfig, LogDirectory, PartitionLog, Storage, retention
from seqgate.log.environment import LogEnvironment
from seqgate.log.errors import NameFenced, NamesNotReady, NameUndecided, StorageFailed
from seqgate.log.files.file_names import DEDUPLICATION_START, LEADER_EPOCHS, NAMES_SUFFIX, offsets_of
from seqgate.log.format.records import NewRecord, build_batch
from seqgate.seq_validator.names import NameBudget
from tests.log.compaction.cleaning import compact, stored_batches
from tests.log.deduplicated import LARGE, OFF, again, known, send
from tests.log.support import (
    NOW_MS,
    append_end_marker,
    batch,
    delete_old_segments,
    delete_records,
    flush,
    open_log,
    persist,
)

EARLIEST = replace(LARGE, deduplication_from_log_start=True)


def snapshots(log: PartitionLog) -> list[int]:
    return offsets_of([path.name for path in Path(log.directory).iterdir()], NAMES_SUFFIX)


def crashed(log: PartitionLog, config: LogConfig = LARGE) -> PartitionLog:
    return again(log, config)


def keyed(
    key: bytes, sequence_id: int | None = None, *, producer_id: int = -1, is_transactional: bool = False
) -> bytes:
    """Return a record that compaction may remove; without a sequence id it has no name headers."""
    named = sequence_id is not None
    headers = [("dedup.name", b"app"), ("dedup.sequence", b"%d" % sequence_id)] if named else []
    return build_batch(
        [NewRecord(b"v", key=key, timestamp=NOW_MS, headers=headers)],
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        is_transactional=is_transactional,
    )


class FailingStorage(Storage):
    """A storage whose named operation fails once, or that has no room."""

    def __init__(self) -> None:
        super().__init__()
        self.fails: Callable[[str], bool] = lambda path: False
        self.has_room = True
        self.replaced: list[str] = []

    def apart(self) -> Storage:
        return self

    def write_file(self, path: str, content: bytes) -> None:
        if not self.has_room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        super().write_file(path, content)

    def rename(self, source: str, target: str) -> None:
        if self.fails(target):
            raise OSError(5, "the disk failed")
        super().rename(source, target)
        if not target.endswith(LEADER_EPOCHS):
            self.replaced.append(Path(target).name)

    def read_file(self, path: str) -> bytes:
        if self.fails(path):
            raise OSError(5, "the disk failed")
        return super().read_file(path)


class TestTheStart:
    def test_it_is_durable_before_the_first_named_record(self, tmp_path: Path) -> None:
        storage = FailingStorage()
        log = open_log(tmp_path, OFF, storage=storage)
        log.update_config(LARGE)
        send(log, None)
        with pytest.raises(NamesNotReady, match="is being persisted"):
            send(log, 1)
        assert (log.log_end_offset, storage.replaced) == (1, [])
        flush(log)
        send(log, 1)
        send(log, 2)
        assert storage.replaced == [DEDUPLICATION_START]

    def test_a_log_that_begins_with_names_need_not_wait(self, tmp_path: Path) -> None:
        directory = LogDirectory.open(tmp_path, Storage(), node_id=1, now_ms=lambda: NOW_MS)
        log = directory.create("flights", uuid.UUID(int=7), 0, LARGE)
        send(log, 1)
        assert not (Path(log.directory) / DEDUPLICATION_START).exists()
        directory.close(clean=False)
        directory = LogDirectory.open(tmp_path, Storage(), node_id=1, now_ms=lambda: NOW_MS)
        found = directory.get("flights", 0)
        assert found is not None
        found.update_config(LARGE)
        assert send(found, 1).base_offset == -1
        assert known(found) == (1, 1)

    def test_without_room_for_the_start_offset_the_log_is_offline_until_there_is(
        self, tmp_path: Path
    ) -> None:
        storage = FailingStorage()
        log = open_log(tmp_path, OFF, storage=storage)
        log.update_config(LARGE)
        storage.has_room = False
        ticket = log.prepare_flush()
        assert ticket is not None
        [error] = log.environment.durability.commit([ticket])
        assert error is not None
        log.fail_flush(ticket, error)
        assert log.offline
        assert log in log.lists.short_of_room
        storage.has_room = True
        log.reopen(NOW_MS)
        flush(log)
        assert send(log, 1).base_offset == 0

    def test_it_is_kept_where_the_setting_is_turned_off_before_any_name_came(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LARGE)
        log.update_config(OFF)
        send(log, 1, 2)
        log.update_config(LARGE)
        flush(log)
        assert send(log, 2).base_offset == -1


class TestWhatGoes:
    def test_records_deleted_inside_a_segment_stay_known(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LARGE)
        send(log, 1)
        send(log, 2, name="other")
        flush(log)
        delete_records(log, 1)
        log = crashed(log)
        assert known(log) == (1, 1)

    def test_the_ticket_of_such_a_deletion_writes_them_down(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LARGE)
        send(log, 1)
        flush(log)
        ticket = retention.prepare_delete_records(log, 1, NOW_MS)
        assert ticket is not None
        persist(ticket)
        log = crashed(log)
        assert log.log_start_offset == 1
        assert known(log) == (1, 1)

    def test_a_snapshot_amid_the_segment_that_goes_is_not_enough(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LARGE)
        send(log, 1)
        log.capture_names()
        flush(log)
        send(log, 2)
        flush(log)
        log.roll(NOW_MS)
        delete_records(log, 2)
        assert list(log.segments.bases) == [2]
        assert known(crashed(log)) == (2, 2)

    def test_a_capture_that_is_under_way_is_carried_by_the_next_ticket(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LARGE)
        send(log, 1)
        log.capture_names()
        first = log.prepare_flush()
        assert first is not None
        log.advance_high_watermark_to_end()
        second = retention.prepare_delete_records(log, 1, NOW_MS)
        assert second is not None
        persist(second)
        assert known(crashed(log)) == (1, 1)

    @pytest.mark.parametrize("later_comes_last", [True, False])
    def test_of_two_captures_of_one_offset_the_later_one_stays(
        self, tmp_path: Path, *, later_comes_last: bool
    ) -> None:
        log = open_log(tmp_path, LARGE)
        send(log, 1, epoch=1)
        log.capture_names()
        first = log.prepare_flush()
        with pytest.raises(NamesNotReady):
            send(log, 1, epoch=2)
        assert log.capture_names()
        second = log.prepare_flush()
        assert first is not None
        assert second is not None
        for ticket in (first, second) if later_comes_last else (second, first):
            persist(ticket)
            log.complete_flush(ticket)
        assert snapshots(log) == [1]
        with pytest.raises(NameFenced):
            send(crashed(log), 2, epoch=1)

    def test_a_flush_from_before_it_was_off_and_on_again_vouches_for_nothing(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LARGE)
        for sequence_id in (1, 2):
            send(log, sequence_id)
            log.capture_names()
            flush(log)
        send(log, 3)
        log.capture_names()
        ticket = log.prepare_flush()
        assert ticket is not None
        log.update_config(OFF)
        log.update_config(LARGE)
        assert log.record_states.replay_names(1 << 20, NOW_MS)
        assert log.record_states.expire_names(NOW_MS + 2_000) == 1
        persist(ticket)
        log.complete_flush(ticket)
        with pytest.raises(NamesNotReady):
            send(log, 0)

    def test_a_flush_that_is_over_when_the_partition_is_another_writes_nothing_down(
        self, tmp_path: Path
    ) -> None:
        directory = LogDirectory.open(tmp_path, Storage(), node_id=1, now_ms=lambda: NOW_MS, config=LARGE)
        log = directory.create("flights", uuid.UUID(int=1), 0, LARGE)
        send(log, 5)
        log.capture_names()
        ticket = log.prepare_flush()
        assert ticket is not None
        directory.delete("flights", 0)
        another = directory.create("flights", uuid.UUID(int=2), 0, LARGE)
        persist(ticket)
        log.complete_flush(ticket)
        send(another, 0)
        flush(another)
        assert known(crashed(another)) == (0, 0)

    def test_nor_does_one_that_is_over_when_the_log_was_recovered(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LARGE)
        send(log, 1)
        flush(log)
        size_bytes = log.size_bytes
        send(log, 2)
        log.capture_names()
        ticket = log.prepare_flush()
        assert ticket is not None
        log.go_offline("a flush failed")
        os.truncate(f"{log.directory}/{0:020}.log", size_bytes)
        log.reopen(NOW_MS)
        persist(ticket)
        log.complete_flush(ticket)
        assert log.log_end_offset == 1
        assert snapshots(log) == []

    def test_what_came_under_other_headers_is_durable_before_they_count(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LARGE)
        send(log, 1)
        renamed = replace(LARGE, deduplication_name_header="who", deduplication_sequence_header="number")
        log.update_config(renamed)
        flush(log)
        log = crashed(log, renamed)
        assert known(log) == (1, 1)

    def test_names_known_when_deduplication_was_turned_off_outlive_a_crash_before_the_flush(
        self, tmp_path: Path
    ) -> None:
        log = open_log(tmp_path, LARGE)
        send(log, 1, 2)
        flush(log)
        log.update_config(OFF)
        log = again(log, OFF)
        log.update_config(LARGE)
        assert log.record_states.replay_names(1 << 20, NOW_MS)
        assert known(log) == (2, 2)

    def test_names_known_when_deduplication_was_turned_off_are_durable(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LARGE)
        send(log, 1)
        log.update_config(OFF)
        flush(log)
        assert snapshots(log) == [1]
        log.advance_high_watermark_to_end()
        delete_records(log, 1)
        log = again(log, OFF)
        log.update_config(LARGE)
        assert known(log) == (1, 1)

    def test_a_transaction_whose_marker_went_while_it_was_off_holds_no_name(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LARGE)
        send(log, 1, producer_id=7, is_transactional=True)
        log.update_config(OFF)
        append_end_marker(log, 7, 0, commit=True, coordinator_epoch=0, now_ms=NOW_MS)
        send(log, None)
        log.advance_high_watermark_to_end()
        delete_records(log, 2)
        log.update_config(LARGE)
        assert log.record_states.replay_names(1 << 20, NOW_MS)
        assert send(log, 1)[:2] == (3, 3)

    def test_nor_does_one_whose_marker_was_compacted_away(self, tmp_path: Path) -> None:
        storage = Storage()
        on = replace(LARGE, compact=True, delete_retention_ms=0)
        log = open_log(tmp_path, on, storage=storage)
        log.append(keyed(b"k", 1, producer_id=7, is_transactional=True), now_ms=NOW_MS)
        flush(log)
        log.update_config(replace(on, deduplicates=False))
        append_end_marker(log, 7, 0, commit=True, coordinator_epoch=0, now_ms=NOW_MS)
        log.expire_producers(NOW_MS + on.producer_id_expiration_ms)
        for number in range(1, 4):
            log.append(keyed(b"k"), now_ms=NOW_MS)
            log.roll(NOW_MS)
            flush(log)
            compact(log, storage, now_ms=NOW_MS + number * 1_000)
        log.append(keyed(b"k"), now_ms=NOW_MS)
        assert [header.is_control for header, _ in stored_batches(log)] == [False, False]
        log.update_config(on)
        assert log.record_states.replay_names(1 << 20, NOW_MS)
        log.append(keyed(b"k", 1), now_ms=NOW_MS)

    def test_one_that_is_committed_after_unnamed_records_were_deleted_counts(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LARGE)
        send(log, 1, producer_id=7, is_transactional=True)
        log.capture_names()
        flush(log)
        send(log, None)
        flush(log)
        delete_records(log, 2)
        append_end_marker(log, 7, 0, commit=True, coordinator_epoch=0, now_ms=NOW_MS)
        flush(log)
        assert known(crashed(log)) == (1, 1)

    def test_one_that_is_still_open_does(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LARGE)
        send(log, 1, producer_id=7, is_transactional=True)
        log.update_config(OFF)
        send(log, None)
        log.advance_high_watermark_to_end()
        delete_records(log, 2)
        log.update_config(LARGE)
        with pytest.raises(NameUndecided):
            send(log, 1)

    def test_many_logs_that_are_closed_with_one_flush_write_them_down(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LARGE)
        send(log, 1)
        flush(log)
        ticket = log.prepare_close()
        assert ticket is not None
        assert ticket.captures


class TestReading:
    def test_behind_a_damaged_batch_no_name_is_taken_for_new(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The damaged batch may hold any name, and a resent record must not be stored twice."""
        log = open_log(tmp_path, LARGE)
        send(log, 1)
        send(log, 2, name="other")
        flush(log)
        path = Path(log.directory) / f"{0:020}.log"
        content = bytearray(path.read_bytes())
        digit = content.index(b"1", content.index(b"dedup.sequence"))
        content[digit] ^= 0x08
        stop = log.close(clean=True)
        for snapshot in Path(log.directory).glob(f"*{NAMES_SUFFIX}"):
            snapshot.unlink()
        path.write_bytes(content)
        log = open_log(tmp_path, LARGE, clean_stop=stop)
        with pytest.raises(StorageFailed, match="damaged"):
            log.record_states.replay_names(1 << 20, NOW_MS)
        with pytest.raises(StorageFailed, match="damaged"):
            send(log, 2)
        log.append(batch(), now_ms=NOW_MS)

        log.advance_high_watermark_to_end()
        log.update_config(replace(LARGE, retention_ms=0))
        caplog.set_level("INFO")
        for later_ms in (1, 2):
            assert delete_old_segments(log, NOW_MS + later_ms) == []
        assert (
            caplog.text.count("the segment at 0 stays: producer names are replayed only up to offset 0") == 1
        )

    def test_a_batch_of_too_many_records_is_passed_over(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The batch was written while the topic did not deduplicate, and a few hundred bytes can hold
        millions of records.
        """
        log = open_log(tmp_path, replace(OFF, max_decoded_records=3, deep_validation=False))
        send(log, 1, 2, 3)
        send(log, 4, 5, 6, 7, codec="zstd")
        log.update_config(replace(EARLIEST, max_decoded_records=3))
        assert log.record_states.replay_names(1 << 20, NOW_MS)
        assert known(log) == (-1, 3)
        assert "the records from 3 to 6 can't be decoded" in caplog.text
        assert "seqgate.batch.decoded.max.records" in caplog.text

    @pytest.mark.parametrize("is_transactional", [False, True])
    def test_of_more_names_than_may_be_remembered_the_newest_are(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, *, is_transactional: bool
    ) -> None:
        """The names were written while nothing limited them, and may be millions."""
        log = open_log(tmp_path, OFF)
        for number in range(30):
            sent = {"producer_id": 7, "sequence": number, "is_transactional": is_transactional}
            send(log, 1, name=f"app {number}", **sent)
        if is_transactional:
            append_end_marker(log, 7, 0, commit=True, coordinator_epoch=0, now_ms=NOW_MS)
        flush(log)
        log.update_config(replace(EARLIEST, deduplication_names_max=5, deduplication_snapshot_records=10))
        while not log.record_states.replay_names(1, NOW_MS):
            pass
        flush(log)
        assert [known(log, f"app {number}")[1] for number in range(30)] == [-1] * 15 + [1] * 15
        assert caplog.text.count("more producer names than may be tracked") == 1
        assert log.capture_names(), "the next flush writes a snapshot"
        assert log.environment.name_budget.in_all == 15

    def test_those_of_all_partitions_together_are_bounded_as_well(self, tmp_path: Path) -> None:
        environment = LogEnvironment(name_budget=NameBudget(max_in_all=10))
        log = open_log(tmp_path, OFF, environment=environment)
        for number in range(30):
            send(log, 1, name=f"app {number}")
        log.update_config(replace(EARLIEST, deduplication_snapshot_records=10))
        while not log.record_states.replay_names(1, NOW_MS):
            pass
        assert environment.name_budget.in_all == 20

    def test_a_log_that_is_no_sequence_of_batches_is_told_of(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LARGE)
        send(log, 1)
        flush(log)
        stop = log.close(clean=True)
        for snapshot in Path(log.directory).glob(f"*{NAMES_SUFFIX}"):
            snapshot.unlink()
        path = Path(log.directory) / f"{0:020}.log"
        content = path.read_bytes()
        path.write_bytes(content[:8] + b"\x7f" + content[9:])
        log = open_log(tmp_path, LARGE, clean_stop=stop)
        with pytest.raises(StorageFailed):
            log.record_states.replay_names(1 << 62, NOW_MS)

    def test_where_it_can_not_be_read_nothing_is_taken(self, tmp_path: Path) -> None:
        storage = FailingStorage()
        log = open_log(tmp_path, LARGE, environment=LogEnvironment(storage))
        send(log, 1)
        log.update_config(OFF)
        flush(log)
        storage.fails = lambda path: path.endswith(NAMES_SUFFIX)
        log.update_config(LARGE)
        assert log.offline
        with pytest.raises(OSError, match="the disk failed"):
            log.reopen(NOW_MS)
        storage.fails = lambda path: False
        log.reopen(NOW_MS)
        assert known(log) == (1, 1)
