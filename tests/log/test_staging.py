"""What `seqgate.log.staging` links of a log, in states that random lives do not reach."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from seqgate.log import DirectoryShare, LogDirectory, Storage, StorageFailed
from seqgate.log.directory.stored_logs import RECOVERY_POINTS, WORKERS
from seqgate.log.files.checkpoints import decode_offsets
from seqgate.log.staging import (
    STAGING,
    STAGING_LOCK,
    LogCut,
    Staged,
    begin_shares,
    capture,
    data_path,
    detach,
    join_shares,
    read_staged,
    remove_abandoned,
    remove_staging,
    stage,
    stage_share,
    stage_stopped,
)
from tests.log.support import NOW_MS, SMALL, fill, flush

FIRST = "00000000000000000000"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[LogDirectory]:
    made = LogDirectory.open(tmp_path / "data", Storage(), node_id=1, now_ms=lambda: NOW_MS, config=SMALL)
    log = made.create("orders", uuid.UUID(int=5), 0, SMALL)
    fill(log, 20)
    flush(log)
    yield made
    made.close(clean=False)


def staged_names(directory: LogDirectory, cuts: list[LogCut] | None = None) -> set[str]:
    stage(Storage(), str(directory.path), cuts or capture(directory), NOW_MS, ())
    return {path.name for path in Path(data_path(str(directory.path)), "orders-0").iterdir()}


def test_the_files_of_a_failed_swap_are_there(directory: LogDirectory) -> None:
    path = directory.path / "orders-0"
    usual = staged_names(directory)
    swap = {f"{FIRST}.log.swap", f"{FIRST}.index.swap", f"{FIRST}.timeindex.ab.cleaned"}
    (path / f"{FIRST}.timeindex.ab.cleaned").touch()
    assert staged_names(directory) == usual, "what a running compaction writes is of no use"
    for name in swap:
        (path / name).touch()
    assert staged_names(directory) == usual | swap


def test_bytes_of_later_appends_are_beyond_the_noted_size(directory: LogDirectory) -> None:
    log = directory.get("orders", 0)
    assert log is not None
    cuts = capture(directory)
    active = log.segments.active
    size = active.size_bytes
    fill(log, 3)
    staged_names(directory, cuts)
    sizes = read_staged(Storage(), str(directory.path)).sizes
    assert sizes == {f"orders-0/{active.base_offset:020d}.log": size}


def test_a_log_whose_files_are_gone_ends_the_backup(directory: LogDirectory) -> None:
    cuts = capture(directory)
    (directory.path / "orders-0").rename(directory.path / "elsewhere")
    with pytest.raises(StorageFailed, match="orders-0 were removed while the backup began"):
        stage(Storage(), str(directory.path), cuts, NOW_MS, ())
    (directory.path / "elsewhere").rename(directory.path / "orders-0")


def test_what_was_staged_before_is_removed_first(directory: LogDirectory) -> None:
    planted = directory.path / ".backup" / "data" / "gone-0" / "file"
    planted.parent.mkdir(parents=True)
    planted.touch()
    staged_names(directory)
    assert not planted.exists()
    remove_staging(Storage(), str(directory.path))
    assert not (directory.path / ".backup").exists()
    remove_staging(Storage(), str(directory.path))


def test_only_what_no_command_needs_is_removed(directory: LogDirectory) -> None:
    root, command = str(directory.path), Storage()
    staged_names(directory)
    command.lock(f"{root}/{STAGING_LOCK}")
    remove_abandoned(Storage(), root)
    assert (directory.path / STAGING).exists()
    command.unlock(f"{root}/{STAGING_LOCK}")
    remove_abandoned(Storage(), root)
    assert not (directory.path / STAGING).exists()


# Shares of several workers.


def of_worker(root: Path, number: int) -> LogDirectory:
    """Return the directory of a worker that has the partitions of a topic with its number."""
    share = DirectoryShare(
        root / WORKERS / str(number), lambda topic, _: topic == f"t{number}", takes_leftovers=False
    )
    directory = LogDirectory.open(
        root, Storage(), node_id=1, now_ms=lambda: NOW_MS, config=SMALL, share=share
    )
    fill(directory.create(f"t{number}", uuid.UUID(int=number), 0, SMALL), 10 * number)
    directory.checkpoint()
    return directory


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[list[LogDirectory]]:
    made = [of_worker(tmp_path, number) for number in (1, 2)]
    yield made
    for directory in made:
        directory.close(clean=False)


def test_shares_are_linked_apart_and_joined(workers: list[LogDirectory], tmp_path: Path) -> None:
    root = str(tmp_path)
    cuts = [capture(directory) for directory in workers]
    sizes = {f"{cut.topic}-0/{cut.active_base_offset:020d}.log": cut.active_size_bytes for (cut,) in cuts}
    for directory in workers:
        for log in directory.logs():
            fill(log, 1)
    begin_shares(Storage(), root)
    for number, own in enumerate(cuts, 1):
        stage_share(Storage(), root, str(number), own, ("seen",))
    staged = join_shares(Storage(), root, NOW_MS)
    assert staged == read_staged(Storage(), root) == Staged(NOW_MS, 2, sizes, is_live=True)
    for number in (1, 2):
        points = Path(data_path(root), WORKERS, str(number), RECOVERY_POINTS).read_bytes()
        (cut,) = cuts[number - 1]
        assert decode_offsets(points, "points") == {(f"t{number}", 0): cut.recovery_point}


def test_a_detached_partition_may_be_written_to(directory: LogDirectory) -> None:
    root = str(directory.path)
    log = directory.get("orders", 0) or pytest.fail("no log")
    fill(log, 1)
    cuts = capture(directory)
    (size,) = stage(Storage(), root, cuts, NOW_MS, ()).sizes.values()
    fill(log, 1)
    detach(Storage(), root, "orders-0")
    assert read_staged(Storage(), root).sizes == {}
    staged, original = Path(data_path(root), "orders-0"), directory.path / "orders-0"
    active = f"{cuts[0].active_base_offset:020d}.log"
    assert (staged / active).stat().st_size == size < (original / active).stat().st_size
    assert {path.name for path in staged.iterdir()} <= {path.name for path in original.iterdir()}
    assert {path.stat().st_nlink for path in staged.iterdir()} == {1}


def test_what_killed_workers_leave_is_linked_with_their_files(tmp_path: Path) -> None:
    for number in (1, 2):
        of_worker(tmp_path, number).close(clean=False)
    staged = stage_stopped(Storage(), str(tmp_path), NOW_MS, ("seen",))
    assert (staged.partitions, staged.is_live) == (2, False)
    data = Path(data_path(str(tmp_path)))
    names = {str(path.relative_to(data)) for path in (data / WORKERS).glob("*/*")}
    assert names == {f"{WORKERS}/{number}/{RECOVERY_POINTS}" for number in (1, 2)}
