from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from seqgate.log import Storage
from seqgate.log.files.disk import SystemDisk
from seqgate.log.files.storage import DataFile


def files(tmp_path: Path, count: int) -> list[DataFile]:
    return [DataFile(str(tmp_path / f"{number}")) for number in range(count)]


class TestOpenFiles:
    def test_are_bounded_and_come_back_when_needed(self, tmp_path: Path) -> None:
        storage = Storage(max_open_files=3)
        listed = files(tmp_path, 10)
        for number, file in enumerate(listed):
            storage.create(file)
            storage.write(file, (b"%d" % number,), 0)
            assert len(storage.descriptors) <= 3
        assert [storage.read(file, 9, 0) for file in listed] == [b"%d" % number for number in range(10)]
        assert len(storage.descriptors) <= 3

    def test_without_a_descriptor_left_another_file_gives_its_own(self, tmp_path: Path) -> None:
        class AtMostTwo(SystemDisk):
            def open(self, path: str, flags: int, mode: int = 0o777) -> int:  # type: ignore[override]
                if len(storage.descriptors) >= 2:
                    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
                return os.open(path, flags, mode)

        storage = Storage(disk=AtMostTwo())
        listed = files(tmp_path, 3)
        for number, file in enumerate(listed):
            storage.create(file)
            storage.write(file, (b"%d" % number,), 0)
        assert [storage.read(file, 9, 0) for file in listed] == [b"0", b"1", b"2"]
        assert not storage.descriptors.pin_all(listed[:1] * (storage.descriptors.limit + 1))
        for file in (file for file in listed if file.descriptor >= 0):
            storage.descriptors.pin(file)
        closed = next(file for file in listed if file.descriptor < 0)
        with pytest.raises(OSError, match="open files"):
            storage.read(closed, 9, 0)

    def test_no_more_may_be_pinned_than_may_be_open(self, tmp_path: Path) -> None:
        storage = Storage(max_open_files=2)
        first, second = files(tmp_path, 2)
        for file in (first, second):
            storage.create(file)
        storage.descriptors.pin(first)
        storage.descriptors.pin(first)
        assert not storage.descriptors.pin_all([first, second])
        assert (first.pins, second.pins) == (2, 0)
        assert storage.descriptors.pin_all([second])
        assert not storage.descriptors.pin_all([first])
        storage.descriptors.unpin(first)
        assert not storage.descriptors.pin_all([first])
        storage.descriptors.unpin(first)
        assert storage.descriptors.pin_all([first])

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
            storage.descriptors.pin(file)
        for file in listed[3:]:
            storage.create(file)
        assert all(file.descriptor >= 0 for file in listed[:3])
        for file in listed[:3]:
            storage.descriptors.unpin(file)
        assert len(storage.descriptors) <= 2
        storage.create(DataFile(str(tmp_path / "more")))
        assert len(storage.descriptors) <= 2

    def test_released_while_pinned_closes_with_the_last_pin(self, tmp_path: Path) -> None:
        storage = Storage()
        (file,) = files(tmp_path, 1)
        storage.create(file)
        storage.descriptors.pin(file)
        storage.descriptors.pin(file)
        storage.descriptors.release(file)
        Path(file.path).unlink()
        storage.descriptors.unpin(file)
        storage.fdatasync(file)
        storage.descriptors.unpin(file)
        assert file.descriptor < 0
        assert len(storage.descriptors) == 0
