"""Asking which data is in the page cache. If the system can't answer, all data counts as cached."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from seqgate.log import NotCached, PageRange, Storage
from seqgate.log.files import page_cache
from seqgate.log.files.storage import DataFile

SIZE = 300_000


def written(tmp_path: Path, storage: Storage) -> DataFile:
    """An open file that another process wrote; none of it is cached, if the system obeys."""
    path = tmp_path / "file"
    path.write_bytes(bytes(range(250)) * (SIZE // 250))
    storage.fsync_path(str(path))
    storage.drop_cached(PageRange(str(path), 0, SIZE))
    file = DataFile(str(path))
    storage.descriptors.pin(file)
    return file


def refuse(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def preadv(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "preadv", preadv)


class TestAStorageThatMustNotWait:
    def test_reads_what_was_brought_in(self, tmp_path: Path) -> None:
        storage = Storage()
        file = written(tmp_path, storage)
        assert storage.bring_in(PageRange(file.path, 1000, SIZE)) == SIZE - 1000
        storage.waits = False
        for position, size in ((1000, 10), (1000, SIZE), (SIZE - 5, 10), (SIZE, 10), (2000, 70_000)):
            expected = Path(file.path).read_bytes()[position : position + size]
            assert storage.read(file, size, position) == expected
        assert storage.is_cached(file, 1000, SIZE - 1000)

    def test_never_gives_wrong_bytes(self, tmp_path: Path) -> None:
        storage = Storage()
        file = written(tmp_path, storage)
        storage.waits = False
        while True:
            try:
                data = storage.read(file, 1000, 250)
            except NotCached as missing:
                for place in missing.places:
                    storage.bring_in(place)
            else:
                break
        assert data == bytes(range(250)) * 4

    def test_opens_only_what_it_knows(self, tmp_path: Path) -> None:
        """Opening an unknown file might read its directory entry and inode from the disk."""
        storage = Storage()
        storage.tells_cached = True
        path = written(tmp_path, storage).path
        file = DataFile(path)
        storage.waits = False
        assert not storage.is_cached(file, 0, 1)
        with pytest.raises(NotCached):
            storage.read(file, 1, 0)
        with pytest.raises(NotCached) as missing:
            storage.check_brought_in([path, path + "x"])
        assert list(missing.value.places) == [PageRange(path, 0, 0), PageRange(path + "x", 0, 0)]
        assert storage.bring_in(PageRange(path, 0, 0)) == SIZE
        storage.brought_in(path)
        assert storage.read(file, 2, 0) == b"\0\1"
        storage.check_brought_in([path])

    def test_remembers_a_bounded_number_of_files(self, tmp_path: Path) -> None:
        storage = Storage()
        storage.tells_cached, storage.waits = True, False
        for number in range(2000):
            storage.brought_in(str(number))
        storage.check_brought_in(["1999"])
        with pytest.raises(NotCached):
            storage.check_brought_in(["0"])

    @pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL])
    def test_waits_where_the_file_system_does_not_tell(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        for ask in (
            lambda storage, file: storage.is_cached(file, 0, 10),
            lambda storage, file: storage.read(file, 3, 1) == b"\1\2\3",
        ):
            storage = Storage()
            storage.tells_cached = True
            file = written(tmp_path, storage)
            storage.waits = False
            refuse(monkeypatch, number)
            assert ask(storage, file)
            assert not storage.tells_cached

    def test_tells_of_a_disk_that_fails(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        storage = Storage()
        storage.tells_cached = True
        file = written(tmp_path, storage)
        storage.waits = False
        refuse(monkeypatch, errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            storage.read(file, 3, 0)
        with pytest.raises(OSError, match="Input/output"):
            storage.is_cached(file, 0, 3)


def test_asking_looks_at_each_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def preadv(_descriptor: int, buffers: tuple[bytearray], position: int, _flags: int) -> int:
        asked.append(position)
        if position == missing:
            raise BlockingIOError
        return len(buffers[0])

    monkeypatch.setattr(os, "preadv", preadv)
    grain = page_cache.GRAIN_BYTES
    samples = [7, 7 + grain, 7 + 2 * grain, 7 + 2 * grain + 99]
    for missing in (-1, *samples):
        asked.clear()
        assert page_cache.is_cached(3, 7, 2 * grain + 100) is (missing < 0)
        assert asked == (samples if missing < 0 else samples[: samples.index(missing) + 1])
    missing = -1
    asked.clear()
    assert page_cache.is_cached(3, 7, 1)
    assert asked == [7]


def test_dropping_what_is_gone_is_fine(tmp_path: Path) -> None:
    Storage().drop_cached(PageRange(str(tmp_path / "gone"), 0, 10))


class TestTheTail:
    def test_is_not_asked_about(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        storage = Storage()
        storage.tells_cached = True
        file = DataFile(str(tmp_path / "file"))
        storage.create(file)
        storage.write(file, (b"12345",), 0)
        storage.waits = False
        refuse(monkeypatch, errno.EIO)
        assert storage.is_cached(file, 1, 4)
        assert storage.read(file, 9, 1) == b"2345"

    def test_is_asked_about_when_much_was_written_since(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage = Storage()
        storage.tells_cached = True
        file, other = DataFile(str(tmp_path / "file")), DataFile(str(tmp_path / "other"))
        for one in (file, other):
            storage.create(one)
            storage.write(one, (b"12345",), 0)
        for number in range(1, 65):
            storage.write(other, (bytes(1 << 20),), number << 20)
        refuse(monkeypatch, errno.EIO)
        storage.waits = False
        for position in (0, 1 << 20):
            with pytest.raises(OSError, match="Input/output"):
                storage.is_cached(file if not position else other, position, 5)
        assert storage.is_cached(other, 60 << 20, 5)
