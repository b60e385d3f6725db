"""A partition log remembers producer names across restarts, and when deduplication is turned off and on
again.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seqgate.log import PartitionLog, Storage, retention
from seqgate.log.errors import NameFenced, NamesNotReady, StorageFailed
from seqgate.log.files.file_names import (
    DEDUPLICATION_START,
    LOG_SUFFIX,
    NAMES_SUFFIX,
    offset_name,
    offsets_of,
)
from tests.log.deduplicated import CONFIG, LARGE, LENGTH_POSITION, OFF, again, batch, known, send, values
from tests.log.support import NOW_MS, delete_records, flush, open_log, persist, remove


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return open_log(tmp_path, LARGE)


class TestRestarts:
    @pytest.mark.parametrize("clean", [True, False])
    def test_names_are_known_again(self, log: PartitionLog, clean: bool) -> None:
        send(log, 1, 2, epoch=4)
        send(log, 3, name="other")
        log = again(log, clean=clean)
        assert known(log) == (2, 2)
        assert known(log, "other") == (3, 3)
        with pytest.raises(NameFenced):
            send(log, 3, epoch=3)

    def test_after_a_clean_stop_nothing_is_read_again(self, log: PartitionLog) -> None:
        send(log, 1, 2)
        log = again(log, clean=True, replayed=False)
        assert log.record_states.names_ready
        assert known(log) == (2, 2)

    def test_what_came_after_the_snapshot_is_read_again(self, log: PartitionLog) -> None:
        send(log, 1, 2)
        assert log.capture_names()
        flush(log)
        assert not log.capture_names()
        send(log, 3)
        flush(log)
        log = again(log, replayed=False)
        assert not log.record_states.names_ready
        assert known(log) == (2, 2)
        assert log.record_states.replay_names(1 << 20, NOW_MS)
        assert known(log) == (3, 3)

    def test_a_snapshot_is_never_ahead_of_the_records(self, log: PartitionLog) -> None:
        send(log, 1, 2)
        log.capture_names()
        assert not offsets_of([path.name for path in Path(log.directory).iterdir()], NAMES_SUFFIX)
        flush(log)
        assert offsets_of([path.name for path in Path(log.directory).iterdir()], NAMES_SUFFIX) == [2]

    def test_nor_is_it_written_when_the_records_could_not_be(
        self, log: PartitionLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        send(log, 1, 2)
        log.capture_names()
        ticket = log.prepare_flush()
        assert ticket is not None

        def fail(*_: object) -> None:
            raise OSError("the disk fails")

        monkeypatch.setattr(Storage, "fdatasync", fail)
        with pytest.raises(OSError, match="the disk fails"):
            persist(ticket)

        assert not offsets_of([path.name for path in Path(log.directory).iterdir()], NAMES_SUFFIX)

    def test_until_all_is_read_a_named_batch_is_refused(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LARGE)
        for sequence_id in range(6_000):
            log.append(batch(sequence_id), now_ms=NOW_MS)
        log = again(log, replayed=False)
        with pytest.raises(NamesNotReady):
            send(log, 1)
        send(log, None)
        while not log.record_states.replay_names(1 << 16, NOW_MS):
            pass
        assert send(log, 1).base_offset == -1
        assert known(log)[0] == 5_999

    def test_records_that_are_small_when_compressed_take_as_long_as_others(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LARGE)
        for first in range(0, 10_000, 1_000):
            compressed = batch(*range(first, first + 1_000), codec="zstd")
            assert len(compressed) < 10_000
            log.append(compressed, now_ms=NOW_MS)
        log = again(log, replayed=False)
        assert not log.record_states.replay_names(64 << 10, NOW_MS)
        assert known(log)[1] == 999

    def test_a_log_that_was_damaged_meanwhile_is_not_read_for_ever(self, log: PartitionLog) -> None:
        send(log, 1)
        end_position = log.size_bytes
        send(log, 2)
        log = again(log, replayed=False)
        with Path(log.directory, offset_name(0, LOG_SUFFIX)).open("r+b") as file:
            file.seek(end_position + LENGTH_POSITION)
            file.write(b"\x7f")
        with pytest.raises(StorageFailed, match="no whole batch at offset 1"):
            log.record_states.replay_names(1 << 20, NOW_MS)
        assert not log.record_states.names_ready

    @pytest.mark.parametrize("damage", ["newest", "all", "missing", "start"])
    def test_damaged_snapshots_fall_back_to_the_log(self, log: PartitionLog, damage: str) -> None:
        for sequence_id in range(4):
            send(log, sequence_id)
            log.capture_names()
            flush(log)
        paths = sorted(Path(log.directory).glob(f"*{NAMES_SUFFIX}"))
        assert len(paths) == 2
        log.close(clean=False)
        if damage == "start":
            (Path(log.directory) / DEDUPLICATION_START).write_bytes(b"\xff")
        for path in {"newest": paths[1:], "start": []}.get(damage, paths):
            if damage == "missing":
                path.unlink()
            else:
                path.write_bytes(path.read_bytes()[:-1] + b"\0")
        assert known(again(log)) == (3, 3)

    def test_segments_that_go_are_remembered(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, CONFIG)
        for sequence_id in range(100):
            send(log, sequence_id)
            flush(log)
        delete_records(log, 90)
        assert log.log_start_offset == 90
        assert known(again(log, CONFIG)) == (99, 99)

    @pytest.mark.parametrize("under_way", [False, True])
    def test_deleted_records_are_remembered_before_the_log_start_is_durable(
        self, log: PartitionLog, under_way: bool
    ) -> None:
        send(log, 7)
        flush(log)
        late = None
        if under_way:
            log.capture_names()
            late = log.prepare_flush()
        ticket = retention.prepare_delete_records(log, 1, NOW_MS)
        assert ticket is not None
        persist(ticket)

        after_a_crash = open_log(Path(log.directory), LARGE)

        assert after_a_crash.log_start_offset == 1
        assert known(after_a_crash) == (7, 7)
        assert (late is not None) == under_way

    def test_deleted_records_that_are_not_read_yet_are_remembered(self, log: PartitionLog) -> None:
        send(log, 7)
        flush(log)
        behind = open_log(Path(log.directory), LARGE)
        assert not behind.record_states.names_ready

        delete_records(behind, 1)

        assert known(behind) == (7, 7)
        assert known(open_log(Path(log.directory), LARGE)) == (7, 7)

    def test_what_the_disk_lost_is_not_known(self, log: PartitionLog) -> None:
        send(log, 1)
        flush(log)
        size = log.size_bytes
        send(log, 2)
        log.close(clean=False)
        with (Path(log.directory) / f"{0:020}.log").open("r+b") as file:
            file.truncate(size)
        assert known(again(log)) == (1, 1)


class TestTurningItOnAndOff:
    def test_what_was_there_when_it_is_turned_on_is_not_known(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, OFF)
        send(log, 1, 2)
        log.update_config(LARGE)
        flush(log)
        assert send(log, 1)[:2] == (2, 2)
        log = again(log)
        assert known(log) == (1, 1)

    def test_unless_that_is_asked_for(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, OFF)
        send(log, 1, 2)
        log.update_config(replace(LARGE, deduplication_from_log_start=True))
        assert send(log, 1).base_offset == -1

    def test_turned_off_and_on_again_it_knows_what_came_meanwhile(self, log: PartitionLog) -> None:
        send(log, 1, 2)
        log.update_config(OFF)
        assert log.record_states.names is None
        send(log, 1, 7)
        log.update_config(LARGE)
        assert send(log, 7).base_offset == -1
        assert values(log) == [(0, 1), (1, 2), (2, 1), (3, 7)]

    def test_over_a_restart_too(self, log: PartitionLog) -> None:
        send(log, 1, 2)
        log.update_config(OFF)
        send(log, 7)
        log = again(log, OFF)
        log = again(log, LARGE)
        assert known(log) == (7, 7)

    def test_records_removed_meanwhile_are_reported(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        log = open_log(tmp_path, CONFIG)
        send(log, 1)
        log.update_config(replace(CONFIG, deduplicates=False))
        for _ in range(40):
            send(log, 2)
            flush(log)
        delete_records(log, 30)
        log.update_config(CONFIG)
        assert "were removed unread" in caplog.text
        log.record_states.replay_names(1 << 20, NOW_MS)
        # only memory has the whole state now
        assert log in log.lists.due_for_snapshot
        assert log.capture_names()
        assert log not in log.lists.due_for_snapshot

    def test_turned_off_and_on_again_while_a_removal_is_in_flight(self, log: PartitionLog) -> None:
        send(log, 1, 2)
        flush(log)
        log.update_config(OFF)
        ticket = retention.prepare_delete_records(log, 2, NOW_MS)
        assert ticket is not None
        log.update_config(LARGE)
        remove(log, ticket)
        assert log.log_start_offset == 2
        assert send(log, 2).base_offset == -1
        send(log, 3)
        assert log.capture_names()
        flush(log)
        assert known(again(log)) == (3, 3)

    def test_turned_off_and_on_again_before_the_flush_no_record_goes_unsaved(self, log: PartitionLog) -> None:
        send(log, 1, 2)
        flush(log)
        log.update_config(OFF)
        log.update_config(LARGE)
        assert log.record_states.unsaved_below(1)
        flush(log)
        delete_records(log, 2)
        assert not log.record_states.unsaved_below(2)
        assert known(again(log)) == (2, 2)

    def test_turned_off_and_on_again_a_retry_waits_for_its_original(self, log: PartitionLog) -> None:
        send(log, 1, 2)
        log.update_config(OFF)
        log.update_config(LARGE)
        retry = send(log, 2)
        assert (retry.base_offset, retry.answer_after) == (-1, 1)

    def test_names_that_are_saved_are_in_memory_once(self, log: PartitionLog) -> None:
        send(log, 1, 2)
        assert log.capture_names()
        names = log.record_states.names
        assert names is not None
        assert names.pending is not None
        flush(log)
        assert names.pending is None
        assert names.unsaved_from is None
