"""The durability of a gateway with a bucket: files are written and renamed, and never flushed."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from seqgate.log import CachedDurability, FlushTicket, Storage, retention
from seqgate.log.environment import LogEnvironment
from seqgate.log.files.storage import DataFile, NoRoom
from tests.log.support import NOW_MS, fill, open_log


class Unflushable(Storage):
    """A storage on which every fsync fails."""

    def _sync(self, file: DataFile) -> None:
        raise AssertionError(file.path)

    def fsync_path(self, path: str) -> None:
        raise AssertionError(path)

    def fsync_directory(self, path: str) -> None:
        raise AssertionError(path)


class Full(Storage):
    def write_file(self, path: str, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "no space", path)


def written(durability: CachedDurability, ticket: FlushTicket) -> list[str]:
    """Return the names of the side files that the ticket puts into an object. Check that each is on the disk,
    except for the log start.
    """
    files: list[tuple[str, bytes]] = []
    durability.write_side_files(ticket, files)
    for name, content in files:
        path = Path(ticket.place.directory) / name
        assert not path.exists() or path.read_bytes() == content
    return [name for name, _ in files]


def test_replaces_a_file_without_a_flush(tmp_path: Path) -> None:
    storage = Unflushable()
    durability = CachedDurability(storage)
    path = str(tmp_path / "x")
    durability.replace(path, b"one")
    durability.replace(path, b"two")
    durability.ensure(path, b"two")
    durability.sync(paths=[path], directories=[str(tmp_path)])
    assert storage.list_files(str(tmp_path)) == {"x": 3}
    assert storage.read_file(path) == b"two"
    assert durability.begin_common_flush(str(tmp_path)) is None


def test_a_full_disk_leaves_the_old_content(tmp_path: Path) -> None:
    with pytest.raises(NoRoom):
        CachedDurability(Full()).replace(str(tmp_path / "x"), b"one")


def test_a_whole_life_of_a_log_needs_no_flush(tmp_path: Path) -> None:
    storage = Unflushable()
    durability = CachedDurability(storage)
    log = open_log(tmp_path / "log", environment=LogEnvironment(storage, made_durable_by=durability))
    fill(log, 30)
    ticket = log.prepare_flush()
    assert ticket is not None
    [refused] = durability.commit([ticket])
    assert "no object has the records" in str(refused)
    assert written(durability, ticket) == []
    log.complete_flush(ticket)
    log.advance_high_watermark(30)
    removal = retention.prepare_delete_records(log, 25, NOW_MS)
    assert removal is not None
    [refused] = durability.commit([removal.flush])
    assert "log start offset" in str(refused)
    assert log.log_start_offset == 0
    assert written(durability, removal.flush) == ["log-start-offset-checkpoint"]
    assert not (tmp_path / "log" / "log-start-offset-checkpoint").exists(), "its object comes first"
    assert removal.flush.last is not None
    removal.flush.last.write(durability)
    retention.complete_removal(log, removal, NOW_MS)
    assert log.log_start_offset == 25
    stop = log.close(clean=True)
    assert stop is not None
    again = open_log(
        tmp_path / "log", environment=LogEnvironment(storage, made_durable_by=durability), clean_stop=stop
    )
    assert (again.log_start_offset, again.log_end_offset, again.recovery_point) == (25, 30, 30)


def test_a_close_with_unconfirmed_records_is_not_clean(tmp_path: Path) -> None:
    storage = Unflushable()
    log = open_log(
        tmp_path / "log", environment=LogEnvironment(storage, made_durable_by=CachedDurability(storage))
    )
    fill(log, 3)
    assert log.close(clean=True) is None
