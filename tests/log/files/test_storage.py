from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from log import DirectoryLocked, Storage
from log.files.data_file import DataFile
from log.files.disk import SystemDisk


def files(tmp_path: Path, count: int) -> list[DataFile]:
    return [DataFile(str(tmp_path / f"{number}")) for number in range(count)]


class TestOpenFiles:
    def test_are_bounded_and_come_back_when_needed(self, tmp_path: Path) -> None:
        storage = Storage(max_open_files=3)
        listed = files(tmp_path, 10)
        for number, file in enumerate(listed):
            storage.create(file)
            storage.write(file, (b"%d" % number,), 0)
            assert storage.open_files <= 3
        assert [storage.read(file, 9, 0) for file in listed] == [b"%d" % number for number in range(10)]
        assert storage.open_files <= 3

    def test_without_a_descriptor_left_another_file_gives_its_own(self, tmp_path: Path) -> None:
        class AtMostTwo(SystemDisk):
            def open(self, path: str, flags: int, mode: int = 0o777) -> int:  # type: ignore[override]
                if storage.open_files >= 2:
                    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
                return os.open(path, flags, mode)

        storage = Storage(disk=AtMostTwo())
        listed = files(tmp_path, 3)
        for number, file in enumerate(listed):
            storage.create(file)
            storage.write(file, (b"%d" % number,), 0)
        assert [storage.read(file, 9, 0) for file in listed] == [b"0", b"1", b"2"]
        assert not storage.may_pin(storage.max_open_files + 1)
        for file in (file for file in listed if file.descriptor >= 0):
            storage.pin(file)
        closed = next(file for file in listed if file.descriptor < 0)
        with pytest.raises(OSError, match="open files"):
            storage.read(closed, 9, 0)

    def test_no_more_may_be_pinned_than_may_be_open(self, tmp_path: Path) -> None:
        storage = Storage(max_open_files=2)
        first, second = files(tmp_path, 2)
        for file in (first, second):
            storage.create(file)
        storage.pin(first)
        storage.pin(first)
        assert (storage.may_pin(1), storage.may_pin(2)) == (True, False)
        storage.pin(second)
        assert not storage.may_pin(1)
        storage.unpin(first)
        assert not storage.may_pin(1)
        storage.unpin(first)
        assert storage.may_pin(1)

    def test_recently_used_ones_stay(self, tmp_path: Path) -> None:
        storage = Storage(max_open_files=3)
        first, *others = files(tmp_path, 9)
        storage.create(first)
        for file in others:
            storage.create(file)
            storage.read(first, 1, 0)
        assert first.descriptor >= 0

    def test_pinned_ones_stay_whatever_happens(self, tmp_path: Path) -> None:
        storage = Storage(max_open_files=2)
        listed = files(tmp_path, 5)
        for file in listed[:3]:
            storage.create(file)
            storage.pin(file)
        for file in listed[3:]:
            storage.create(file)
        assert all(file.descriptor >= 0 for file in listed[:3])
        for file in listed[:3]:
            storage.unpin(file)
        assert storage.open_files <= 2
        storage.create(DataFile(str(tmp_path / "more")))
        assert storage.open_files <= 2

    def test_released_while_pinned_closes_with_the_last_pin(self, tmp_path: Path) -> None:
        storage = Storage()
        (file,) = files(tmp_path, 1)
        storage.create(file)
        storage.pin(file)
        storage.pin(file)
        storage.release(file)
        Path(file.path).unlink()
        storage.unpin(file)
        storage.sync(file)
        storage.unpin(file)
        assert file.descriptor < 0
        assert storage.open_files == 0


class TestSync:
    def test_is_never_tried_again_after_a_failure(self, tmp_path: Path) -> None:
        class FailsOnce(SystemDisk):
            failures = 0

            def fdatasync(self, descriptor: int) -> None:
                if not self.failures:
                    self.failures += 1
                    raise OSError(5, "EIO")

        storage = Storage(disk=FailsOnce())
        (file,) = files(tmp_path, 1)
        storage.create(file)
        with pytest.raises(OSError, match="EIO"):
            storage.sync(file)
        with pytest.raises(OSError, match="earlier"):
            storage.sync(file)


class TestNames:
    def test_replace_file(self, tmp_path: Path) -> None:
        storage = Storage()
        path = str(tmp_path / "x")
        storage.replace_file(path, b"one")
        storage.replace_file(path, b"two")
        assert storage.read_file(path) == b"two"
        assert storage.list_files(str(tmp_path)) == {"x": 3}

    def test_make_directory_makes_every_name_durable(self, tmp_path: Path) -> None:
        synced: list[str] = []

        class Noting(Storage):
            def sync_directory(self, path: str) -> None:
                synced.append(path)

        Noting().make_directory(str(tmp_path / "a" / "b"))
        assert synced == [str(tmp_path), str(tmp_path / "a")]
        Noting().make_directory(str(tmp_path / "a" / "b"))
        assert len(synced) == 2

    def test_delete_of_what_is_gone(self, tmp_path: Path) -> None:
        Storage().delete(str(tmp_path / "nothing"))


class TestLock:
    def test_second_holder_is_refused(self, tmp_path: Path) -> None:
        path = str(tmp_path / ".lock")
        storage = Storage()
        storage.lock(path)
        with pytest.raises(DirectoryLocked, match=str(tmp_path)):
            Storage().lock(path)
        storage.unlock(path)
        storage.unlock(path)
        Storage().lock(path)

    def test_second_process_is_refused(self, tmp_path: Path) -> None:
        path = str(tmp_path / ".lock")
        Storage().lock(path)
        held = Storage()
        held.lock(str(tmp_path / ".other"))
        code = f"from log import Storage; Storage().lock({str(tmp_path / '.other')!r})"
        root = Path(__file__).parents[3]
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False, timeout=30
        )
        assert "DirectoryLocked" in done.stderr


def test_forget_cached_changes_no_content(tmp_path: Path) -> None:
    storage = Storage()
    (file,) = files(tmp_path, 1)
    storage.create(file)
    storage.write(file, (b"abc", b"def"), 0)
    storage.sync(file)
    storage.forget_cached(file)
    assert storage.read(file, 99, 2) == b"cdef"
