"""A replay returns the whole log, and does not evict other data from the page cache."""

from __future__ import annotations

from pathlib import Path

from seqgate.log import Storage
from seqgate.log.files.storage import DataFile
from tests.log.support import fill, flush, open_log


class Forgetful(Storage):
    def __init__(self) -> None:
        super().__init__()
        self.forgotten: list[str] = []

    def forget_cached(self, file: DataFile) -> None:
        self.forgotten.append(Path(file.path).name)
        super().forget_cached(file)


def test_closed_segments_are_dropped_behind_who_replays_them(tmp_path: Path) -> None:
    storage = Forgetful()
    log = open_log(tmp_path / "t-0", storage=storage)
    fill(log, 30)
    flush(log)
    assert len(log.segments) > 2
    offsets = []
    for header, _ in log.replay_batches(0):
        assert not storage.forgotten
        offsets.append(header.base_offset)
    assert offsets == list(range(30))
    assert len(storage.forgotten) == len(log.segments) - 1
    assert f"{log.segments.active.base_offset:020}.log" not in storage.forgotten
    assert [header.base_offset for header, _ in log.replay_batches(25)] == list(range(25, 30))


def test_closed_segments_are_dropped_behind_recovery(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    fill(log, 30)
    flush(log)
    segments = len(log.segments)
    log.close(clean=False)
    for snapshot in (tmp_path / "t-0").glob("*.snapshot"):
        snapshot.unlink()
    storage = Forgetful()
    again = open_log(tmp_path / "t-0", storage=storage, recovery_point=30)
    assert again.log_end_offset == 30
    assert len(set(storage.forgotten)) == segments
    assert storage.forgotten.count(f"{again.segments.active.base_offset:020}.log") <= 1
