"""Which batches are kept in memory after their write, and for how long."""

from __future__ import annotations

from pathlib import Path

from seqgate.log import CachedDurability, FileRange, KeptWrites, LogEnvironment, Storage
from seqgate.log.files.storage import DataFile
from tests.log.support import fill, open_log

FILE = DataFile("flights-0/00000000000000000000.log")
OTHER = DataFile("flights-1/00000000000000000000.log")
HEAD = bytes(12)


def part(position: int, end_position: int = 1 << 20, file: DataFile = FILE) -> FileRange:
    return FileRange(file, 0, position, end_position, 5, 9)


def keep(
    kept: KeptWrites, position: int, size_bytes: int, *, owner: bytes | None = None, file: DataFile = FILE
) -> None:
    view = memoryview(owner if owner is not None else bytes(size_bytes))[: size_bytes - len(HEAD)]
    kept.keep(file, position, position, position + 1, (HEAD, view))


def positions(kept: KeptWrites, file: DataFile = FILE) -> list[int]:
    """Return the positions of the batches that are kept, and keep them no longer."""
    found: list[int] = []
    while (batch := kept.next_in(part(0, file=file))) is not None:
        found.append(batch.position)
        kept.drop_below(file, batch.position + 1)
    return found


def test_a_range_has_its_first_batch_that_is_kept() -> None:
    kept = KeptWrites(least_bytes=100, max_bytes=1000)
    keep(kept, 40, 100)
    keep(kept, 240, 100)
    found = kept.next_in(part(0))
    assert found is not None
    assert found.position == 40
    assert b"".join(found.pieces) == bytes(100)
    assert kept.next_in(part(0, 40)) is None
    assert kept.next_in(part(0, file=DataFile(FILE.path))) is None, (
        "a log that was loaded again has other files"
    )
    found = kept.next_in(part(140))
    assert found is not None
    assert found.position == 240
    assert kept.size_bytes == 100, "nobody asks again for what is before the range"


def test_nothing_is_kept_of_a_log_that_is_closed(tmp_path: Path) -> None:
    storage = Storage()
    kept = KeptWrites(least_bytes=1, max_bytes=1000)
    environment = LogEnvironment(storage, made_durable_by=CachedDurability(storage, kept))
    log = open_log(tmp_path / "log", environment=environment)
    fill(log, 3)
    assert kept.size_bytes == log.segments.active.size_bytes > 0
    log.close(clean=False)
    assert kept.size_bytes == 0


def test_a_small_batch_may_lie_in_memory_that_is_used_again() -> None:
    kept = KeptWrites(least_bytes=100, max_bytes=1000)
    keep(kept, 0, 99)
    assert kept.size_bytes == 0


def test_a_small_part_of_a_large_request_does_not_hold_all_of_it() -> None:
    kept = KeptWrites(least_bytes=100, max_bytes=10_000)
    keep(kept, 0, 100, owner=bytes(201))
    keep(kept, 100, 100, owner=bytes(200))
    assert positions(kept) == [100]


def test_batches_of_the_oldest_file_are_dropped_at_the_limit() -> None:
    kept = KeptWrites(least_bytes=100, max_bytes=1000)
    keep(kept, 0, 300)
    keep(kept, 0, 300, file=OTHER)
    keep(kept, 300, 300)
    keep(kept, 600, 300)
    keep(kept, 900, 1001)
    assert kept.size_bytes == 900, "a batch beyond the limit drops nobody"
    assert positions(kept) == [300, 600]
    assert positions(kept, OTHER) == [0]
    assert kept.size_bytes == 0
