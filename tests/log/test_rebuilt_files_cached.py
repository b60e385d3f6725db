"""A start on a directory that was just built from a bucket reads its files from the page cache, and any other
start from the disk.
"""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from pathlib import Path

import pytest

from seqgate.log import CachedDurability, Durability, LocalDurability, LogDirectory, Storage
from seqgate.log.files.file_names import LOG_SUFFIX
from seqgate.log.files.storage import DataFile
from seqgate.log.rebuilding import RebuiltDirectory
from tests.log.support import NOW_MS, SMALL, fill, flush

FLIGHTS = uuid.UUID(int=5)


class Forgetful(Storage):
    def __init__(self) -> None:
        super().__init__()
        self.forgotten: Counter[str] = Counter()

    def forget_cached(self, file: DataFile) -> None:
        self.forgotten[Path(file.path).name] += 1
        super().forget_cached(file)


def open_directory(root: Path, storage: Storage, durability: Durability | None = None) -> LogDirectory:
    return LogDirectory.open(
        root, storage, node_id=1, now_ms=lambda: NOW_MS, config=SMALL, durability=durability
    )


@pytest.fixture
def segments(tmp_path: Path) -> dict[int, bytes]:
    """The segments of a log, by base offset."""
    directory = open_directory(tmp_path / "original", Storage())
    log = directory.create("flights", FLIGHTS, 0, SMALL)
    for count in (1, 40):
        fill(log, count)
        flush(log)
    bases = list(log.segments.bases)
    assert len(bases) > 2
    directory.close(clean=False)
    files = tmp_path / "original" / "flights-0"
    found = {base: (files / f"{base:020}{LOG_SUFFIX}").read_bytes() for base in bases}
    shutil.rmtree(tmp_path / "original")
    return found


def times_dropped(root: Path, storage: Forgetful, durability: Durability) -> list[int]:
    """Start on a directory after a crash, and return how often each segment is dropped from the page cache,
    in order.
    """
    storage.forgotten.clear()
    directory = open_directory(root, storage, durability)
    log = directory.get("flights", 0)
    assert log is not None
    assert log.log_end_offset == 41
    dropped = [storage.forgotten[f"{base:020}{LOG_SUFFIX}"] for base in log.segments.bases]
    directory.close(clean=False)
    return dropped


@pytest.mark.parametrize("kind", [CachedDurability, LocalDurability])
def test_the_first_check_of_a_rebuilt_file_reads_the_page_cache(
    tmp_path: Path, segments: dict[int, bytes], kind: type[CachedDurability | LocalDurability]
) -> None:
    storage = Forgetful()
    durability = kind(storage)
    rebuilt = RebuiltDirectory.begin(storage, tmp_path / "rebuilt", b"{}")
    for base, content in segments.items():
        rebuilt.write(FLIGHTS, 0, base, 0, content)
    rebuilt.place(FLIGHTS, 0, "flights")
    rebuilt.finish(durability, "cluster", 1)
    # The replay of the producers drops closed segments, too.
    by_replay = [1] * (len(segments) - 1) + [0]
    by_check = [0 if kind is CachedDurability else 1] * len(segments)
    first = times_dropped(tmp_path / "rebuilt", storage, durability)
    assert first == [sum(pair) for pair in zip(by_replay, by_check, strict=True)]
    (tmp_path / "rebuilt" / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    for snapshot in (tmp_path / "rebuilt" / "flights-0").glob("*.snapshot"):
        snapshot.unlink()
    assert times_dropped(tmp_path / "rebuilt", storage, durability) == [count + 1 for count in by_replay]
