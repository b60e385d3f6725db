from __future__ import annotations

import errno
import random
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from seqgate.log import (
    DirectoryLocked,
    DirectoryShare,
    IncompatibleFormat,
    LogConfig,
    LogDirectory,
    PartitionLog,
    Storage,
    StorageFailed,
    retention,
)
from seqgate.log.directory import recovery_points
from seqgate.log.directory.stored_logs import CLEAN_SHUTDOWN, LOCK, RECOVERY_POINTS
from seqgate.log.files.checkpoints import encode_partition_metadata
from seqgate.log.files.sparse_disk import META
from tests.faults.simulated_disk import SimulatedDisk
from tests.log.support import NOW_MS, SMALL, delete_due, fill, flush, offsets_read

TOPIC_ID = uuid.UUID(int=5)


def open_directory(root: Path, storage: Storage | None = None, node_id: int = 1) -> LogDirectory:
    return LogDirectory.open(root, storage or Storage(), node_id=node_id, now_ms=lambda: NOW_MS, config=SMALL)


def created(root: Path, *partitions: int) -> LogDirectory:
    directory = open_directory(root)
    for partition in partitions:
        fill(directory.create("flights", TOPIC_ID, partition, SMALL), 10)
    return directory


def open_again_after_a_crash(root: Path, directory: LogDirectory) -> LogDirectory:
    directory.close(clean=False)
    return open_directory(root)


def get(directory: LogDirectory, partition: int = 0) -> PartitionLog:
    log = directory.get("flights", partition)
    assert log is not None
    return log


class TestIdentity:
    def test_stays(self, tmp_path: Path) -> None:
        first = open_directory(tmp_path)
        first.close()
        second = open_directory(tmp_path)
        assert (first.cluster_id, first.directory_id) == (second.cluster_id, second.directory_id)
        assert len(first.cluster_id) == 22

    def test_of_another_node_is_refused(self, tmp_path: Path) -> None:
        open_directory(tmp_path).close()
        with pytest.raises(IncompatibleFormat, match=r"node\.id 1"):
            open_directory(tmp_path, node_id=2)
        open_directory(tmp_path).close()

    def test_of_a_later_version_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / META).write_text("version=6\n")
        with pytest.raises(IncompatibleFormat, match="has version 6; this program reads versions 1 to 5"):
            open_directory(tmp_path)

    def test_an_identity_that_is_no_text_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / META).write_bytes(b"version=1\ncluster.id=\xff\n")
        with pytest.raises(IncompatibleFormat, match="is damaged"):
            open_directory(tmp_path)

    @pytest.mark.parametrize("name", ["photos/", "notes.txt", "flights-0/", CLEAN_SHUTDOWN])
    def test_a_directory_of_somebody_else_is_refused_and_left_alone(self, tmp_path: Path, name: str) -> None:
        path = tmp_path / name
        path.mkdir() if name.endswith("/") else path.write_bytes(b"mine")
        with pytest.raises(IncompatibleFormat, match=f"it holds '{path.name}' and no meta.properties"):
            open_directory(tmp_path)
        assert [entry.name for entry in tmp_path.iterdir()] == [path.name]

    def test_a_first_start_that_was_cut_short_is_repeated(self, tmp_path: Path) -> None:
        for name in (LOCK, f"{META}.tmp"):
            (tmp_path / name).touch()
        (tmp_path / "lost+found").mkdir()
        open_directory(tmp_path).close()
        assert (tmp_path / META).exists()

    def test_second_gateway_is_refused(self, tmp_path: Path) -> None:
        directory = open_directory(tmp_path)
        with pytest.raises(DirectoryLocked):
            open_directory(tmp_path)
        directory.close()
        open_directory(tmp_path)


class TestCleanShutdown:
    def test_marker_comes_and_goes(self, tmp_path: Path) -> None:
        directory = created(tmp_path, 0, 1)
        assert not (tmp_path / CLEAN_SHUTDOWN).exists()
        directory.close()
        assert (tmp_path / CLEAN_SHUTDOWN).exists()
        directory = open_directory(tmp_path)
        assert directory.was_clean
        assert len(directory) == 2
        assert not (tmp_path / CLEAN_SHUTDOWN).exists()
        assert get(directory, 1).log_end_offset == 10

    def test_no_marker_when_one_log_is_offline(self, tmp_path: Path) -> None:
        directory = created(tmp_path, 0, 1)
        get(directory).go_offline("a test says so")
        directory.close()
        assert not (tmp_path / CLEAN_SHUTDOWN).exists()
        assert get(open_directory(tmp_path), 1).log_end_offset == 10

    @pytest.mark.parametrize(
        "content", [b"", b"{", b"[]", b'{"version":1}', b'{"version":1,"logs":{"flights-0":[1]}}']
    )
    def test_damaged_marker_is_not_trusted(self, tmp_path: Path, content: bytes) -> None:
        created(tmp_path, 0).close()
        (tmp_path / CLEAN_SHUTDOWN).write_bytes(content)
        directory = open_directory(tmp_path)
        assert not directory.was_clean
        assert get(directory).log_end_offset == 10

    def test_marker_of_a_later_version_stops_the_start(self, tmp_path: Path) -> None:
        created(tmp_path, 0).close()
        (tmp_path / CLEAN_SHUTDOWN).write_bytes(b'{"version":3,"logs":{}}')
        with pytest.raises(IncompatibleFormat):
            open_directory(tmp_path)

    def test_full_disk_at_the_stop_gives_the_lock_back(self, tmp_path: Path) -> None:
        class Full(Storage):
            def rename(self, source: str, target: str) -> None:
                if target.endswith(RECOVERY_POINTS):
                    raise OSError(errno.ENOSPC, "full")
                super().rename(source, target)

        directory = open_directory(tmp_path, Full())
        fill(directory.create("flights", TOPIC_ID, 0, SMALL), 3)
        directory.close()
        again = open_directory(tmp_path)
        assert not again.was_clean
        assert get(again).log_end_offset == 3


class TestRecoveryPoints:
    def test_written_and_used(self, tmp_path: Path) -> None:
        directory = created(tmp_path, 0)
        flush(get(directory))
        directory.checkpoint()
        assert (tmp_path / RECOVERY_POINTS).read_bytes() == b"0\n1\nflights 0 10\n"

    @pytest.mark.parametrize("content", [b"", b"0\n2\nflights 0 1\n"])
    def test_damaged(self, tmp_path: Path, content: bytes) -> None:
        directory = created(tmp_path, 0)
        directory.close(clean=False)
        (tmp_path / RECOVERY_POINTS).write_bytes(content)
        log = get(open_directory(tmp_path))
        log.advance_high_watermark(10)
        assert offsets_read(log, 0) == list(range(10))

    def test_ahead_of_a_log_no_offset_is_used_twice(self, tmp_path: Path) -> None:
        created(tmp_path, 0).close(clean=False)
        (tmp_path / RECOVERY_POINTS).write_bytes(b"0\n1\nflights 0 12\n")
        directory = open_directory(tmp_path)
        log = get(directory)
        assert (log.log_start_offset, log.log_end_offset) == (0, 12)
        [(topic, partition, found)] = directory.known_damage()
        assert (topic, partition, found.first_offset, found.end_offset) == ("flights", 0, 10, 12)

    def test_of_a_deleted_topic_does_not_vouch_for_its_successor(self, tmp_path: Path) -> None:
        directory = created(tmp_path, 0)
        flush(get(directory))
        directory.checkpoint()
        assert not directory.is_name_taken("flights", 0)
        directory.delete("flights", 0)
        assert directory.is_name_taken("flights", 0)
        with pytest.raises(StorageFailed, match="The name flights-0 is free for a new log once"):
            directory.create("flights", uuid.UUID(int=6), 0, SMALL)
        directory.checkpoint()
        directory.create("flights", uuid.UUID(int=6), 0, SMALL)
        assert (tmp_path / RECOVERY_POINTS).read_bytes() == b"0\n0\n"

    def test_of_deleted_topics_are_forgotten_with_the_topics(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(recovery_points, "FEW_DELETED", 3)
        directory = created(tmp_path, *range(30))
        directory.checkpoint()
        for partition in range(10):
            directory.delete("flights", partition)
        directory.checkpoint()
        for partition in range(10, 25):
            directory.delete("flights", partition)
        remembered = directory._recovery_points._deleted
        assert {("flights", partition) for partition in range(10, 25)} <= remembered
        assert len(remembered) < 25
        directory.close()
        assert (tmp_path / RECOVERY_POINTS).read_bytes().split(b"\n")[1] == b"5"

    def test_of_a_deleted_topic_are_dropped_by_the_next_start(self, tmp_path: Path) -> None:
        directory = created(tmp_path, 0)
        directory.checkpoint()
        directory.delete("flights", 0)
        directory = open_again_after_a_crash(tmp_path, directory)
        assert directory.has_taken_names
        directory.checkpoint()
        assert directory.create("flights", uuid.UUID(int=6), 0, SMALL).log_end_offset == 0

    def test_a_checkpoint_that_was_gathered_before_a_deletion_frees_no_name(self, tmp_path: Path) -> None:
        directory = created(tmp_path, 0)
        for _ in directory.gather_checkpoint():
            pass
        directory.delete("flights", 0)
        directory.write_checkpoint()
        assert directory.is_name_taken("flights", 0)

    def test_an_older_gather_that_ends_later_changes_nothing(self, tmp_path: Path) -> None:
        """Compaction makes gaps below the points that a later gather wrote: without them they count as lost."""
        directory = created(tmp_path, 0)
        log = directory.get("flights", 0)
        assert log is not None
        older = directory.gather_checkpoint()
        next(older)
        fill(log, 3)
        flush(log)
        directory.checkpoint()
        assert list(older) == []
        directory.write_checkpoint()
        assert f"flights 0 {log.recovery_point}" in (tmp_path / RECOVERY_POINTS).read_text().splitlines()

    def test_are_gathered_again_only_when_one_may_have_moved(self, tmp_path: Path) -> None:
        directory = created(tmp_path, 0)
        log = directory.create("trains", TOPIC_ID, 0, SMALL)
        directory.checkpoint()
        assert list(directory.gather_checkpoint()) == [], "nothing has moved"
        fill(log, 3)
        assert list(directory.gather_checkpoint()) == [], "nothing is durable yet"
        flush(log)
        directory.checkpoint()
        assert "trains 0 3" in (tmp_path / RECOVERY_POINTS).read_text().splitlines()
        directory.delete("flights", 0)
        directory.checkpoint()
        assert (tmp_path / RECOVERY_POINTS).read_text().splitlines()[2:] == ["trains 0 3"]
        directory.create("flights", uuid.UUID(int=6), 0, SMALL)
        directory.checkpoint()
        assert "flights 0 0" in (tmp_path / RECOVERY_POINTS).read_text().splitlines()

    def test_the_name_of_a_log_that_is_set_aside_is_free_when_its_new_name_is_durable(
        self, tmp_path: Path
    ) -> None:
        disk = SimulatedDisk()
        disk.provide_directory(str(tmp_path))
        directory = open_directory(tmp_path, Storage(disk=disk.process()))
        log = directory.create("flights", TOPIC_ID, 0, SMALL)
        fill(log, 3)
        flush(log)
        kept = directory.set_aside("flights", 0)
        assert directory.is_name_taken("flights", 0)
        directory.checkpoint()
        directory.create("flights", uuid.UUID(int=6), 0, SMALL)
        disk.power_cut(None)
        assert any(path.startswith(kept) and size for path, size in disk.files().items())


class TestNamesInUse:
    def test_a_log_uses_its_name_until_it_is_deleted(self, tmp_path: Path) -> None:
        created(tmp_path, 0, 1).close()
        directory = open_directory(tmp_path)
        assert [directory.uses("flights", index) for index in range(3)] == [True, True, False]
        assert get(directory)
        assert directory.uses("flights", 0)
        directory.delete("flights", 0)
        directory.delete("flights", 1)
        assert not directory.uses("flights", 0)
        assert not directory.uses("flights", 1)

    def test_a_recovery_uses_the_name_of_a_deleted_log_until_it_ends(self, tmp_path: Path) -> None:
        created(tmp_path, 0).close()
        directory = open_directory(tmp_path)
        directory.was_clean = False
        recovery = directory.begin_recovery(("flights", 0))
        assert recovery is not None
        directory.delete("flights", 0)
        assert directory.uses("flights", 0)
        directory.end_recovery(("flights", 0), recovery)
        assert not directory.uses("flights", 0)


def test_the_data_directory_may_be_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    directory = created(Path(), 0, 1)
    directory.delete("flights", 0)
    directory.close()
    assert [path.name[:10] for path in tmp_path.glob("*-delete")] == ["flights-0."]
    assert get(open_directory(Path()), 1).log_end_offset == 10


class TestCreate:
    def test_twice(self, tmp_path: Path) -> None:
        directory = created(tmp_path, 0)
        with pytest.raises(ValueError, match="exists"):
            directory.create("flights", TOPIC_ID, 0, SMALL)

    def test_over_what_a_failed_deletion_left(self, tmp_path: Path) -> None:
        directory = created(tmp_path, 0)
        directory.close()
        (tmp_path / "flights-0").rename(tmp_path / "kept")
        directory = open_directory(tmp_path)
        (tmp_path / "kept").rename(tmp_path / "flights-0")
        directory.checkpoint()
        log = directory.create("flights", uuid.UUID(int=6), 0, SMALL)
        assert log.log_end_offset == 0, "records of the old topic must not appear in the new one"

    def test_interrupted_anywhere(self, tmp_path: Path) -> None:
        def create(fail_at: int, kind: str) -> tuple[SimulatedDisk, LogDirectory]:
            disk = SimulatedDisk()
            disk.provide_directory(str(tmp_path))
            directory = open_directory(tmp_path, Storage(disk=disk.process()))
            disk.plan.operations, disk.plan.fail_at, disk.plan.kind = 0, fail_at, kind
            return disk, directory

        disk, directory = create(0, "EIO")
        directory.create("flights", TOPIC_ID, 0, SMALL)
        for fail_at in range(1, disk.plan.operations + 1):
            disk, directory = create(fail_at, "ENOSPC")
            with pytest.raises(OSError, match="space"):
                directory.create("flights", TOPIC_ID, 0, SMALL)
            for seed in range(4):
                image = disk.copy()
                image.power_cut_by_seed(seed)
                again = open_directory(tmp_path, Storage(disk=image.process()))
                assert again.get("flights", 0) is None or get(again).topic_id == TOPIC_ID
                again.close()
            log = directory.create("flights", TOPIC_ID, 0, SMALL)
            fill(log, 1)
            flush(log)
            assert log.recovery_point == 1
            delete_due(directory.environment, NOW_MS)
            assert not [path for path in disk.files() if "-delete/" in path]


class TestDelete:
    def test_name_goes_at_once_and_files_after_the_delay(self, tmp_path: Path) -> None:
        directory = open_directory(tmp_path)
        fill(directory.create("flights", TOPIC_ID, 0, LogConfig(file_delete_delay_ms=1000)), 3)
        directory.delete("flights", 0)
        directory.delete("flights", 0)
        assert directory.get("flights", 0) is None
        assert not (tmp_path / "flights-0").exists()
        assert delete_due(directory.environment, NOW_MS + 999) == 0
        assert delete_due(directory.environment, NOW_MS + 1000) > 0
        assert not list(tmp_path.glob("*-delete"))

    def test_in_bounded_steps(self, tmp_path: Path) -> None:
        directory = created(tmp_path, 0)
        for number in range(40):
            (tmp_path / "flights-0" / f"{number}").touch()
        directory.delete("flights", 0)
        assert delete_due(directory.environment, NOW_MS * 2, 20) == 20
        while list(tmp_path.glob("*-delete")):
            assert 0 <= delete_due(directory.environment, NOW_MS * 2, 20) <= 20

    def test_goes_on_after_a_restart(self, tmp_path: Path) -> None:
        directory = created(tmp_path, 0, 1)
        directory.delete("flights", 0)
        directory.close()
        directory = open_directory(tmp_path)
        assert len(directory) == 1
        delete_due(directory.environment, NOW_MS)
        assert not list(tmp_path.glob("*-delete"))

    def test_a_file_that_a_sweep_left_goes_after_a_restart(self, tmp_path: Path) -> None:
        created(tmp_path, 0).close()
        (tmp_path / "notes.txt.deleted").touch()
        directory = open_directory(tmp_path)
        assert delete_due(directory.environment, NOW_MS) == 1
        assert not (tmp_path / "notes.txt.deleted").exists()

    def test_what_other_processes_delete_themselves_waits_as_long_as_theirs(self, tmp_path: Path) -> None:
        created(tmp_path, 0).close()
        (tmp_path / "flights-1.0-delete").mkdir()
        share = DirectoryShare(tmp_path, lambda *_: True, takes_leftovers=True, others_delete=True)
        directory = LogDirectory.open(
            tmp_path, Storage(), node_id=1, now_ms=lambda: NOW_MS, config=SMALL, share=share
        )
        delay_ms = SMALL.file_delete_delay_ms
        delete_due(directory.environment, NOW_MS + delay_ms - 1)
        assert list(tmp_path.glob("*-delete"))
        delete_due(directory.environment, NOW_MS + delay_ms)
        assert not list(tmp_path.glob("*-delete"))

    def test_what_can_not_be_deleted_holds_up_nothing_else(self, tmp_path: Path) -> None:
        class Stubborn(Storage):
            def some_names(self, path: str, limit: int) -> list[str]:
                if "flights-0" in path:
                    raise PermissionError(errno.EPERM, "no", path)
                return super().some_names(path, limit)

        created(tmp_path, 0, 1).close()
        directory = open_directory(tmp_path, Stubborn())
        directory.delete("flights", 0)
        directory.delete("flights", 1)
        delete_due(directory.environment, NOW_MS * 2)
        assert [path.name[:9] for path in tmp_path.glob("*-delete")] == ["flights-0"]


class TestLoad:
    @pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_bytes(b"")])
    def test_records_of_nobody_are_kept_aside(self, tmp_path: Path, spoil: Callable[[Path], object]) -> None:
        created(tmp_path, 0).close(clean=False)
        spoil(tmp_path / "flights-0" / "partition.metadata")
        records = (tmp_path / "flights-0" / f"{0:020}.log").read_bytes()
        directory = open_directory(tmp_path)
        assert directory.get("flights", 0) is None
        (stray,) = tmp_path.glob("flights-0.*-stray")
        directory.checkpoint()
        directory.create("flights", TOPIC_ID, 0, SMALL)
        delete_due(directory.environment, NOW_MS * 2)
        directory.close()
        assert get(open_directory(tmp_path)).log_end_offset == 0
        assert (stray / f"{0:020}.log").read_bytes() == records

    def test_a_clean_stop_tells_the_topic_id_of_a_damaged_one(self, tmp_path: Path) -> None:
        created(tmp_path, 0).close()
        path = tmp_path / "flights-0" / "partition.metadata"
        path.write_bytes(path.read_bytes().replace(b"version", b"vercion"))
        log = get(open_directory(tmp_path))
        assert (log.topic_id, log.log_end_offset) == (TOPIC_ID, 10)
        assert b"version" in path.read_bytes()

    def test_a_damaged_topic_id_is_not_mended_for_who_would_know_of_it(self, tmp_path: Path) -> None:
        created(tmp_path, 0).close()
        (tmp_path / "flights-0" / "partition.metadata").write_bytes(b"version: 0\ntopic_id: x")
        assert open_directory(tmp_path).get("flights", 0, is_mended=False) is None
        assert list(tmp_path.glob("flights-0.*-stray"))

    def test_a_topic_id_without_a_checksum_stays_as_it_is(self, tmp_path: Path) -> None:
        created(tmp_path, 0).close(clean=False)
        path = tmp_path / "flights-0" / "partition.metadata"
        earlier, _, _ = path.read_bytes().partition(b"\nchecksum")
        path.write_bytes(earlier)
        assert get(open_directory(tmp_path)).log_end_offset == 10
        assert path.read_bytes() == earlier

    def test_empty_directory_of_nobody_is_removed(self, tmp_path: Path) -> None:
        open_directory(tmp_path).close()
        (tmp_path / "flights-0").mkdir()
        assert len(open_directory(tmp_path)) == 0
        assert not (tmp_path / "flights-0").exists()

    def test_topic_names_with_dashes_and_dots(self, tmp_path: Path) -> None:
        directory = open_directory(tmp_path)
        for topic in ("a-1", "a.b-delete", "x" * 249):
            directory.create(topic, TOPIC_ID, 3, SMALL)
        directory.close()
        directory = open_directory(tmp_path)
        assert sorted(topic for topic, _ in directory.stored()) == ["a-1", "a.b-delete", "x" * 249]
        directory.delete("x" * 249, 3)

    def test_partition_metadata_is_kafkas(self, tmp_path: Path) -> None:
        created(tmp_path, 0)
        content = (tmp_path / "flights-0" / "partition.metadata").read_bytes()
        assert content == encode_partition_metadata(TOPIC_ID)

    def test_open_handles_are_bounded(self, tmp_path: Path) -> None:
        storage = Storage(max_open_files=5)
        directory = open_directory(tmp_path, storage)
        for partition in range(20):
            fill(directory.create("flights", TOPIC_ID, partition, SMALL), 20)
            flush(get(directory, partition))
        for partition in range(20):
            assert offsets_read(get(directory, partition), 0) == list(range(20))
        assert len(storage.descriptors) <= 5
        directory.close()
        assert len(storage.descriptors) == 0


class TestBeforeTheFirstFlush:
    """No crash may leave a second segment whose first segment is lost: a start would take it for the whole
    log.
    """

    def test_the_log_stays_in_its_first_segment(self, tmp_path: Path) -> None:
        log = open_directory(tmp_path).create("flights", TOPIC_ID, 0, SMALL)
        fill(log, 30)
        assert not log.roll(NOW_MS)
        assert not retention.roll_by_time(log, NOW_MS + 2**50)
        assert log.segments.bases == [0]
        assert log.size_bytes > 2 * SMALL.segment_bytes
        flush(log)
        fill(log, 1)
        assert log.segments.bases == [0, 30]

    def test_nothing_is_flushed_by_an_append(self, tmp_path: Path) -> None:
        disk = SimulatedDisk()
        disk.provide_directory(str(tmp_path))
        log = open_directory(tmp_path, Storage(disk=disk.process())).create("flights", TOPIC_ID, 0, SMALL)
        disk.log.clear()
        fill(log, 30)
        log.roll(NOW_MS)
        assert not [line for line in disk.log if line.startswith("sync")]

    def test_a_power_cut_leaves_no_later_segment_alone(self, tmp_path: Path) -> None:
        for seed in range(20):
            disk = SimulatedDisk(random.Random(seed))
            disk.provide_directory(str(tmp_path))
            log = open_directory(tmp_path, Storage(disk=disk.process())).create("flights", TOPIC_ID, 0, SMALL)
            fill(log, 30)
            disk.power_cut(random.Random(seed))
            again = open_directory(tmp_path, Storage(disk=disk.process())).get("flights", 0)
            assert again is None or again.log_start_offset == 0

    def test_a_segment_that_no_index_could_name_refuses_the_batch(self, tmp_path: Path) -> None:
        log = open_directory(tmp_path).create("flights", TOPIC_ID, 0, SMALL)
        fill(log, 1)
        log.segments.active.size_bytes = 2**31 - 10
        with pytest.raises(StorageFailed, match="must wait for the log's first flush"):
            fill(log, 1)
        assert not log.offline
        assert log.log_end_offset == 1
