from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seqgate.log import CorruptRecord, IncompatibleFormat, PartitionLog, Storage
from seqgate.log.files.checkpoints import encode_offsets
from seqgate.log.files.file_names import LEADER_EPOCHS, LOG_START_OFFSET
from seqgate.log.files.storage import DataFile
from seqgate.log.recovery.load import CleanStop
from seqgate.log.state.leader_epochs import LeaderEpochs
from tests.faults.disk_faults import FaultRates
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

HOUR_MS = 3_600_000


class Counting(Storage):
    """Counts the bytes that are read of records and indexes."""

    bytes_read = 0

    def read(self, file: DataFile, size_bytes: int, position: int) -> bytes:
        data = super().read(file, size_bytes, position)
        self.bytes_read += len(data)
        return data


def adopted(root: Path) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.adopt(root)
    return disk


def written(tmp_path: Path, batches: int = 30) -> PartitionLog:
    log = open_log(tmp_path / "log")
    for number in range(batches):
        log.append(batch(producer_id=number % 2, base_sequence=number // 2), now_ms=NOW_MS)
    flush(log)
    return log


def segment_files(tmp_path: Path, suffix: str = ".log") -> list[Path]:
    return sorted((tmp_path / "log").glob(f"*{suffix}"))


def assert_whole(log: PartitionLog, end: int = 30) -> None:
    assert log.log_end_offset == end
    assert offsets_read(log, log.log_start_offset) == list(range(log.log_start_offset, end))
    entries = [log.producers.get(producer_id) for producer_id in (0, 1)]
    assert [len(entry.batches) for entry in entries if entry] == [5, 5]
    assert [entry.last_sequence for entry in entries if entry] == [(end - 1) // 2, end // 2 - 1]


class TestCleanStop:
    def test_start_reads_no_record_data(self, tmp_path: Path) -> None:
        stop = written(tmp_path).close(clean=True)
        disk = adopted(tmp_path)
        storage = Counting(disk=disk.process())
        log = open_log(tmp_path / "log", storage=storage, clean_stop=stop)
        assert storage.bytes_read == 0
        assert disk.plan.operations == 0
        assert_whole(log)

    def test_start_after_a_crash_does(self, tmp_path: Path) -> None:
        written(tmp_path).close(clean=False)
        storage = Counting(disk=adopted(tmp_path).process())
        assert_whole(open_log(tmp_path / "log", storage=storage))
        assert storage.bytes_read > 0

    @pytest.mark.parametrize(
        "field", ["log_end_offset", "active_base_offset", "active_size_bytes", "size_bytes"]
    )
    def test_marker_that_does_not_fit_is_refused(self, tmp_path: Path, field: str) -> None:
        stop = written(tmp_path).close(clean=True)
        assert isinstance(stop, CleanStop)
        wrong = stop._replace(**{field: -1})
        assert_whole(open_log(tmp_path / "log", clean_stop=wrong))

    def test_a_check_before_segments_are_dropped_vouches_for_the_others(self, tmp_path: Path) -> None:
        """Segments below the log start offset stay until a snapshot covers them, and the check of a crashed
        log writes one.
        """
        written(tmp_path).close(clean=False)
        for snapshot in (tmp_path / "log").glob("*.snapshot"):
            snapshot.unlink()
        (tmp_path / "log" / LOG_START_OFFSET).write_bytes(encode_offsets({("t", 0): 25}))
        stop = open_log(tmp_path / "log").close(clean=True)
        assert isinstance(stop, CleanStop)
        before = segment_files(tmp_path)
        again = open_log(tmp_path / "log", clean_stop=stop)
        assert len(segment_files(tmp_path)) < len(before)
        assert again.clean_stop == stop
        assert_whole(again)

    def test_missing_segment_is_noticed(self, tmp_path: Path) -> None:
        stop = written(tmp_path).close(clean=True)
        segment_files(tmp_path)[1].unlink()
        log = open_log(tmp_path / "log", clean_stop=stop)
        assert log.log_end_offset == offsets_read(log, 0)[-1] + 1

    @pytest.mark.parametrize("content", [None, b"", b"garbage", b"0\n1\n0 0"])
    def test_leader_epochs_lost(self, tmp_path: Path, content: bytes | None) -> None:
        log = open_log(tmp_path / "log")
        for epoch in (0, 2, 2, 5):
            for _ in range(5):
                log.append(batch(), now_ms=NOW_MS, leader_epoch=epoch)
        stop = log.close(clean=True)
        path = tmp_path / "log" / LEADER_EPOCHS
        whole = path.read_bytes()
        path.unlink() if content is None else path.write_bytes(content)
        log = open_log(tmp_path / "log", clean_stop=stop, recovery_point=20)
        assert log.epochs.end_offset(0, log.log_end_offset) == (0, 5)
        assert log.epochs.end_offset(2, log.log_end_offset) == (2, 15)
        assert path.read_bytes() == whole

    @pytest.mark.parametrize("suffix", [".index", ".timeindex"])
    @pytest.mark.parametrize("damage", ["gone", "torn", "zeros"])
    def test_indexes_of_the_active_segment_lost(self, tmp_path: Path, suffix: str, damage: str) -> None:
        stop = written(tmp_path).close(clean=True)
        path = segment_files(tmp_path, suffix)[-1]
        if damage == "gone":
            path.unlink()
        else:
            path.write_bytes(b"\1" * 5 if damage == "torn" else bytes(48))
        log = open_log(tmp_path / "log", clean_stop=stop)
        assert_whole(log)
        found = log.first_not_before(NOW_MS)
        assert found is not None


class TestTail:
    def test_torn_batch_is_cut(self, tmp_path: Path) -> None:
        written(tmp_path).close(clean=False)
        with segment_files(tmp_path)[-1].open("ab") as stream:
            stream.write(batch(3)[:-1])
        log = open_log(tmp_path / "log", recovery_point=20)
        assert log.bytes_cut == len(batch(3)) - 1
        assert_whole(log)

    def test_zeros_after_the_end_are_cut(self, tmp_path: Path) -> None:
        written(tmp_path).close(clean=False)
        with segment_files(tmp_path)[-1].open("ab") as stream:
            stream.write(bytes(5000))
        assert_whole(open_log(tmp_path / "log"))

    def test_segments_after_the_cut_go(self, tmp_path: Path) -> None:
        written(tmp_path).close(clean=False)
        second = segment_files(tmp_path)[1]
        second.write_bytes(second.read_bytes()[:-1])
        log = open_log(tmp_path / "log")
        assert len(log.segments) == 2
        end = log.log_end_offset
        assert 6 < end < 20
        fill(log, 30)
        assert log.log_end_offset == end + 30

    def test_segment_that_lost_whole_batches_leaves_no_hole(self, tmp_path: Path) -> None:
        written(tmp_path).close(clean=False)
        second = segment_files(tmp_path)[1]
        second.write_bytes(second.read_bytes()[: len(batch(producer_id=1, base_sequence=0))])
        log = open_log(tmp_path / "log")
        assert len(log.segments) == 2
        assert offsets_read(log, 0) == list(range(log.log_end_offset))

    def test_offset_that_jumps_ends_the_log(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log")
        fill(log, 5)
        log.close(clean=False)
        (path,) = segment_files(tmp_path)
        content = bytearray(path.read_bytes())
        content[2 * len(batch()) + 6] = 1  # no checksum covers the base offset
        path.write_bytes(content)
        assert open_log(tmp_path / "log").log_end_offset == 2
        assert path.stat().st_size == 2 * len(batch())

    def test_snapshot_of_lost_batches_never_comes_back(self, tmp_path: Path) -> None:
        written(tmp_path).close(clean=True)
        assert segment_files(tmp_path, ".snapshot")[-1].name.startswith(f"{30:020d}")
        second = segment_files(tmp_path)[1]
        second.write_bytes(second.read_bytes()[:-1])
        log = open_log(tmp_path / "log")
        end = log.log_end_offset
        fill(log, 30 - end)
        log.close(clean=False)
        log = open_log(tmp_path / "log")
        entry = log.producers.get(0)
        assert entry is not None
        assert entry.last_offset < end


class TestRecoveryPoint:
    @pytest.mark.parametrize("recovery_point", [0, 7, 29, 30])
    def test_missing_or_right(self, tmp_path: Path, recovery_point: int) -> None:
        written(tmp_path).close(clean=False)
        assert_whole(open_log(tmp_path / "log", recovery_point=recovery_point))

    @pytest.mark.parametrize("recovery_point", [31, 10**9])
    def test_ahead_of_the_log(self, tmp_path: Path, recovery_point: int) -> None:
        """The log was durable up to that point and has lost data. Its offsets are not given to other records."""
        written(tmp_path).close(clean=False)
        log = open_log(tmp_path / "log", recovery_point=recovery_point)
        assert log.append(batch(), now_ms=NOW_MS).base_offset == recovery_point
        with pytest.raises(CorruptRecord):
            read_log(log, 30, 100, upper_bound=log.log_end_offset)

    def test_of_a_log_that_lacks_bytes_has_all_of_it_checked(self, tmp_path: Path) -> None:
        written(tmp_path).close(clean=False)
        files = segment_files(tmp_path)
        content = files[1].read_bytes()
        files[1].write_bytes(content[:-1])
        files[-1].write_bytes(files[-1].read_bytes()[:-1])
        log = open_log(tmp_path / "log", recovery_point=30)
        assert files[1].read_bytes() == content[:-1]
        damaged = log.environment.damage.of(str(tmp_path / "log"))
        assert [found.segment_base_offset for found in damaged] == [int(files[1].stem), int(files[-1].stem)]
        assert log.append(batch(), now_ms=NOW_MS).base_offset == 30

    def test_indexes_written_after_the_flush_that_ends_a_segment(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log", replace(SMALL, retention_ms=HOUR_MS))
        fill(log, 6, timestamp=NOW_MS)
        flush(log)
        log.roll(NOW_MS)
        log.close(clean=False)
        segment_files(tmp_path, ".timeindex")[0].write_bytes(bytes(12))
        log = open_log(tmp_path / "log", replace(SMALL, retention_ms=HOUR_MS), recovery_point=6)
        found = log.first_not_before(NOW_MS + 3)
        assert found is not None
        assert found.offset == 3
        assert delete_old_segments(log, NOW_MS) == [], (
            "a time index of zeros must not make the records look as old as 1970"
        )


class TestProducers:
    def test_only_the_newest_snapshot_remembers_deleted_batches(self, tmp_path: Path) -> None:
        disk = SimulatedDisk()
        disk.provide_directory(str(tmp_path / "log"))
        log = open_log(tmp_path / "log", storage=Storage(disk=disk.process()))
        log.append(batch(3, producer_id=1, base_sequence=0), now_ms=NOW_MS)
        flush(log)
        log.roll(NOW_MS)
        delete_records(log, -1)
        for seed in range(12):
            image = disk.copy()
            image.power_cut_by_seed(seed)
            again = open_log(tmp_path / "log", storage=Storage(disk=image.process()), recovery_point=3)
            assert again.append(batch(3, producer_id=1, base_sequence=0), now_ms=NOW_MS).is_duplicate

    @pytest.mark.parametrize("brought_back", [False, True])
    def test_a_snapshot_that_alone_remembers_is_waited_for(self, tmp_path: Path, brought_back: bool) -> None:
        """A read error is no damage. An older snapshot would take a retry for new, and its offsets for a gap."""
        disk = SimulatedDisk()
        disk.provide_directory(str(tmp_path / "log"))
        log = open_log(tmp_path / "log", storage=Storage(disk=disk.process()))
        for sequence in range(3):
            log.append(batch(producer_id=1, base_sequence=sequence), now_ms=NOW_MS)
            flush(log)
            log.roll(NOW_MS)
        first = str(tmp_path / "log" / f"{0:020d}.log")
        content = disk.content(first)
        log.append(batch(producer_id=1, base_sequence=3), now_ms=NOW_MS)
        flush(log)
        delete_records(log, 3)
        if brought_back:
            disk.put(first, content)
        disk.kill()
        storage = Storage(disk=disk.process())
        disk.plan.rates = FaultRates(open_eio=1.0)
        disk.plan.only = lambda _, path: path.endswith(f"{3:020d}.snapshot")
        with pytest.raises(OSError, match="Input/output"):
            open_log(tmp_path / "log", storage=storage, recovery_point=4)
        disk.plan.heal()
        again = open_log(tmp_path / "log", storage=storage, recovery_point=4)
        assert (again.log_start_offset, again.log_end_offset) == (3, 4)
        assert again.append(batch(producer_id=1, base_sequence=2), now_ms=NOW_MS).is_duplicate

    def test_a_snapshot_whose_flush_failed_is_written_anew(self, tmp_path: Path) -> None:
        """The page cache still has the snapshot, and another fsync of it would wrongly succeed."""
        disk = SimulatedDisk()
        disk.provide_directory(str(tmp_path / "log"))
        log = open_log(tmp_path / "log", storage=Storage(disk=disk.process()))
        log.append(batch(producer_id=1, base_sequence=0), now_ms=NOW_MS)
        log.roll(NOW_MS)
        log.append(batch(producer_id=2, base_sequence=0), now_ms=NOW_MS)
        ticket = log.prepare_flush()
        assert ticket is not None
        disk.plan.rates = FaultRates(sync_eio=1.0)
        disk.plan.only = lambda _, path: path.endswith(".snapshot")
        with pytest.raises(OSError, match="Input/output") as failed:
            persist(ticket)
        log.fail_flush(ticket, failed.value)
        disk.plan.heal()
        log.reopen(NOW_MS)
        log.advance_high_watermark_to_end()
        assert delete_records(log, 1) == 1
        disk.power_cut(None)
        again = open_log(tmp_path / "log", storage=Storage(disk=disk.process()), recovery_point=1)
        assert again.append(batch(producer_id=1, base_sequence=0), now_ms=NOW_MS).is_duplicate

    def test_a_snapshot_of_batches_that_a_crash_took_never_comes_back(self, tmp_path: Path) -> None:
        """The files may look as the last clean stop left them, so that the start checks nothing."""
        stop = written(tmp_path, 6).close(clean=True)
        lost = open_log(tmp_path / "log", clean_stop=stop)
        lost.append(batch(producer_id=9, base_sequence=0), now_ms=NOW_MS)
        lost.roll(NOW_MS)
        (snapshot,) = (path for path in segment_files(tmp_path, ".snapshot") if path.stem.endswith("7"))
        content = snapshot.read_bytes()
        lost.close(clean=False)
        for path in (tmp_path / "log").iterdir():
            path.unlink()
        stop = written(tmp_path, 6).close(clean=True)
        snapshot.write_bytes(content)
        log = open_log(tmp_path / "log", clean_stop=stop)
        assert not snapshot.exists()
        assert log.producers.get(9) is None

    def test_an_unreadable_snapshot_of_batches_that_are_there_is_no_loss(self, tmp_path: Path) -> None:
        written(tmp_path).close(clean=True)
        disk = adopted(tmp_path)
        disk.plan.rates = FaultRates(open_eio=1.0)
        snapshots = [str(path) for path in segment_files(tmp_path, ".snapshot")]
        # the newest snapshot is read first, for its version
        to_fail = [*snapshots, snapshots[-1]]
        disk.plan.only = lambda _, path: path in to_fail and not to_fail.remove(path)
        assert_whole(open_log(tmp_path / "log", storage=Storage(disk=disk.process()), recovery_point=30))
        assert not to_fail

    def test_every_snapshot_lost(self, tmp_path: Path) -> None:
        written(tmp_path).close(clean=True)
        for path in segment_files(tmp_path, ".snapshot"):
            path.write_bytes(b"")
        assert_whole(open_log(tmp_path / "log", recovery_point=30))

    def test_newest_snapshot_torn(self, tmp_path: Path) -> None:
        stop = written(tmp_path).close(clean=True)
        newest = segment_files(tmp_path, ".snapshot")[-1]
        newest.write_bytes(newest.read_bytes()[:-3])
        assert_whole(open_log(tmp_path / "log", clean_stop=stop))

    def test_snapshot_under_another_name(self, tmp_path: Path) -> None:
        written(tmp_path).close(clean=True)
        *_, older, newest = segment_files(tmp_path, ".snapshot")
        newest.write_bytes(older.read_bytes())
        assert_whole(open_log(tmp_path / "log"))

    def test_three_durable_snapshots_are_kept_and_all_later_ones(self, tmp_path: Path) -> None:
        log = written(tmp_path, 60)
        fill(log, 60)
        offsets = [int(path.stem) for path in segment_files(tmp_path, ".snapshot")]
        assert sum(offset <= 60 for offset in offsets) <= 4
        assert len([offset for offset in offsets if offset > 60]) > 5
        flush(log)
        log.roll(NOW_MS)
        assert len(segment_files(tmp_path, ".snapshot")) <= 4


class TestLogStart:
    def test_removed_segments_that_came_back_leave_no_hole(self, tmp_path: Path) -> None:
        log = written(tmp_path)
        first = {path: path.read_bytes() for path in segment_files(tmp_path)[:1]}
        delete_records(log, 20)
        delete_due(log.environment, NOW_MS)
        log.close(clean=False)
        for path, content in first.items():
            path.write_bytes(content)
        log = open_log(tmp_path / "log")
        assert log.log_start_offset == 20
        assert_whole(log)
        assert not any(path.exists() for path in first)

    def test_log_that_lost_more_than_was_deleted(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "log")
        fill(log, 5)
        log.advance_high_watermark(5)
        delete_records(log, 5)
        log.close(clean=False)
        segment_files(tmp_path)[0].write_bytes(b"")
        log = open_log(tmp_path / "log")
        assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (5, 5, 1)
        assert log.append(batch(), now_ms=NOW_MS).base_offset == 5

    def test_damaged_checkpoint(self, tmp_path: Path) -> None:
        log = written(tmp_path)
        delete_records(log, 20)
        log.close(clean=False)
        (tmp_path / "log" / LOG_START_OFFSET).write_bytes(b"?")
        log = open_log(tmp_path / "log")
        assert 0 < log.log_start_offset <= 20
        assert_whole(log)

    def test_no_segment_at_all(self, tmp_path: Path) -> None:
        log = written(tmp_path)
        delete_records(log, 20)
        log.close(clean=False)
        for path in segment_files(tmp_path):
            path.unlink()
        log = open_log(tmp_path / "log")
        assert (log.log_start_offset, log.log_end_offset) == (20, 20)


def test_left_overs_are_swept_away(tmp_path: Path) -> None:
    written(tmp_path).close(clean=True)
    for name in (f"{0:020d}.log.deleted", "x.tmp", f"{999:020d}.index"):
        (tmp_path / "log" / name).write_bytes(b"x")
    open_log(tmp_path / "log")
    assert not list((tmp_path / "log").glob("*.deleted"))
    assert not list((tmp_path / "log").glob("*.tmp"))
    assert not (tmp_path / "log" / f"{999:020d}.index").exists()


def test_leader_epochs_beyond_the_end_are_forgotten_for_good(tmp_path: Path) -> None:
    log = written(tmp_path, 4)
    log.append(batch(), now_ms=NOW_MS, leader_epoch=7)
    log.close(clean=False)
    (path,) = segment_files(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    log = open_log(tmp_path / "log")
    stop = log.close(clean=True)
    log = open_log(tmp_path / "log", clean_stop=stop)
    assert log.epochs.entries() == LeaderEpochs([(0, 0)]).entries()


def test_damaged_old_segment_does_not_stop_the_start(tmp_path: Path) -> None:
    written(tmp_path).close(clean=False)
    first = segment_files(tmp_path)[0]
    first.write_bytes(bytes(len(first.read_bytes())))
    for path in segment_files(tmp_path, ".snapshot"):
        path.unlink()
    log = open_log(tmp_path / "log", recovery_point=29)
    assert log.log_end_offset == 30


class TestLaterMagic:
    def planted(self, tmp_path: Path, *, crc_fits: bool) -> Path:
        written(tmp_path).close(clean=False)
        path = segment_files(tmp_path)[-1]
        content = bytearray(path.read_bytes())
        content[16] = 3
        if not crc_fits:
            content[17] ^= 1
        path.write_bytes(content)
        return path

    def test_is_not_cut_off(self, tmp_path: Path) -> None:
        path = self.planted(tmp_path, crc_fits=True)
        content = path.read_bytes()
        with pytest.raises(IncompatibleFormat, match=r"\.log has a batch of magic 3 at position 0"):
            open_log(tmp_path / "log")
        assert path.read_bytes() == content

    def test_without_its_crc_is_damage(self, tmp_path: Path) -> None:
        path = self.planted(tmp_path, crc_fits=False)
        log = open_log(tmp_path / "log")
        assert log.log_end_offset == int(path.stem)
        assert log.bytes_cut > 0
