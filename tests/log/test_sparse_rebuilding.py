"""Rebuilt directories whose closed segments stay in the bucket."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from seqgate.log import LocalDurability, LogDirectory, PartitionLog, Storage
from seqgate.log.rebuilding import RebuiltDirectory
from seqgate.log.sparse import SegmentKey
from tests.log.support import NOW_MS, SMALL, fill, flush, offsets_read

FLIGHTS = uuid.UUID(int=5)


class Bucket:
    """The segments of the original."""

    def __init__(self, source: Path) -> None:
        self._source = source
        self.fetched: list[int] = []

    def fetch(self, key: SegmentKey, position: int, size_bytes: int) -> bytes:
        assert (*key[:2], key.generation) == (FLIGHTS, 0, 3)
        self.fetched.append(key.base_offset)
        return (self._source / f"{key.base_offset:020}.log").read_bytes()[position : position + size_bytes]


def open_directory(root: Path, storage: Storage) -> LogDirectory:
    return LogDirectory.open(root, storage, node_id=1, now_ms=lambda: NOW_MS, config=SMALL)


@pytest.fixture
def original(tmp_path: Path) -> tuple[Path, PartitionLog]:
    directory = open_directory(tmp_path / "original", Storage())
    log = directory.create("flights", FLIGHTS, 0, SMALL)
    fill(log, 1)
    flush(log)
    fill(log, 40)
    flush(log)
    assert len(log.segments.bases) > 3
    return tmp_path / "original" / "flights-0", log


class Rebuilt:
    """The original's log on an empty disk, but for the segments that are left out."""

    def __init__(self, root: Path, source: Path, log: PartitionLog, *, lacks: int | None = None) -> None:
        self.storage = Storage().with_holes()
        assert self.storage.sparse is not None
        self.sparse, self.bucket = self.storage.sparse, Bucket(source)
        self.sparse.source = self.bucket
        self.root = root
        self.directory = RebuiltDirectory.begin(self.storage, root, b"{}")
        bases = log.segments.bases
        for base in bases:
            content = (source / f"{base:020}.log").read_bytes()
            if base == lacks:
                continue
            if base == bases[-1]:
                self.directory.write(FLIGHTS, 0, base, 0, content)
                continue
            self.directory.write_absent(FLIGHTS, 0, base, len(content), 3)
            for suffix in ("index", "timeindex"):
                name = f"{base:020}.{suffix}"
                self.directory.write_file(FLIGHTS, 0, name, (source / name).read_bytes())
        for name in ("leader-epoch-checkpoint", f"{bases[-1]:020}.snapshot"):
            if (source / name).exists():
                self.directory.write_file(FLIGHTS, 0, name, (source / name).read_bytes())

    def open(self) -> PartitionLog:
        self.directory.place(FLIGHTS, 0, "flights")
        self.directory.finish(LocalDurability(self.storage), "cluster", 1)
        log = open_directory(self.root, self.storage).get("flights", 0)
        assert log is not None
        log.advance_high_watermark_to_end()
        return log


def test_the_start_reads_no_closed_segment(tmp_path: Path, original: tuple[Path, PartitionLog]) -> None:
    source, log = original
    rebuilt = Rebuilt(tmp_path / "rebuilt", source, log)
    rebuilt.directory.vouch_for(FLIGHTS, 0, log.log_end_offset)
    again = rebuilt.open()
    assert rebuilt.bucket.fetched == []
    assert again.segments.bases == log.segments.bases
    assert again.size_bytes == log.size_bytes
    log.advance_high_watermark_to_end()
    assert offsets_read(again, 0) == offsets_read(log, 0)
    assert sorted(rebuilt.bucket.fetched) == log.segments.bases[:-1]


def test_records_go_on_behind_absent_segments(tmp_path: Path, original: tuple[Path, PartitionLog]) -> None:
    source, log = original
    rebuilt = Rebuilt(tmp_path / "rebuilt", source, log)
    rebuilt.directory.vouch_for(FLIGHTS, 0, log.log_end_offset)
    again = rebuilt.open()
    fill(again, 40)
    flush(again)
    again.advance_high_watermark_to_end()
    assert rebuilt.bucket.fetched == []
    assert offsets_read(again, 0)[: log.log_end_offset] == list(range(log.log_end_offset))


def test_segments_that_compaction_emptied_are_no_loss(
    tmp_path: Path, original: tuple[Path, PartitionLog]
) -> None:
    source, log = original
    rebuilt = Rebuilt(tmp_path / "rebuilt", source, log, lacks=log.segments.bases[1])
    rebuilt.directory.vouch_for(FLIGHTS, 0, log.log_end_offset)
    again = rebuilt.open()
    assert again.log_end_offset == log.log_end_offset
    assert again.segments.bases == [base for base in log.segments.bases if base != log.segments.bases[1]]


def test_without_holes_the_storage_refuses(tmp_path: Path) -> None:
    directory = RebuiltDirectory.begin(Storage(), tmp_path, b"{}")
    with pytest.raises(ValueError, match="no files with holes"):
        directory.write_absent(FLIGHTS, 0, 0, 10, 3)
    directory.abandon()
