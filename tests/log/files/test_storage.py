from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from seqgate.log import DirectoryLocked, Storage
from seqgate.log.files.disk import SystemDisk
from seqgate.log.files.storage import DataFile


def files(tmp_path: Path, count: int) -> list[DataFile]:
    return [DataFile(str(tmp_path / f"{number}")) for number in range(count)]


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
            storage.fdatasync(file)
        with pytest.raises(OSError, match="earlier"):
            storage.fdatasync(file)

    def test_one_beside_another_waits_and_learns_of_its_failure(self, tmp_path: Path) -> None:
        """Linux tells a failed write to one of two calls on a file that run at once."""
        is_first, may_fail = threading.Event(), threading.Event()

        class TellsOnce(SystemDisk):
            def fdatasync(self, descriptor: int) -> None:
                if not is_first.is_set():
                    is_first.set()
                    assert may_fail.wait(60)
                    raise OSError(5, "EIO")

        storage = Storage(disk=TellsOnce())
        (file,) = files(tmp_path, 1)
        storage.create(file)
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(storage.fdatasync, file)
            assert is_first.wait(60)
            assert file.flush_lock is not None
            assert file.flush_lock.locked()
            second = pool.submit(storage.fdatasync, file)
            may_fail.set()
        for flush, message in ((first, "EIO"), (second, "earlier")):
            with pytest.raises(OSError, match=message):
                flush.result()


class TestNames:
    def test_make_directories_tells_which_directories_changed(self, tmp_path: Path) -> None:
        storage = Storage()
        assert storage.make_directories(str(tmp_path / "a" / "b")) == [str(tmp_path), str(tmp_path / "a")]
        assert storage.make_directories(str(tmp_path / "a" / "b")) == []

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
        code = f"from seqgate.log import Storage; Storage().lock({str(tmp_path / '.other')!r})"
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
    storage.fdatasync(file)
    storage.forget_cached(file)
    assert storage.read(file, 99, 2) == b"cdef"


class TestLocks:
    def test_stay_held_from_one_process_to_the_next(self, tmp_path: Path) -> None:
        path = str(tmp_path / ".lock")

        def assert_held() -> None:
            with pytest.raises(DirectoryLocked):
                Storage().lock(path)

        before = Storage()
        before.lock(path)
        left = before.keep_locks()
        before.unlock(path)
        del before
        assert_held()
        after = Storage(kept_locks=left)
        for _ in range(2):
            after.lock(path)
            after.unlock(path)
            assert_held()
        after.lock(path)
        after.release_kept_locks()
        assert_held()
        after.unlock(path)
        Storage().lock(path)

    def test_are_found_by_another_spelling_of_the_path(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "data").mkdir()
        (tmp_path / "link").symlink_to("data")
        before = Storage()
        before.lock("data/.lock")
        after = Storage(kept_locks=before.keep_locks())
        after.lock(f"{tmp_path}/link/.lock")
        after.release_kept_locks()
        with pytest.raises(DirectoryLocked):
            Storage().lock("data/.lock")
        after.unlock("data/.lock")
        Storage().lock("link/.lock")

    def test_that_the_next_process_does_not_take_are_released(self, tmp_path: Path) -> None:
        path = str(tmp_path / ".lock")
        before = Storage()
        before.lock(path)
        Storage(kept_locks=before.keep_locks()).release_kept_locks()
        Storage().lock(path)
