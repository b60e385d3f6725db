"""Bytes that a start cuts off stay beside the segment if sound batches are among them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from seqgate.log import LogEnvironment, Storage
from seqgate.log.format.record_batch import whole_batches
from seqgate.log.recovery.load import Listing
from tests.log.support import NOW_MS, SMALL, batch, fill, flush, open_log


def cut_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.cut"))


def crashed(directory: Path, number: int) -> bytes:
    """Flip a bit in one batch, the `number`-th of the last segment in the directory of a flushed log; return
    the bytes from that batch on.
    """
    path = max(directory.glob("*.log"))
    content = bytearray(path.read_bytes())
    position, _ = list(whole_batches(bytes(content)))[number]
    content[position + 70] ^= 4
    path.write_bytes(content)
    return bytes(content[position:])


def test_flushed_batches_behind_damage_are_kept_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path / "log")
    fill(log, 3)
    flush(log)
    fill(log, 2)
    flush(log)
    log.close(clean=False)
    tail = crashed(tmp_path / "log", 3)
    with caplog.at_level(logging.ERROR):
        again = open_log(tmp_path / "log", recovery_point=3)
    assert again.log_end_offset == 3
    [kept] = cut_files(tmp_path / "log")
    assert kept.read_bytes() == tail
    assert "1 sound batches with 1 records (offsets 4 to 4) follow" in caplog.text
    assert str(kept) in caplog.text
    [(place, [found])] = again.environment.damage.cut().items()
    assert f"{place}/{found.file_name}" == str(kept)
    assert found[1:] == (len(tail), 1, 4, 4)


def test_a_torn_last_batch_is_not_kept(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    fill(log, 3)
    log.close(clean=False)
    path = tmp_path / "log" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-5])
    assert open_log(tmp_path / "log").log_end_offset == 2
    assert cut_files(tmp_path / "log") == []


def test_later_segments_are_kept_too(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", SMALL)
    fill(log, 20)
    bases = list(log.segments.bases)
    assert len(bases) > 2
    log.close(clean=False)
    first = tmp_path / "log" / f"{0:020d}.log"
    content = bytearray(first.read_bytes())
    content[70] ^= 4
    first.write_bytes(content)
    before = {path.name: path.read_bytes() for path in (tmp_path / "log").glob("*.log")}
    assert open_log(tmp_path / "log", SMALL).log_end_offset == 0
    assert [path.name for path in cut_files(tmp_path / "log")] == [
        f"{base:020d}.log.0.{NOW_MS}.cut" for base in bases
    ]
    for path in cut_files(tmp_path / "log"):
        assert path.read_bytes() == before[path.name[:24]]


def test_kept_bytes_outlive_further_starts(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    fill(log, 3)
    log.close(clean=False)
    crashed(tmp_path / "log", 1)
    open_log(tmp_path / "log").append(batch(), now_ms=NOW_MS)
    [kept] = cut_files(tmp_path / "log")
    assert open_log(tmp_path / "log", now_ms=NOW_MS + 1).log_end_offset == 2
    assert cut_files(tmp_path / "log") == [kept]


def _die(*_: object) -> None:
    raise OSError(5, "the process is killed")


def test_a_start_that_dies_before_it_cuts_keeps_the_bytes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path / "log", SMALL)
    fill(log, 20)
    log.close(clean=False)
    sizes = [path.stat().st_size for path in sorted((tmp_path / "log").glob("*.log"))]
    first = tmp_path / "log" / f"{0:020d}.log"
    content = bytearray(first.read_bytes())
    content[70] ^= 4
    first.write_bytes(content)
    environment = LogEnvironment(Storage())
    for number, (part, name) in enumerate([(Storage, "truncate"), (Listing, "remove")]):
        with monkeypatch.context() as patch:
            patch.setattr(part, name, _die)
            with pytest.raises(OSError, match="is killed"):
                open_log(tmp_path / "log", SMALL, environment=environment, now_ms=NOW_MS + number)
    again = open_log(tmp_path / "log", SMALL, environment=environment, now_ms=NOW_MS + 2)
    assert again.log_end_offset == 0
    assert [path.stat().st_size for path in cut_files(tmp_path / "log")] == sizes
    assert [len(found) for found in environment.damage.cut().values()] == [len(sizes)]


def test_other_bytes_of_the_same_place_and_size_are_kept_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path / "log")
    fill(log, 3)
    log.close(clean=False)
    tail, environment = crashed(tmp_path / "log", 0), LogEnvironment(Storage())
    with monkeypatch.context() as patch:
        patch.setattr(Storage, "truncate", _die)
        with pytest.raises(OSError, match="is killed"):
            open_log(tmp_path / "log", environment=environment)
    crashed(tmp_path / "log", 1)
    open_log(tmp_path / "log", environment=environment, now_ms=NOW_MS + 1)
    first, second = (path.read_bytes() for path in cut_files(tmp_path / "log"))
    assert first == tail
    assert (len(second), second == tail) == (len(tail), False)
