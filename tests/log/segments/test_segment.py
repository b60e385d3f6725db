from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

import pytest

from seqgate.log import CorruptRecord, Storage
from seqgate.log.environment import LogEnvironment
from seqgate.log.segments.segment import Segment
from tests.log.support import NOW_MS, batch, fill, open_log


class NoRoomForIndexes(Storage):
    def write_file(self, path: str, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "full", path)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    log = open_log(tmp_path / "log")
    fill(log, 6)
    log.close(clean=True)
    return tmp_path / "log"


def closed_segment(directory: Path, *, environment: LogEnvironment | None = None) -> Segment:
    size_bytes = (directory / f"{0:020d}.log").stat().st_size
    return Segment(environment or LogEnvironment(), str(directory), 0, size_bytes, NOW_MS)


class TestIndexes:
    @pytest.mark.parametrize("damage", ["gone", "torn", "beyond"])
    def test_are_rebuilt_on_disk(self, directory: Path, damage: str) -> None:
        path = directory / f"{0:020d}.index"
        whole = path.read_bytes()
        path.unlink() if damage == "gone" else path.write_bytes(
            whole[:-1] if damage == "torn" else b"\0\0\0\x01\x7f\0\0\0"
        )
        environment = LogEnvironment()
        segment = closed_segment(directory, environment=environment)
        damaged = path.read_bytes() if path.exists() else None
        assert segment.position_of(4, segment.size_bytes) == 4 * len(batch())
        assert (path.read_bytes() if path.exists() else None) == damaged
        environment.rebuilt_indexes.write(environment.durability)
        assert path.stat().st_size % 8 == 0
        assert not environment.rebuilt_indexes
        assert segment.max_timestamp == NOW_MS + 5

    def test_rebuilt_on_a_full_disk_serve_from_memory(self, directory: Path) -> None:
        (directory / f"{0:020d}.timeindex").unlink()
        environment = LogEnvironment(NoRoomForIndexes())
        segment = closed_segment(directory, environment=environment)
        assert (segment.max_timestamp, segment.offset_of_max_timestamp) == (NOW_MS + 5, 5)
        environment.rebuilt_indexes.write(environment.durability)
        assert (segment.max_timestamp, segment.offset_of_max_timestamp) == (NOW_MS + 5, 5)
        assert not environment.rebuilt_indexes

    def test_that_wait_to_be_written_outlive_the_cache(self, directory: Path) -> None:
        (directory / f"{0:020d}.index").unlink()
        environment = LogEnvironment()
        segment = closed_segment(directory, environment=environment)
        rebuilt = segment.indexes()
        environment.index_cache.drop(segment.file.path)
        assert segment.indexes().offset_entries == rebuilt.offset_entries
        assert segment.indexes().time_entries == rebuilt.time_entries

    def test_of_a_removed_segment_are_not_written(self, directory: Path) -> None:
        path = directory / f"{0:020d}.index"
        path.unlink()
        environment = LogEnvironment()
        segment = closed_segment(directory, environment=environment)
        segment.indexes()
        segment.remove(NOW_MS)
        environment.rebuilt_indexes.write(environment.durability)
        assert not path.exists()

    def test_failed_rebuild_leaves_the_segment_as_it_was(self, directory: Path) -> None:
        path = directory / f"{0:020d}.log"
        content = bytearray(path.read_bytes())
        content[len(batch()) + 8 : len(batch()) + 12] = b"\xff\xff\xff\xff"
        path.write_bytes(content)
        (directory / f"{0:020d}.index").unlink()
        segment = closed_segment(directory)
        for _ in range(2):
            with pytest.raises(CorruptRecord):
                segment.indexes()
            assert segment.size_bytes == len(content)

    def test_closed_ones_are_loaded_once(self, directory: Path) -> None:
        segment = closed_segment(directory)
        assert segment.indexes() is segment.indexes()


def test_batches_in_small_chunks(directory: Path) -> None:
    segment = closed_segment(directory)
    for chunk_bytes in (61, 62, 100, 10_000):
        found = [header.base_offset for _, header in segment.batches(0, segment.size_bytes, chunk_bytes)]
        assert found == list(range(6))


def test_largest_timestamp_of_an_empty_segment_is_when_its_file_was_written(tmp_path: Path) -> None:
    segment = Segment(LogEnvironment(), str(tmp_path), 0, 0, NOW_MS)
    Path(segment.file.path).touch()
    os.utime(segment.file.path, (5, 5))
    assert segment.largest_timestamp() == 5_000


class TestDamagedEntries:
    """An index with a plausible entry that does not belong to this log, because a bit has flipped."""

    @pytest.mark.parametrize("is_active", [False, True])
    @pytest.mark.parametrize("changed", [(1, 3), (2, 4), (1, 2)])
    def test_readers_pass_over_nothing(
        self, directory: Path, changed: tuple[int, int], is_active: bool
    ) -> None:
        environment = LogEnvironment()
        segment = _segment_with_entry(directory, *changed, environment=environment)
        if is_active:
            segment.become_active()
        size = len(batch())
        for offset in range(6):
            assert segment.position_of(offset, segment.size_bytes) == offset * size
        environment.rebuilt_indexes.write(environment.durability)
        assert (directory / f"{0:020d}.index").read_bytes() == b""

    def test_what_lies_behind_a_position_is_not_told_too_low(self, directory: Path) -> None:
        segment = _segment_with_entry(directory, 1, 3)
        assert segment.offset_after(3 * len(batch())) is None

    def test_what_lies_before_a_position_is_a_batch(self, directory: Path) -> None:
        segment = _segment_with_entry(directory, 2, 2, shift=7)
        assert segment.position_before(3 * len(batch())) % len(batch()) == 0


def _segment_with_entry(
    directory: Path,
    relative_offset: int,
    batch_number: int,
    *,
    shift: int = 0,
    environment: LogEnvironment | None = None,
) -> Segment:
    """Return a closed segment whose offset index has one entry, with this batch's position."""
    entry = struct.pack(">ii", relative_offset, batch_number * len(batch()) + shift)
    (directory / f"{0:020d}.index").write_bytes(entry)
    return closed_segment(directory, environment=environment)


def test_a_header_is_there_or_it_is_not(directory: Path) -> None:
    segment = closed_segment(directory)
    found = [segment.header_at(number * len(batch())) for number in range(6)]
    assert [header.base_offset for header in found if header is not None] == list(range(6))
    assert segment.header_at(segment.size_bytes - 60) is None


def test_a_file_that_ends_within_its_first_header_has_no_first_timestamp(directory: Path) -> None:
    segment = closed_segment(directory)
    os.truncate(segment.file.path, 60)
    with pytest.raises(CorruptRecord, match="ends within its first batch"):
        segment.first_timestamp()
