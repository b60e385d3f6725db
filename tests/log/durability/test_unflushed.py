from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from seqgate.log import Storage, StorageFailed
from seqgate.log.files.storage import DataFile
from seqgate.log.format.record_batch import Buffer
from seqgate.log.segments.segment import Segment
from seqgate.seq_validator import ProducerTable
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
    offsets_read,
    open_log,
    persist,
    read_log,
)


class FullDisk(Storage):
    """A disk without space while `is_full`; a write then stores half of its bytes."""

    is_full = False

    def apart(self) -> Storage:
        return self

    def write(self, file: DataFile, buffers: Sequence[Buffer], position: int) -> int:
        if self.is_full:
            return super().write(file, (bytes(buffers[0]),), position)
        return super().write(file, buffers, position)

    def write_file(self, path: str, content: bytes) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        super().write_file(path, content)


class TestFullDisk:
    def test_offline_others_go_on_and_back_when_there_is_room(self, tmp_path: Path) -> None:
        storage = FullDisk()
        log = open_log(tmp_path / "one", storage=storage)
        other = open_log(tmp_path / "two")
        log.append(batch(2, producer_id=1, base_sequence=0), now_ms=NOW_MS)
        flush(log)
        storage.is_full = True
        with pytest.raises(StorageFailed, match="disk full"):
            log.append(batch(2, producer_id=1, base_sequence=2), now_ms=NOW_MS)
        assert log.offline
        for refused in (
            lambda: log.append(batch(), now_ms=NOW_MS),
            lambda: read_log(log, 0, 10, upper_bound=2),
            lambda: delete_records(log, 1),
            lambda: log.first_not_before(0),
            lambda: delete_old_segments(log, NOW_MS),
            lambda: log.roll(NOW_MS),
        ):
            with pytest.raises(StorageFailed, match="offline"):
                refused()
        assert log.prepare_flush() is None
        fill(other, 3)
        storage.is_full = False
        log.reopen(NOW_MS)
        assert (log.log_end_offset, log.bytes_cut > 0, log.offline) == (2, True, False)
        assert log.append(batch(2, producer_id=1, base_sequence=0), now_ms=NOW_MS).is_duplicate
        assert log.append(batch(2, producer_id=1, base_sequence=2), now_ms=NOW_MS).base_offset == 2

    def test_at_a_roll(self, tmp_path: Path) -> None:
        storage = FullDisk()
        log = open_log(tmp_path / "log", storage=storage)
        fill(log, 1)
        log.roll(NOW_MS)
        fill(log, 2)
        storage.is_full = True
        with pytest.raises(StorageFailed):
            log.roll(NOW_MS)
        with pytest.raises(OSError, match="space"):
            log.reopen(NOW_MS)
        assert log.offline
        storage.is_full = False
        log.reopen(NOW_MS)
        assert log.log_end_offset == 3

    def test_clean_stop_is_refused(self, tmp_path: Path) -> None:
        storage = FullDisk()
        log = open_log(tmp_path / "log", storage=storage)
        fill(log, 3)
        storage.is_full = True
        assert log.close(clean=True) is None


class TestTickets:
    def test_moves_the_recovery_point(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log")
        assert log.prepare_flush() is None
        fill(log, 2)
        ticket = log.prepare_flush()
        assert ticket is not None
        fill(log, 1)
        persist(ticket)
        log.complete_flush(ticket)
        assert (log.recovery_point, log.log_end_offset) == (2, 3)

    def test_files_are_flushed_by_name_where_no_more_may_be_open(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", storage=Storage(max_open_files=0))
        fill(log, 2)
        ticket = log.prepare_flush()
        assert ticket is not None
        assert not ticket.data
        persist(ticket)
        log.complete_flush(ticket)
        assert log.recovery_point == 2

    def test_failed_flush(self, tmp_path: Path) -> None:
        root = tmp_path / "data"
        disk = SimulatedDisk()
        disk.provide_directory(str(root))
        log = open_log(root, storage=Storage(disk=disk.process()))
        fill(log, 2)
        ticket = log.prepare_flush()
        assert ticket is not None
        disk.plan.fail_at = disk.plan.operations + 1
        with pytest.raises(OSError, match="error") as caught:
            persist(ticket)
        log.fail_flush(ticket, caught.value)
        assert log.offline
        assert log.recovery_point == 0
        log.reopen(NOW_MS)
        assert log.log_end_offset == 0, (
            "bytes that the failed flush dropped must not be served from the page cache"
        )

    def test_tickets_that_cross_carry_each_others_names(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log")
        fill(log, 10)
        first = log.prepare_flush()
        fill(log, 10)
        second = log.prepare_flush()
        assert first is not None
        assert second is not None
        assert set(first.paths) < set(second.paths)
        persist(second)
        log.complete_flush(second)
        log.complete_flush(first)
        assert log.recovery_point == 20
        assert log.segments.flush_end[0] == 20, (
            "compaction may have replaced the segment of the first ticket meanwhile"
        )

    def test_ticket_outlives_segment_deletion_and_the_handle_bound(self, tmp_path: Path) -> None:
        storage = Storage(max_open_files=1)
        log = open_log(tmp_path / "log", storage=storage)
        fill(log, 30)
        log.advance_high_watermark(30)
        ticket = log.prepare_flush()
        assert ticket is not None
        delete_records(log, 30)
        delete_due(log.environment, NOW_MS * 2)
        persist(ticket)
        log.complete_flush(ticket)
        assert len(storage.descriptors) <= 1
        assert log.recovery_point == 30

    def test_ticket_from_before_a_reopening_is_void(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log")
        fill(log, 5)
        ticket = log.prepare_flush()
        assert ticket is not None
        log.go_offline("a test says so")
        log.reopen(NOW_MS)
        fill(log, 1)
        persist(ticket)
        log.complete_flush(ticket)
        assert log.recovery_point == 5
        log.fail_flush(log.prepare_flush() or pytest.fail("there must be a ticket"), OSError("x"))
        assert log.offline

    def test_partition_deleted_under_a_ticket(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log")
        fill(log, 30)
        ticket = log.prepare_flush()
        assert ticket is not None
        log.close(clean=False)
        (tmp_path / "log").rename(tmp_path / "gone")
        persist(ticket)
        log.complete_flush(ticket)
        assert all(file.descriptor < 0 for file in ticket.data)

    def test_directory_that_vanished_from_a_living_log(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log")
        fill(log, 30)
        ticket = log.prepare_flush()
        assert ticket is not None
        (tmp_path / "log").rename(tmp_path / "gone")
        with pytest.raises(FileNotFoundError):
            persist(ticket)

    def test_very_many_segments_are_not_held_open(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log")
        fill(log, 700)
        assert len(log.segments) > 70
        ticket = log.prepare_flush()
        assert ticket is not None
        assert len(ticket.data) == 64
        assert sum(path.endswith(".log") for path in ticket.paths) == len(log.segments) - 64
        persist(ticket)
        log.complete_flush(ticket)

    def test_close_with_a_ticket_out_is_not_clean(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log")
        fill(log, 1)
        assert log.prepare_flush() is not None
        assert log.close(clean=True) is None


class TestClose:
    def test_clean_close_of_an_empty_newest_segment(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log")
        fill(log, 3)
        log.roll(NOW_MS)
        stop = log.close(clean=True)
        assert stop is not None
        again = open_log(tmp_path / "log", clean_stop=stop)
        assert (again.log_end_offset, again.segments.active.base_offset) == (3, 3)
        assert offsets_read(again, 0) == [0, 1, 2]

    def test_closed_log_refuses(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log")
        log.close(clean=True)
        with pytest.raises(StorageFailed, match="closed"):
            log.append(batch(), now_ms=NOW_MS)
        assert log.close(clean=True) is None

    def test_offline_log_is_not_closed_cleanly(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", SMALL)
        log.go_offline("a test says so")
        log.go_offline("another reason")
        assert log.offline_because == "a test says so"
        assert log.close(clean=True) is None


@pytest.mark.parametrize(
    ("number", "passes"), [(errno.EMFILE, True), (errno.ENOSPC, False), (errno.EIO, False)]
)
def test_only_a_flush_that_could_not_begin_may_be_made_good(
    tmp_path: Path, number: int, passes: bool
) -> None:
    log = open_log(tmp_path / "log")
    fill(log, 2)
    ticket = log.prepare_flush()
    assert ticket is not None
    log.fail_flush(ticket, OSError(number, os.strerror(number)))
    assert log.offline
    assert (log in log.lists.short_of_room) is passes
    log.reopen(NOW_MS)
    assert not log.lists.short_of_room


class TestWithoutMemory:
    """A write that stopped halfway for lack of memory is completed by reading the file again."""

    def test_after_a_write(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log = open_log(tmp_path / "log")
        sent = batch(2, producer_id=1, base_sequence=0)
        with monkeypatch.context() as short:
            short.setattr(ProducerTable, "update", no_memory)
            with pytest.raises(StorageFailed, match="memory"):
                log.append(sent, now_ms=NOW_MS)
        assert log.offline
        assert log in log.lists.short_of_room
        log.reopen(NOW_MS)
        again = log.append(sent, now_ms=NOW_MS)
        assert (again.is_duplicate, again.base_offset, log.log_end_offset) == (True, 0, 2)

    def test_in_the_middle_of_a_roll(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        log = open_log(tmp_path / "log", SMALL)
        fill(log, 1)
        with monkeypatch.context() as short:
            short.setattr(Segment, "become_closed", no_memory)
            with pytest.raises(StorageFailed, match="memory"):
                fill(log, 100)
        end_offset = log.log_end_offset
        log.reopen(NOW_MS)
        fill(log, 1)
        assert log.log_end_offset == end_offset + 1


def no_memory(*_: object) -> None:
    raise MemoryError
