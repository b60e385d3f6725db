from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from seqgate.log import (
    OF_A_FILE_SYSTEM,
    PRODUCER_CLIENTS,
    CorruptRecord,
    DirectoryLocked,
    LocalDurability,
    LogDirectory,
    PartitionLog,
    Storage,
    retention,
)
from seqgate.log.files.file_names import LOG_START_OFFSET, LOG_SUFFIX, PARTITION_METADATA
from seqgate.log.rebuilding import BUCKET_SESSION, STAGING, RebuiltDirectory
from tests.log.support import NOW_MS, SMALL, fill, flush, offsets_read

FLIGHTS, DELETED = uuid.UUID(int=5), uuid.UUID(int=6)


def open_directory(root: Path) -> LogDirectory:
    return LogDirectory.open(root, Storage(), node_id=1, now_ms=lambda: NOW_MS, config=SMALL)


def copy(source: Path, target: RebuiltDirectory, topic_id: uuid.UUID, partition: int, *names: str) -> None:
    """Copy the segment files in two halves each, and the named side files."""
    for path in sorted(source.glob(f"*{LOG_SUFFIX}")):
        content = path.read_bytes()
        half = len(content) // 2
        base = int(path.name.removesuffix(LOG_SUFFIX))
        if content:
            target.write(topic_id, partition, base, 0, content[:half])
            target.write(topic_id, partition, base, half, memoryview(content)[half:])
    for name in names:
        target.write_file(topic_id, partition, name, (source / name).read_bytes())


def finish(directory: RebuiltDirectory) -> None:
    directory.finish(LocalDurability(Storage()), "cluster", 1)


@pytest.fixture
def original(tmp_path: Path) -> tuple[Path, PartitionLog]:
    directory = open_directory(tmp_path / "original")
    log = directory.create("flights", FLIGHTS, 0, SMALL)
    fill(log, 1)
    flush(log)  # a log stays in its first segment until its first flush
    fill(log, 40)
    flush(log)
    assert len(log.segments.bases) > 2
    return tmp_path / "original" / "flights-0", log


def test_a_rebuilt_log_is_the_original(tmp_path: Path, original: tuple[Path, PartitionLog]) -> None:
    source, log = original
    rebuilt = RebuiltDirectory.begin(Storage(), tmp_path / "rebuilt", b"{}")
    copy(source, rebuilt, FLIGHTS, 0)
    assert rebuilt.staged == [(FLIGHTS, 0)]
    rebuilt.place(FLIGHTS, 0, "flights")
    finish(rebuilt)
    directory = open_directory(tmp_path / "rebuilt")
    again = directory.get("flights", 0)
    assert again is not None
    assert again.topic_id == FLIGHTS
    for read in (again, log):
        read.advance_high_watermark_to_end()
    assert offsets_read(again, 0) == offsets_read(log, 0)
    assert again.segments.bases == log.segments.bases
    assert directory.cluster_id == "cluster"
    for path in source.glob(f"*{LOG_SUFFIX}"):
        assert (tmp_path / "rebuilt" / "flights-0" / path.name).read_bytes() == path.read_bytes()


def test_deleted_records_stay_deleted(tmp_path: Path, original: tuple[Path, PartitionLog]) -> None:
    source, log = original
    log.advance_high_watermark_to_end()
    names = [path.name for path in source.iterdir() if path.suffix == LOG_SUFFIX]
    whole = {name: (source / name).read_bytes() for name in names}
    ticket = retention.prepare_delete_records(log, 25, NOW_MS)
    assert ticket is not None
    assert log.environment.durability.commit([ticket.flush]) == [None]
    retention.complete_removal(log, ticket, NOW_MS)
    rebuilt = RebuiltDirectory.begin(Storage(), tmp_path / "rebuilt", b"{}")
    for name, content in whole.items():
        if content:
            rebuilt.write(FLIGHTS, 0, int(name.removesuffix(LOG_SUFFIX)), 0, content)
    copy(source, rebuilt, FLIGHTS, 0, LOG_START_OFFSET, PARTITION_METADATA)
    rebuilt.place(FLIGHTS, 0, "flights")
    finish(rebuilt)
    again = open_directory(tmp_path / "rebuilt").get("flights", 0)
    assert again is not None
    assert again.log_start_offset == 25
    assert again.log_end_offset == log.log_end_offset


def test_a_partition_without_a_name_is_deleted(tmp_path: Path, original: tuple[Path, PartitionLog]) -> None:
    source, _ = original
    rebuilt = RebuiltDirectory.begin(Storage(), tmp_path / "rebuilt", b"{}")
    copy(source, rebuilt, FLIGHTS, 1)
    copy(source, rebuilt, FLIGHTS, 10)
    copy(source, rebuilt, DELETED, 0)
    rebuilt.place(FLIGHTS, 1, "flights")
    rebuilt.place(FLIGHTS, 10, "flights")
    assert rebuilt.staged == [(DELETED, 0)]
    finish(rebuilt)
    assert not list((tmp_path / "rebuilt").glob(f"{STAGING}*"))
    assert sorted(open_directory(tmp_path / "rebuilt").stored()) == []
    names = {path.name for path in (tmp_path / "rebuilt").iterdir() if path.is_dir()}
    assert names == {"flights-1", "flights-10"}


def test_missing_bytes_are_an_error(tmp_path: Path) -> None:
    rebuilt = RebuiltDirectory.begin(Storage(), tmp_path, b"{}")
    rebuilt.write(FLIGHTS, 0, 100, 0, b"12345")
    with pytest.raises(CorruptRecord, match="the bytes 5 to 6 of the segment 100 are missing"):
        rebuilt.write(FLIGHTS, 0, 100, 7, b"8")
    with pytest.raises(CorruptRecord, match="the bytes 0 to 6 of the segment 200 are missing"):
        rebuilt.write(FLIGHTS, 0, 200, 7, b"8")


def test_an_unfinished_rebuild_begins_anew(tmp_path: Path, original: tuple[Path, PartitionLog]) -> None:
    source, _ = original
    rebuilt = RebuiltDirectory.begin(Storage(), tmp_path / "rebuilt", b"{}")
    copy(source, rebuilt, FLIGHTS, 0)
    rebuilt.place(FLIGHTS, 0, "flights")
    copy(source, rebuilt, DELETED, 0)
    with pytest.raises(DirectoryLocked):
        RebuiltDirectory.begin(Storage(), tmp_path / "rebuilt", b"{}")
    rebuilt.abandon()
    assert (tmp_path / "rebuilt" / BUCKET_SESSION).read_bytes() == b"{}"
    (tmp_path / "rebuilt" / PRODUCER_CLIENTS).write_bytes(b"of this gateway, and not in the bucket")
    again = RebuiltDirectory.begin(Storage(), tmp_path / "rebuilt", b"{}")
    assert not again.staged
    finish(again)
    assert (tmp_path / "rebuilt" / PRODUCER_CLIENTS).read_bytes().startswith(b"of this gateway")
    assert list(open_directory(tmp_path / "rebuilt").stored()) == []


def test_the_root_of_a_file_system_keeps_its_own_directory(tmp_path: Path) -> None:
    (tmp_path / OF_A_FILE_SYSTEM).mkdir()
    finish(RebuiltDirectory.begin(Storage(), tmp_path, b"{}"))
    assert (tmp_path / OF_A_FILE_SYSTEM).is_dir()
