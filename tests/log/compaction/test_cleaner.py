"""Cleaning a log file by file, and the records that remain."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seqgate.log import CorruptRecord, InvalidRecord, LogConfig, Storage
from seqgate.log.compaction.job import JobLimits
from seqgate.log.files.page_cache import PageRange
from seqgate.log.files.storage import DataFile
from seqgate.log.format.record_batch import DELETE_HORIZON_FLAG
from seqgate.log.format.records import iterate_records
from tests.log.compaction.cleaning import Kept, begin, compact, keyed, run, stored, stored_batches
from tests.log.support import NOW_MS, flush, open_log

CONFIG = LogConfig(segment_bytes=1 << 20, index_interval_bytes=0, file_delete_delay_ms=0, compact=True)
SCANTY = JobLimits(map_bytes=72, map_load_factor=1.0, read_bytes=4096, bytes_per_s=0)


def test_the_newest_value_of_each_key_stays_at_its_offset(tmp_path: Path) -> None:
    storage = Storage()
    log = open_log(tmp_path / "p", CONFIG, storage=storage)
    log.append(keyed(("a", "1"), ("b", "1"), ("a", "2")), now_ms=NOW_MS)
    log.roll(NOW_MS)
    log.append(keyed(("c", "1"), ("b", "2"), codec="gzip"), now_ms=NOW_MS, leader_epoch=3)
    log.append(keyed(("c", "2")), now_ms=NOW_MS, leader_epoch=3)
    log.roll(NOW_MS)
    log.append(keyed(("a", "active")), now_ms=NOW_MS)
    flush(log)
    finished = compact(log, storage, now_ms=NOW_MS)
    assert stored(log) == [
        Kept(2, b"a", b"2"),
        Kept(4, b"b", b"2"),
        Kept(5, b"c", b"2"),
        Kept(6, b"a", b"active"),
    ]
    assert (finished.clean_end_offset, finished.keys, finished.records_read, finished.records_kept) == (
        6,
        3,
        6,
        3,
    )
    assert len(log.segments) == 2
    (first, _), (second, _), *_ = stored_batches(log)
    assert (first.base_offset, first.last_offset_delta, first.record_count) == (0, 2, 1)
    assert (second.base_offset, second.compression, second.partition_leader_epoch) == (3, 1, 3)
    before = stored(log)
    log.close(clean=False)
    again = open_log(tmp_path / "p", CONFIG, recovery_point=6)
    assert stored(again) == before
    assert again.log_end_offset == 7
    assert {path.suffix for path in (tmp_path / "p").iterdir()}.isdisjoint({".cleaned", ".swap"})


def test_leader_epochs_outlive_the_records_with_which_they_began(tmp_path: Path) -> None:
    """Readers ask with the epoch of the last record that they have read; a later epoch must not seem to have
    begun before that.
    """
    storage = Storage()
    log = open_log(tmp_path / "p", CONFIG, storage=storage)
    for epoch in (0, 1, 1, 2, 3):
        log.append(keyed(("a", f"{epoch}")), now_ms=NOW_MS, leader_epoch=epoch)
    log.roll(NOW_MS)
    flush(log)
    compact(log, storage, now_ms=NOW_MS)
    assert [kept.offset for kept in stored(log)] == [4]
    log.append(keyed(("b", "1")), now_ms=NOW_MS, leader_epoch=4)
    epochs = [(0, 0), (1, 1), (2, 3), (3, 4), (4, 5)]
    assert log.epochs.entries() == epochs
    for _ in range(2):
        log.close(clean=False)
        log = open_log(tmp_path / "p", CONFIG, recovery_point=5)
        assert log.epochs.entries() == epochs


def test_a_record_above_the_limit_fails_the_cleaning_until_the_limit_is_raised(tmp_path: Path) -> None:
    storage = Storage()
    log = open_log(tmp_path / "p", CONFIG, storage=storage)
    log.append(keyed(("a", "1"), ("b", "x" * 300), ("a", "2"), codec="zstd"), now_ms=NOW_MS)
    log.roll(NOW_MS)
    flush(log)
    log.config = replace(CONFIG, max_record_bytes=200)
    with pytest.raises(InvalidRecord, match=r"max\.decompressed\.message\.bytes is 200"):
        compact(log, storage, now_ms=NOW_MS)
    log.config = CONFIG
    compact(log, storage, now_ms=NOW_MS)
    assert [kept.offset for kept in stored(log)] == [1, 2]


def test_a_map_that_is_full_ends_the_section(tmp_path: Path) -> None:
    storage = Storage()
    log = open_log(tmp_path / "p", CONFIG, storage=storage)
    for number in range(8):
        log.append(keyed((f"k{number % 4}", f"{number}"), ("same", f"{number}")), now_ms=NOW_MS)
    log.roll(NOW_MS)
    flush(log)
    clean_end_offset: int | None = None
    ends = []
    while clean_end_offset is None or clean_end_offset < 16:
        clean_end_offset = compact(
            log, storage, clean_end_offset=clean_end_offset, now_ms=NOW_MS, limits=SCANTY
        ).clean_end_offset
        ends.append(clean_end_offset)
    assert ends == [2, 4, 6, 8, 10, 12, 14, 16]
    assert [(kept.offset, kept.value) for kept in stored(log)] == [
        (8, b"4"),
        (10, b"5"),
        (12, b"6"),
        (14, b"7"),
        (15, b"7"),
    ]


def test_a_tombstone_goes_when_its_horizon_has_passed(tmp_path: Path) -> None:
    storage = Storage()
    config = replace(CONFIG, delete_retention_ms=100)
    log = open_log(tmp_path / "p", config, storage=storage)
    log.append(keyed(("a", "1"), ("a", None), timestamp=NOW_MS), now_ms=NOW_MS)
    log.append(keyed(("b", "1"), timestamp=NOW_MS), now_ms=NOW_MS)
    log.roll(NOW_MS)
    flush(log)
    compact(log, storage, now_ms=NOW_MS + 10)
    (header, data), _ = stored_batches(log)
    assert header.attributes & DELETE_HORIZON_FLAG
    assert header.base_timestamp == NOW_MS + 110
    assert stored(log) == [Kept(1, b"a", None), Kept(2, b"b", b"1")]
    assert header.max_timestamp == NOW_MS + 1
    compact(log, storage, now_ms=NOW_MS + 109)
    assert stored_batches(log)[0][1] == data
    compact(log, storage, now_ms=NOW_MS + 110)
    assert stored(log) == [Kept(2, b"b", b"1")]


def test_a_tombstone_with_the_longest_retention_stays_for_ever(tmp_path: Path) -> None:
    storage = Storage()
    log = open_log(tmp_path / "p", replace(CONFIG, delete_retention_ms=2**63 - 1), storage=storage)
    log.append(keyed(("a", "1"), ("a", None), timestamp=NOW_MS), now_ms=NOW_MS)
    log.roll(NOW_MS)
    flush(log)
    compact(log, storage, now_ms=NOW_MS + 10)
    ((header, data),) = stored_batches(log)
    assert (header.base_timestamp, header.max_timestamp) == (2**63 - 1, NOW_MS + 1)
    assert [record.timestamp for record in iterate_records(data)] == [NOW_MS + 1]
    compact(log, storage, now_ms=2**62)
    assert stored(log) == [Kept(1, b"a", None)]


@pytest.mark.parametrize("position", [0, 30, 70])
def test_a_damaged_segment_is_not_cleaned(tmp_path: Path, position: int) -> None:
    storage = Storage()
    log = open_log(tmp_path / "p", CONFIG, storage=storage)
    log.append(keyed(("a", "1"), ("a", "2")), now_ms=NOW_MS)
    log.roll(NOW_MS)
    flush(log)
    path = tmp_path / "p" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[position] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(CorruptRecord):
        run(storage, begin(log, now_ms=NOW_MS))


def test_batches_larger_than_a_read(tmp_path: Path) -> None:
    storage = Storage()
    log = open_log(tmp_path / "p", CONFIG, storage=storage)
    for number in range(5):
        log.append(keyed(("a", "1" * 300), (f"b{number}", "2" * 300)), now_ms=NOW_MS)
    log.roll(NOW_MS)
    flush(log)
    limits = JobLimits(map_bytes=1 << 16, map_load_factor=0.9, read_bytes=100, bytes_per_s=0)
    compact(log, storage, now_ms=NOW_MS, limits=limits)
    assert [kept.offset for kept in stored(log)] == [1, 3, 5, 7, 8, 9]


class Polite(Storage):
    def __init__(self) -> None:
        super().__init__()
        self.dropped: dict[str, list[PageRange]] = {}
        self.forgotten: list[str] = []

    def drop_cached(self, place: PageRange) -> None:
        self.dropped.setdefault(place.path, []).append(place)
        super().drop_cached(place)

    def forget_cached(self, file: DataFile) -> None:
        self.forgotten.append(file.path)
        super().forget_cached(file)


def test_what_is_read_and_written_does_not_stay_in_the_page_cache(tmp_path: Path) -> None:
    log = open_log(tmp_path / "p", CONFIG)
    for number in range(200):
        log.append(keyed(("a", f"{number}" * 20)), now_ms=NOW_MS)
    log.roll(NOW_MS)
    flush(log)
    storage = Polite()
    size_bytes = log.size_bytes
    run(storage, begin(log, now_ms=NOW_MS))
    (places,) = storage.dropped.values()
    assert len(places) > 2
    assert sum(place.size_bytes for place in places) == 2 * size_bytes, "the dirty part must be read twice"
    assert all(place.size_bytes for place in places)
    assert len(storage.forgotten) == 1
