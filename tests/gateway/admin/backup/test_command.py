"""Backups of a data directory: full disks, lost links, and the order in which files come back."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.admin.backup.command import copy_staged, create_backup, restore_files
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.backup.pace import Pace
from seqgate.gateway.backup.repository import BackupError, Created, Repository
from seqgate.log import LogDirectory, Storage
from seqgate.log.staging import stage_stopped
from tests.log.support import NOW_MS, batch
from tests.properties.backup_life import CONFIG


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A stopped data directory with one log, and what is staged of it."""
    path = tmp_path / "data"
    directory = LogDirectory.open(path, Storage(), node_id=1, now_ms=lambda: NOW_MS, config=CONFIG)
    directory.create("orders", uuid.UUID(int=5), 0, CONFIG).append(batch(3), now_ms=NOW_MS)
    directory.close(clean=True)
    return path


class FullDisk(Storage):
    """A disk with some free bytes, which fails a write after as many."""

    def __init__(self, free_bytes: int, writes: int = 1 << 30) -> None:
        super().__init__()
        self._free_bytes = free_bytes
        self._writes = writes

    def free_bytes(self, path: str) -> int:
        return self._free_bytes

    def write(self, file: Any, buffers: Any, position: int) -> int:
        self._writes -= 1
        if self._writes < 0:
            raise OSError(28, "No space left on device", file.path)
        return super().write(file, buffers, position)


class WithoutLinks(Storage):
    """A file system that knows no hard links."""

    def link(self, source: str, target: str) -> None:
        raise OSError(1, "Operation not permitted", source)


def back_up(data: Path, target: Path, storage: Storage | None = None) -> Created:
    staged = stage_stopped(Storage(), str(data), NOW_MS, ())
    repository = Repository(storage or Storage(), str(target))
    repository.create_and_lock()
    try:
        return copy_staged(repository.storage, str(data), staged, repository, Pace())
    finally:
        repository.unlock()


def test_no_room_is_told_before_anything_is_copied(data: Path, tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="has 1,000 bytes free, and the backup needs"):
        back_up(data, tmp_path / "backups", FullDisk(1_000))
    assert [path.name for path in (tmp_path / "backups").iterdir()] == [".lock"]


def test_a_disk_that_fills_up_leaves_no_half_backup(data: Path, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        back_up(data, tmp_path / "backups", FullDisk(1 << 40, writes=2))
    assert [path.name for path in (tmp_path / "backups").iterdir()] == [".lock"]


def test_unchanged_files_are_shared_only_where_links_exist(data: Path, tmp_path: Path) -> None:
    first = back_up(data, tmp_path / "backups")
    shared = back_up(data, tmp_path / "backups")
    assert shared.manifest.copied_bytes == 0
    assert shared.manifest.files == first.manifest.files
    copied = back_up(data, tmp_path / "backups", WithoutLinks())
    assert copied.manifest.copied_bytes == first.manifest.copied_bytes > 0
    log = "data/orders-0/00000000000000000000.log"
    inodes = [Path(made.path, log).stat().st_ino for made in (first, shared, copied)]
    assert inodes[0] == inodes[1] != inodes[2]


def test_the_newest_backup_has_the_last_name_also_after_the_clock_was_set_back(
    data: Path, tmp_path: Path
) -> None:
    later = Path(back_up(data, tmp_path / "backups").path).rename(tmp_path / "backups" / "20990101T000000Z")
    repository = Repository(Storage(), str(tmp_path / "backups"))
    made = back_up(data, tmp_path / "backups")
    assert repository.complete_backups() == [later.name, Path(made.path).name]
    assert repository.remove_oldest_of_same_directory(1, made.manifest) == [later.name]


def test_a_restore_without_room(data: Path, tmp_path: Path) -> None:
    made = back_up(data, tmp_path / "backups")
    with pytest.raises(BackupError, match="bytes free"):
        restore_files(FullDisk(1_000), made.path, made.manifest, str(tmp_path / "new"), Pace(), lambda: None)
    with pytest.raises(OSError, match="No space left"):
        restore_files(
            FullDisk(1 << 40, writes=2), made.path, made.manifest, str(tmp_path / "new"), Pace(), lambda: None
        )
    assert list((tmp_path / "new").iterdir()) == []


def test_the_file_that_makes_a_data_directory_comes_last(data: Path, tmp_path: Path) -> None:
    made = back_up(data, tmp_path / "backups")
    new = tmp_path / "new"

    def fail() -> None:
        assert (new / "orders-0").is_dir()
        assert not (new / "meta.properties").exists()
        raise BackupError("stop here")

    with pytest.raises(BackupError, match="stop here"):
        restore_files(Storage(), made.path, made.manifest, str(new), Pace(), fail)
    assert list(new.iterdir()) == []


def test_what_is_no_data_directory_leaves_no_target(tmp_path: Path) -> None:
    target = tmp_path / "backups"
    with pytest.raises(ControlError, match="none is no data directory of a gateway"):
        create_backup(tmp_path / "none", target, Pace(), is_full=False, keep=None)
    assert not target.exists()
