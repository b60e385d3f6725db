"""Logs that are opened on first use: what a start trusts after a clean stop, and what it checks again."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest

from seqgate.log import IncompatibleFormat, LogConfig, LogDirectory, PartitionLog, Storage
from seqgate.log.directory import log_directory, recovery_points
from seqgate.log.directory.stored_logs import CLEAN_SHUTDOWN, RECOVERY_POINTS, STORED_LOGS, StoredLog
from seqgate.log.files.disk import FileSystemFlush
from seqgate.log.format.records import NewRecord, build_batch
from seqgate.log.recovery.load import CleanStop
from seqgate.log.segments import segment as segment_index_files
from tests.log.support import NOW_MS, SMALL, batch, fill, flush

TOPIC_ID = uuid.UUID(int=5)
DAY_MS = 24 * 60 * 60 * 1000
MINUTE_MS = 60 * 1000


class Counting(Storage):
    """Counts the operations in partition directories."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: set[str] = set()

    def list_files(self, path: str) -> dict[str, int]:
        self.touched.add(path)
        return super().list_files(path)

    def read_file(self, path: str) -> bytes:
        self.touched.add(str(Path(path).parent))
        return super().read_file(path)

    def fsync_path(self, path: str) -> None:
        self.touched.add(str(Path(path).parent))
        super().fsync_path(path)


def open_directory(root: Path, storage: Storage | None = None) -> LogDirectory:
    return LogDirectory.open(root, storage or Storage(), node_id=1, now_ms=lambda: NOW_MS, config=SMALL)


def written(root: Path, partitions: int, records: int = 10) -> LogDirectory:
    directory = open_directory(root)
    for partition in range(partitions):
        log = directory.create("flights", TOPIC_ID, partition, SMALL)
        fill(log, records)
        flush(log)
    return directory


def ends(directory: LogDirectory, partitions: int) -> list[int]:
    logs = [directory.get("flights", partition) for partition in range(partitions)]
    return [-1 if log is None else log.log_end_offset for log in logs]


@pytest.mark.parametrize("partitions", [3, 40], ids=["one by one", "many at a time"])
def test_a_clean_stop_is_trusted_without_a_look(tmp_path: Path, partitions: int) -> None:
    written(tmp_path, partitions).close()
    storage = Counting()
    directory = open_directory(tmp_path, storage)
    assert len(directory) == len(directory.stored()) == partitions
    assert storage.touched == {str(tmp_path)}
    assert directory.size_bytes("flights", 1) > 0
    assert ends(directory, partitions) == [10] * partitions
    assert not directory.stored()


def test_a_stop_says_the_same_in_the_same_bytes_whatever_was_opened(tmp_path: Path) -> None:
    written(tmp_path, 3).close()
    before = (tmp_path / CLEAN_SHUTDOWN).read_bytes()
    directory = open_directory(tmp_path)
    assert directory.get("flights", 0) is not None
    directory.close()
    assert (tmp_path / CLEAN_SHUTDOWN).read_bytes() == before


def test_what_stays_closed_is_not_touched_by_the_next_stop_either(tmp_path: Path) -> None:
    written(tmp_path, 3).close()
    directory = open_directory(tmp_path, storage := Counting())
    opened = directory.get("flights", 1)
    assert opened is not None
    storage.touched.clear()
    directory.close()
    assert storage.touched == {str(tmp_path)}, "nothing was written to any of them"
    directory = open_directory(tmp_path)
    assert directory.was_clean
    assert ends(directory, 3) == [10, 10, 10]


def test_after_a_crash_only_what_changed_is_opened(tmp_path: Path) -> None:
    written(tmp_path, 3).close()
    directory = open_directory(tmp_path)
    changed = directory.get("flights", 1)
    assert changed is not None
    fill(changed, 5)
    directory.close(clean=False)
    directory = open_directory(tmp_path)
    assert not directory.was_clean
    assert [log.partition for log in directory.logs()] == [1]
    assert ends(directory, 3) == [10, 15, 10]


def test_a_second_crash_still_knows_the_last_clean_stop(tmp_path: Path) -> None:
    written(tmp_path, 2).close()
    open_directory(tmp_path).close(clean=False)
    open_directory(tmp_path).close(clean=False)
    directory = open_directory(tmp_path)
    assert len(directory.stored()) == 2
    assert ends(directory, 2) == [10, 10]


def test_a_topic_that_came_back_is_not_taken_for_the_former(tmp_path: Path) -> None:
    written(tmp_path, 1).close()
    directory = open_directory(tmp_path)
    directory.delete("flights", 0)
    directory.checkpoint()
    other = uuid.UUID(int=6)
    log = directory.create("flights", other, 0, SMALL)
    fill(log, 10)
    flush(log)
    directory.close(clean=False)
    directory = open_directory(tmp_path)
    (found,) = directory.logs()
    assert (found.topic_id, found.log_end_offset) == (other, 10)


def test_a_log_that_fails_at_the_stop_costs_the_others_nothing(tmp_path: Path) -> None:
    directory = written(tmp_path, 3)
    failing = directory.get("flights", 2)
    assert failing is not None
    failing.go_offline("a test says so")
    directory.close()
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()
    directory = open_directory(tmp_path)
    assert [log.partition for log in directory.logs()] == [2]
    assert ends(directory, 3) == [10, 10, 10]


def test_a_log_that_can_not_be_loaded_stops_nothing_and_is_tried_again(tmp_path: Path) -> None:
    class Broken(Storage):
        broken = True

        def list_files(self, path: str) -> dict[str, int]:
            if self.broken and path.endswith("flights-0"):
                raise OSError(5, "Input/output error", path)
            return super().list_files(path)

    written(tmp_path, 2).close(clean=False)
    directory = open_directory(tmp_path, storage := Broken())
    with pytest.raises(OSError, match="Input/output"):
        directory.get("flights", 0)
    storage.broken = False
    assert ends(directory, 2) == [10, 10]
    directory.close()
    assert open_directory(tmp_path).was_clean


def test_files_that_differ_from_the_clean_stop_are_checked_when_opened(tmp_path: Path) -> None:
    written(tmp_path, 1).close()
    (newest,) = sorted((tmp_path / "flights-0").glob("*.log"))[-1:]
    with newest.open("ab") as stream:
        stream.write(b"torn")
    directory = open_directory(tmp_path)
    log = directory.get("flights", 0)
    assert log is not None
    assert (log.log_end_offset, log.bytes_cut) == (10, 4)


def test_the_marker_of_version_1_is_understood(tmp_path: Path) -> None:
    directory = written(tmp_path, 1)
    log = directory.get("flights", 0)
    assert log is not None
    size_bytes, base_offset = log.size_bytes, log.segments.active.base_offset
    directory.close()
    active_bytes = (tmp_path / "flights-0" / f"{base_offset:020}.log").stat().st_size
    row = f"[10,{base_offset},{active_bytes},{size_bytes}]"
    (tmp_path / CLEAN_SHUTDOWN).write_text(f'{{"version":1,"logs":{{"flights-0":{row}}}}}')
    directory = open_directory(tmp_path)
    assert directory.was_clean
    assert ends(directory, 1) == [10]


def test_version_1_says_nothing_after_a_crash(tmp_path: Path) -> None:
    """The topic may have been deleted since, and a new one of its name may have the same size and more
    records.
    """
    directory = open_directory(tmp_path)
    log = directory.create("flights", TOPIC_ID, 0, SMALL)
    log.append(batch(size=60), now_ms=NOW_MS)
    flush(log)
    size_bytes = log.size_bytes
    directory.close()
    (tmp_path / CLEAN_SHUTDOWN).write_text(
        f'{{"version":1,"logs":{{"flights-0":[1,0,{size_bytes},{size_bytes}]}}}}'
    )
    directory = open_directory(tmp_path)
    directory.delete("flights", 0)
    directory.checkpoint()
    log = directory.create("flights", uuid.UUID(int=6), 0, SMALL)
    second = build_batch([NewRecord(b"v", timestamp=NOW_MS), NewRecord(b"v" * 53, timestamp=NOW_MS)])
    assert len(second) == size_bytes
    log.append(second, now_ms=NOW_MS)
    flush(log)
    directory.close(clean=False)
    assert ends(open_directory(tmp_path), 1) == [2]


def test_a_later_version_is_refused(tmp_path: Path) -> None:
    open_directory(tmp_path).close(clean=False)
    (tmp_path / STORED_LOGS).write_text('{"version":3,"logs":{}}')
    with pytest.raises(IncompatibleFormat, match="version 3"):
        open_directory(tmp_path)


def test_open_transactions_are_noted(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    for partition in range(2):
        log = directory.create("flights", TOPIC_ID, partition, SMALL)
        log.append(batch(producer_id=1, base_sequence=0, is_transactional=partition == 1), now_ms=NOW_MS)
        flush(log)
    directory.close()
    stops = {key: stored.stop for key, stored in open_directory(tmp_path).stored().items()}
    assert [stop.has_open_transactions for stop in stops.values() if stop is not None] == [False, True]


@pytest.mark.parametrize(
    ("retention_ms", "retention_bytes", "size_bytes", "expected"),
    [
        (-1, -1, 100, False),
        (DAY_MS, -1, 100, False),
        (DAY_MS - 1, -1, 100, True),
        (DAY_MS - 1, -1, 0, False),
        (-1, 100, 100, False),
        (-1, 99, 100, True),
    ],
)
def test_when_retention_must_look(
    retention_ms: int, retention_bytes: int, size_bytes: int, expected: bool
) -> None:
    config = LogConfig(retention_ms=retention_ms, retention_bytes=retention_bytes)
    stop = CleanStop(10, 0, size_bytes, size_bytes, oldest_timestamp=NOW_MS - DAY_MS)
    assert StoredLog(TOPIC_ID, stop, 10).may_outlive_retention(config, NOW_MS) is expected


def test_retention_looks_at_what_nothing_is_known_of() -> None:
    assert StoredLog(None, None, 0).may_outlive_retention(LogConfig(), NOW_MS)


def test_the_oldest_timestamp_is_that_of_the_oldest_segment(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    log = directory.create("flights", TOPIC_ID, 0, SMALL)
    flush(log)
    fill(log, 30)
    assert len(log.segments) > 1
    flush(log)
    largest = log.first_of_largest_timestamp()
    assert largest is not None
    directory.close()
    (stored,) = open_directory(tmp_path).stored().values()
    assert stored.stop is not None
    assert 0 <= stored.stop.oldest_timestamp < largest.timestamp


def test_a_directory_that_went_is_no_log(tmp_path: Path) -> None:
    written(tmp_path, 2).close()
    shutil.rmtree(tmp_path / "flights-0")
    assert ends(open_directory(tmp_path), 2) == [-1, 10]


def test_recovery_points_of_logs_that_stay_closed_are_kept(tmp_path: Path) -> None:
    written(tmp_path, 2).close()
    directory = open_directory(tmp_path)
    assert directory.get("flights", 1) is not None
    directory.checkpoint()
    directory.close(clean=False)
    points = (tmp_path / RECOVERY_POINTS).read_text().splitlines()[2:]
    assert sorted(points) == ["flights 0 10", "flights 1 10"]


@pytest.mark.parametrize("fails", [False, True])
def test_very_many_logs_share_one_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    class Flush(FileSystemFlush):
        def run(self) -> None:
            super().run()
            if fails:
                raise OSError(5, "Input/output error")

    class Sharing(Counting):
        def begin_syncfs(self, path: str) -> FileSystemFlush | None:
            flush = super().begin_syncfs(path)
            return None if flush is None else Flush(flush._disk, path, flush._syncfs)

    monkeypatch.setattr(log_directory, "MANY", 4)
    written(tmp_path, 4).close(clean=False)
    directory = open_directory(tmp_path, storage := Sharing())
    for log in directory.logs():
        fill(log, 5)
        if log.partition:
            flush(log)
    storage.touched.clear()
    directory.close()
    assert str(tmp_path / "flights-0") in storage.touched, "the log's records were not flushed yet"
    assert str(tmp_path / "flights-1") not in storage.touched
    directory = open_directory(tmp_path)
    assert directory.was_clean is not fails
    assert ends(directory, 4) == [15] * 4


def index_files(root: Path) -> list[str]:
    return sorted(f"{path.parent.name}/{path.name}" for path in root.glob("flights-*/*index"))


def newest_timestamp(log: PartitionLog) -> int:
    return log.segments.active.max_timestamp


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed later"])
def test_very_many_small_logs_stop_without_index_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: bool
) -> None:
    monkeypatch.setattr(log_directory, "MANY", 2)
    directory = written(tmp_path, 2, records=3)
    for stop in range(1, 4):
        directory.close(clean=clean or stop == 1)
        assert index_files(tmp_path) == []
        directory = open_directory(tmp_path)
        assert ends(directory, 2) == [2 + stop] * 2
        for log in directory.logs():
            assert newest_timestamp(log) == NOW_MS + (2 if stop == 1 else 10 * (stop - 1))
            assert log.first_not_before(NOW_MS + 1) == (NOW_MS + 1, 1, 0)
            fill(log, 1, timestamp=NOW_MS + 10 * stop)
            flush(log)
        directory.checkpoint()


def test_an_index_file_that_is_there_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the next start would take the older one for the present one, and retention would delete a
    young segment.
    """
    written(tmp_path, 2).close()
    assert len(index_files(tmp_path)) == 4
    monkeypatch.setattr(log_directory, "MANY", 2)
    directory = open_directory(tmp_path)
    assert ends(directory, 2) == [10, 10]
    for log in directory.logs():
        fill(log, 1, timestamp=NOW_MS + MINUTE_MS)
        flush(log)
    directory.close()
    directory = open_directory(tmp_path)
    assert ends(directory, 2) == [11, 11]
    assert [newest_timestamp(log) for log in directory.logs()] == [NOW_MS + MINUTE_MS] * 2


def test_a_segment_that_is_closed_or_large_has_index_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_directory, "MANY", 2)
    monkeypatch.setattr(segment_index_files, "SMALL_BYTES", 10 * len(batch()) - 1)
    directory = written(tmp_path, 2)
    rolled, _ = directory.logs()
    assert rolled.roll(NOW_MS)
    fill(rolled, 1)
    flush(rolled)
    directory.close()
    names = [f"{0:020}.index", f"{0:020}.timeindex"]
    assert index_files(tmp_path) == [f"flights-{index}/{name}" for index in (0, 1) for name in names]


def known(log: PartitionLog) -> list[int]:
    return [entry.producer_id for entry in log.producers]


def snapshots(root: Path) -> list[str]:
    return sorted(f"{path.parent.name}/{path.name}" for path in root.glob("flights-*/*.snapshot"))


@pytest.mark.parametrize("producer_id", [-1, 7], ids=["without producers", "of a producer"])
def test_very_many_small_logs_without_producers_stop_without_snapshots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, producer_id: int
) -> None:
    monkeypatch.setattr(log_directory, "MANY", 2)
    directory = written(tmp_path, 2, records=0)
    sequence = -1 if producer_id < 0 else 0
    for log in directory.logs():
        log.append(batch(producer_id=producer_id, base_sequence=sequence), now_ms=NOW_MS)
        flush(log)
    directory.close()
    expected = [] if producer_id < 0 else [f"flights-{index}/{1:020}.snapshot" for index in (0, 1)]
    assert snapshots(tmp_path) == expected
    directory = open_directory(tmp_path)
    assert directory.was_clean
    assert ends(directory, 2) == [1, 1]
    for log in directory.logs():
        assert known(log) == ([] if producer_id < 0 else [7])
        log.append(batch(producer_id=7, base_sequence=sequence + 1), now_ms=NOW_MS)
        flush(log)
    directory.close(clean=False)
    directory = open_directory(tmp_path)
    assert ends(directory, 2) == [2, 2]
    assert [known(log) for log in directory.logs()] == [[7], [7]]


def test_a_log_with_an_older_snapshot_gets_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the next start would remember producers that have expired."""
    directory = written(tmp_path, 2, records=0)
    for log in directory.logs():
        log.append(batch(producer_id=7, base_sequence=0), now_ms=NOW_MS)
        flush(log)
    directory.close()
    monkeypatch.setattr(log_directory, "MANY", 2)
    directory = open_directory(tmp_path)
    assert ends(directory, 2) == [1, 1]
    for log in directory.logs():
        log.producers.clear()
        fill(log, 1)
        flush(log)
    directory.close()
    names = [f"flights-{index}/{end:020}.snapshot" for index in (0, 1) for end in (1, 2)]
    assert snapshots(tmp_path) == names
    directory = open_directory(tmp_path)
    assert ends(directory, 2) == [2, 2]
    assert [known(log) for log in directory.logs()] == [[], []]


def test_a_log_that_goes_while_a_checkpoint_is_gathered_vouches_for_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery_points, "GATHERED_AT_ONCE", 1)
    directory = written(tmp_path, 2)
    gathering = directory.gather_checkpoint()
    next(gathering)
    next(gathering)
    directory.delete("flights", 0)
    directory.create("flights", uuid.UUID(int=6), 0, SMALL)
    assert list(gathering) == []
    directory.write_checkpoint()
    assert (tmp_path / RECOVERY_POINTS).read_text().splitlines()[2:] == ["flights 1 10"]
