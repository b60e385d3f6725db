"""What each operation of the local durability flushes."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from seqgate.log import LocalDurability, Storage
from seqgate.log.files.storage import DataFile
from tests.faults.directory_life import ROOT, new_disk


class Noting(Storage):
    """A storage that records the fsyncs."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []

    def _sync(self, file: DataFile) -> None:
        self.synced.append(file.path)
        super()._sync(file)

    def fsync_path(self, path: str) -> None:
        self.synced.append(path)
        super().fsync_path(path)

    def fsync_directory(self, path: str) -> None:
        self.synced.append(path)
        super().fsync_directory(path)


def test_sync_flushes_data_before_files_before_directories(tmp_path: Path) -> None:
    storage = Noting()
    file, path = DataFile(str(tmp_path / "data")), str(tmp_path / "file")
    storage.create(file)
    storage.write_file(path, b"content")
    LocalDurability(storage).sync(directories=[str(tmp_path)], paths=[path], data=[file])
    assert storage.synced == [file.path, path, str(tmp_path)]


def test_sync_does_not_pass_over_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        LocalDurability(Storage()).sync(paths=[str(tmp_path / "missing")])


def test_replace_leaves_the_new_content_and_nothing_beside_it(tmp_path: Path) -> None:
    storage = Storage()
    path = str(tmp_path / "x")
    LocalDurability(storage).replace(path, b"one")
    LocalDurability(storage).replace(path, b"two")
    assert storage.read_file(path) == b"two"
    assert storage.list_files(str(tmp_path)) == {"x": 3}


@pytest.mark.parametrize("content", [b"same", b"other"])
def test_ensure_makes_what_was_read_durable_though_an_earlier_flush_failed(content: bytes) -> None:
    """After a failed flush the page cache shows bytes that the disk does not have, and a second flush reports
    success.
    """
    disk = new_disk()
    storage = Storage(disk=disk.process())
    path = f"{ROOT}/file"
    LocalDurability(storage).replace(path, b"same")
    storage.write_file(path, content)
    disk.plan.fail_at, disk.plan.kind = disk.plan.operations + 1, "EIO"
    with pytest.raises(OSError, match=r"Input/output") as raised:
        storage.fsync_path(path)
    assert raised.value.errno == errno.EIO
    LocalDurability(storage).ensure(path, storage.read_file(path))
    disk.power_cut(None)
    assert disk.content(path) == content
