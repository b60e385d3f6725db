"""A log is cleaned while it is read, written and trimmed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from seqgate.log import InvalidRecord, LogConfig, PartitionLog, Storage
from seqgate.log.cleaning import begin_swap, cleanable, fail_swap, finish_swap, replace_sources
from seqgate.log.compaction.swap import SwapTicket
from seqgate.log.environment import LogEnvironment
from seqgate.log.files.page_cache import PageRange
from tests.log.compaction.cleaning import Kept, begin, compact, keyed, run, stored, stored_batches
from tests.log.support import NOW_MS, append_end_marker, delete_due, delete_records, flush, open_log, read_log

CONFIG = LogConfig(
    segment_bytes=1 << 20, index_interval_bytes=0, file_delete_delay_ms=0, deep_validation=True, compact=True
)


def rolled(directory: Path, storage: Storage, *batches: bytes, config: LogConfig = CONFIG) -> PartitionLog:
    """Return a durable log with each batch in a segment of its own, and an empty active segment."""
    log = open_log(directory, config, storage=storage)
    for data in batches:
        log.append(data, now_ms=NOW_MS)
        log.roll(NOW_MS)
    flush(log)
    return log


def leave_nothing(directory: Path) -> None:
    assert not [path for path in directory.iterdir() if path.suffix in {".cleaned", ".swap"}]


def test_records_without_a_key_are_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path / "p", CONFIG)
    with pytest.raises(InvalidRecord) as refused:
        log.append(keyed(("a", "1"), (None, "2"), ("b", "3"), (None, "4")), now_ms=NOW_MS)
    assert [number for number, _ in refused.value.record_errors] == [1, 3]
    with pytest.raises(InvalidRecord) as refused:
        log.append(keyed(*[(None, "x")] * 500), now_ms=NOW_MS)
    assert len(refused.value.record_errors) == 100
    assert "500 records" in str(refused.value)
    log.append(keyed(("a", None)), now_ms=NOW_MS)
    log.update_config(replace(CONFIG, compact=False))
    log.append(keyed((None, "1")), now_ms=NOW_MS)
    assert log.log_end_offset == 2


def test_nothing_beyond_the_last_stable_offset(tmp_path: Path) -> None:
    storage = Storage()
    log = rolled(
        tmp_path / "p",
        storage,
        keyed(("a", "1")),
        keyed(("a", "2"), producer_id=5, base_sequence=0, is_transactional=True),
        keyed(("a", "3")),
    )
    found = cleanable(log, None, log.recovery_point, NOW_MS)
    assert (found.first_uncleanable_offset, found.dirty_bytes) == (1, len(keyed(("a", "1"))))
    append_end_marker(log, 5, 0, commit=True, coordinator_epoch=0, now_ms=NOW_MS)
    flush(log)
    assert cleanable(log, None, log.recovery_point, NOW_MS).first_uncleanable_offset == 3
    assert cleanable(log, None, 2, NOW_MS).first_uncleanable_offset == 2


def test_a_reader_goes_on_in_the_new_segment(tmp_path: Path) -> None:
    storage = Storage()
    log = rolled(tmp_path / "p", storage, *[keyed(("a", str(number)), ("b", "x")) for number in range(4)])
    size = len(keyed(("a", "0"), ("b", "x")))
    regions = []
    for offset in (0, 2, 4):
        region = log.find(offset, size, upper_bound=log.high_watermark)
        assert region is not None
        regions.append(region)
    before = log.size_bytes
    compact(log, storage, now_ms=NOW_MS)
    assert len(log.segments) == 2
    assert log.size_bytes < before
    assert log.size_bytes == sum(path.stat().st_size for path in (tmp_path / "p").glob("*.log"))
    for offset in range(8):
        data = read_log(log, offset, 1, upper_bound=log.high_watermark)
        assert data == stored_batches(log)[0][1]
    leave_nothing(tmp_path / "p")
    delete_due(log.environment, NOW_MS)
    assert len(list((tmp_path / "p").glob("*.log"))) == 2


@pytest.mark.parametrize("when", ["before the swap", "during the swap"])
@pytest.mark.parametrize("what", ["deleted records", "reopened"])
def test_a_log_that_changed_meanwhile_is_left_alone(tmp_path: Path, when: str, what: str) -> None:
    storage = Storage()
    log = rolled(tmp_path / "p", storage, keyed(("a", "1")), keyed(("a", "2")), keyed(("a", "3")))
    cleaning = begin(log, now_ms=NOW_MS)
    (cleaned,), _ = run(storage, cleaning)
    ticket = begin_swap(log, cleaning, cleaned) if when == "during the swap" else None
    if what == "deleted records":
        delete_records(log, 1)
        expected = [Kept(1, b"a", b"2"), Kept(2, b"a", b"3")]
    else:
        log.go_offline("a test says so")
        log.reopen(NOW_MS)
        # recovery completes a swap that has begun
        expected = [Kept(2, b"a", b"3")] if ticket else [Kept(n, b"a", str(n + 1).encode()) for n in range(3)]
    if ticket is None:
        assert begin_swap(log, cleaning, cleaned) is None
    else:
        if what == "reopened":
            ticket.run()  # the files have their final names already
        else:
            ticket.read_and_run()
        assert not replace_sources(log, ticket, NOW_MS)
    assert stored(log) == expected
    log.close(clean=False)
    again = open_log(tmp_path / "p", CONFIG, recovery_point=3)
    assert stored(again) == expected
    leave_nothing(tmp_path / "p")


def test_a_segment_of_which_nothing_stays(tmp_path: Path) -> None:
    storage = Storage()
    config = replace(CONFIG, segment_bytes=200)
    log = rolled(
        tmp_path / "p",
        storage,
        keyed(("a", "1" * 80)),
        keyed(("b", "1" * 80)),
        keyed(("a", "2" * 80), ("b", None)),
        config=config,
    )
    compact(log, storage, now_ms=NOW_MS)
    assert [kept.offset for kept in stored(log)] == [2, 3]
    first = tmp_path / "p" / f"{0:020d}.log"
    assert first.stat().st_size == 0
    assert read_log(log, 0, 1, upper_bound=4) == stored_batches(log)[0][1]
    log.close(clean=False)
    again = open_log(tmp_path / "p", config, recovery_point=4)
    assert [kept.offset for kept in stored(again)] == [2, 3]
    assert again.log_start_offset == 0


def test_finding_by_time_passes_over_what_is_gone(tmp_path: Path) -> None:
    storage = Storage()
    log = rolled(
        tmp_path / "p",
        storage,
        keyed(("a", "1"), timestamp=10, producer_id=1, base_sequence=0),
        keyed(("a", "2"), ("b", "2"), timestamp=20, producer_id=2, base_sequence=0),
        keyed(("b", None), ("a", "3"), timestamp=30),
        keyed(("c", "1"), timestamp=5),
        keyed(("d", "1"), timestamp=90, producer_id=3, base_sequence=0),
        keyed(("d", "2"), timestamp=8),
    )
    compact(log, storage, now_ms=NOW_MS)
    assert [(header.base_offset, header.record_count) for header, _ in stored_batches(log)] == [
        (0, 0),
        (1, 0),
        (3, 2),
        (5, 1),
        (6, 0),
        (7, 1),
    ]
    found = log.first_not_before(10)
    assert found is not None
    assert (found.offset, found.timestamp) == (3, 30)
    assert log.first_not_before(40) is None
    assert log.first_of_largest_timestamp() is None


def test_records_that_were_there_before_the_topic_was_compacted(tmp_path: Path) -> None:
    storage = Storage()
    log = rolled(
        tmp_path / "p",
        storage,
        keyed((None, "1"), ("a", "1")),
        keyed(("a", "2")),
        config=replace(CONFIG, compact=False),
    )
    log.update_config(CONFIG)
    assert compact(log, storage, now_ms=NOW_MS).keyless_records == 1
    assert stored(log) == [Kept(2, b"a", b"2")]


def test_a_damaged_segment_and_all_behind_it_are_left_alone(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", CONFIG)
    for _ in range(4):
        log.append(keyed(("a", "1")), now_ms=NOW_MS)
        log.roll(NOW_MS)
    flush(log)
    log.close(clean=False)
    path = tmp_path / "log" / f"{2:020d}.log"
    content = bytearray(path.read_bytes())
    content[70] ^= 1
    path.write_bytes(content)
    storage = Storage()
    environment = LogEnvironment(storage)
    environment.damage.is_lost = True  # so that the start checks all of the log
    log = open_log(tmp_path / "log", CONFIG, environment=environment, recovery_point=4)
    assert cleanable(log, None, log.recovery_point, NOW_MS).first_uncleanable_offset == 2
    compact(log, storage, now_ms=NOW_MS)
    assert path.read_bytes() == content


class TestHalfwayThroughASwap:
    """Readers use the cleaned segment, whose files still have the names `*.swap`."""

    @pytest.fixture
    def halfway(self, tmp_path: Path) -> tuple[PartitionLog, SwapTicket]:
        storage = Storage()
        log = rolled(tmp_path / "p", storage, keyed(("a", "1")), keyed(("a", "2")), keyed(("a", "3")))
        cleaning = begin(log, now_ms=NOW_MS)
        (cleaned,), _ = run(storage, cleaning)
        ticket = begin_swap(log, cleaning, cleaned)
        assert ticket is not None
        ticket.read_and_run()
        assert replace_sources(log, ticket, NOW_MS)
        return log, ticket

    EXPECTED: ClassVar = [Kept(2, b"a", b"3")]

    def test_it_is_read(self, halfway: tuple[PartitionLog, SwapTicket]) -> None:
        log, ticket = halfway
        assert stored(log) == self.EXPECTED
        for segment in log.segments.segments:
            log.environment.storage.descriptors.release(segment.file)
        log.environment.storage.descriptors.limit = 0
        assert stored(log) == self.EXPECTED, "the file is not closed, whatever else is opened"
        ticket.run()
        assert finish_swap(log, ticket)
        assert stored(log) == self.EXPECTED
        assert not any(segment.file.pins for segment in log.segments.segments)

    def test_it_is_read_into_the_page_cache(self, halfway: tuple[PartitionLog, SwapTicket]) -> None:
        log, _ = halfway
        file = log.segments.segments[0].file
        assert not Path(file.path).exists()
        assert log.environment.storage.bring_in(PageRange(file.path, 0, 10)) == 10

    def test_a_crash_leaves_the_cleaned_segment(
        self, halfway: tuple[PartitionLog, SwapTicket], tmp_path: Path
    ) -> None:
        log, _ = halfway
        log.close(clean=False)
        assert stored(open_log(tmp_path / "p", CONFIG, recovery_point=3)) == self.EXPECTED
        leave_nothing(tmp_path / "p")

    def test_a_reopened_log_has_finished_it(self, halfway: tuple[PartitionLog, SwapTicket]) -> None:
        log, ticket = halfway
        log.go_offline("a test says so")
        log.reopen(NOW_MS)
        ticket.run()
        assert not finish_swap(log, ticket)
        assert stored(log) == self.EXPECTED
        assert len(log.environment.storage.descriptors) <= len(log.segments)

    def test_a_failed_flush_takes_the_log_offline(self, halfway: tuple[PartitionLog, SwapTicket]) -> None:
        log, ticket = halfway
        fail_swap(log, ticket, OSError(5, "Input/output error"))
        assert log.offline
        log.reopen(NOW_MS)
        assert stored(log) == self.EXPECTED

    def test_a_segment_that_is_removed_meanwhile_leaves_no_file(
        self, halfway: tuple[PartitionLog, SwapTicket], tmp_path: Path
    ) -> None:
        log, ticket = halfway
        delete_records(log, 3)
        ticket.run()
        assert finish_swap(log, ticket)
        assert stored(log) == []
        delete_due(log.environment, NOW_MS * 2)
        leave_nothing(tmp_path / "p")
        log.close(clean=False)
        assert open_log(tmp_path / "p", CONFIG, recovery_point=3).log_start_offset == 3
