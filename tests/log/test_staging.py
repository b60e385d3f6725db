"""What `seqgate.log.staging` links of a log, in states that random lives do not reach."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from seqgate.log import LogDirectory, Storage, StorageFailed
from seqgate.log.errors import IncompatibleFormat
from seqgate.log.staging import LogCut, capture, data_path, read_staged, remove_staging, stage, stage_stopped
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


def test_workers_that_were_killed_are_refused(tmp_path: Path) -> None:
    (tmp_path / "workers").mkdir()
    with pytest.raises(IncompatibleFormat, match="several workers"):
        stage_stopped(Storage(), str(tmp_path), NOW_MS, ())
