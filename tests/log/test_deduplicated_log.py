"""A partition log whose topic deduplicates by producer names: what is stored, what is remembered, and what a restart finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from log import LogConfig, Storage, UnifiedLog
from log.environment import LogEnvironment
from log.errors import (
    InvalidRecord,
    NameFenced,
    NameLimitReached,
    NamesNotReady,
    NameUndecided,
    StorageFailed,
)
from log.names import DEDUPLICATION_START, LOG_SUFFIX, NAMES_SUFFIX, offset_name, offsets_of
from log.record_batch import parse_header, whole_batches
from log.records import NewRecord, build_batch, iterate_records
from log.recovery import CleanStop
from log.results import AppendInfo
from tests.log.support import NOW_MS, flush, open_log

CONFIG = LogConfig(
    segment_bytes=1_000,
    index_interval_bytes=100,
    file_delete_delay_ms=0,
    deduplicates=True,
    deduplication_expiration_ms=1_000,
)
LARGE = replace(CONFIG, segment_bytes=1 << 20)
OFF = replace(LARGE, deduplicates=False)
LENGTH_POSITION = 8
"""Of the length in a batch."""


def batch(
    *sequence_ids: int | None,
    name: str = "app",
    epoch: int | None = None,
    producer_id: int = -1,
    sequence: int = 0,
    is_transactional: bool = False,
    codec: str = "none",
) -> bytes:
    """A record for each sequence id, which is its value as well; None: without headers."""
    records = []
    for sequence_id in sequence_ids:
        headers: list[tuple[str, bytes | None]] = []
        if sequence_id is not None:
            headers = [("dedup.name", name.encode()), ("dedup.sequence", b"%d" % sequence_id)]
            if epoch is not None:
                headers.append(("dedup.epoch", b"%d" % epoch))
        records.append(NewRecord(b"%d" % (sequence_id or -1), timestamp=NOW_MS, headers=headers))
    return build_batch(
        records,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence if producer_id >= 0 else -1,
        is_transactional=is_transactional,
        codec=codec,
    )


def send(log: UnifiedLog, *sequence_ids: int | None, now_ms: int = NOW_MS, **given: object) -> AppendInfo:
    return log.append(batch(*sequence_ids, **given), now_ms=now_ms)  # type: ignore[arg-type]


def values(log: UnifiedLog) -> list[tuple[int, int]]:
    """(offset, value) of every record."""
    found = []
    for batch_bytes in batches(log):
        if not parse_header(batch_bytes).is_control:
            found += [(record.offset, int(record.value or b"")) for record in iterate_records(batch_bytes)]
    return found


def batches(log: UnifiedLog) -> list[memoryview]:
    end = log.log_end_offset
    data = memoryview(log.read(log.log_start_offset, 1 << 20, upper_bound=end).records)
    return [data[at : at + header.size_bytes] for at, header in whole_batches(data)]


def known(log: UnifiedLog, name: str = "app") -> tuple[int, int]:
    """(persisted, pushed)."""
    state = log.name_state(name.encode())
    return (-1, -1) if state is None else (state.persisted_sequence, state.pushed_sequence)


@pytest.fixture
def log(tmp_path: Path) -> UnifiedLog:
    return open_log(tmp_path, LARGE)


def again(
    log: UnifiedLog, config: LogConfig = LARGE, *, clean: bool = False, replayed: bool = True
) -> UnifiedLog:
    """The log of the same directory as the next process finds it."""
    stop: CleanStop | None = log.close(clean=clean)
    opened = open_log(Path(log.directory), config, clean_stop=stop)
    if replayed:
        while not opened.replay_names(1, NOW_MS):
            pass
    return opened


class TestAppending:
    def test_what_was_there_before_is_not_stored(self, log: UnifiedLog) -> None:
        assert send(log, 1, 2, 3)[:2] == (0, 2)
        flush(log)
        assert send(log, 2, 3) == AppendInfo(-1, -1, -1, 0, True)
        assert send(log, 5)[:2] == (3, 3)
        assert values(log) == [(0, 1), (1, 2), (2, 3), (3, 5)]

    def test_until_the_flush_the_answer_waits_for_the_original(self, log: UnifiedLog) -> None:
        send(log, 1, 2)
        assert known(log) == (-1, 2)
        assert send(log, 1) == AppendInfo(-1, 1, -1, 0, True)
        flush(log)
        assert known(log) == (2, 2)
        assert send(log, 1).last_offset == -1

    def test_a_batch_that_is_partly_known_keeps_offsets_sequences_and_codec(self, log: UnifiedLog) -> None:
        send(log, 1, 2)
        info = send(log, 2, 3, 1, 4, codec="zstd", producer_id=7, sequence=10)
        assert info[:2] == (2, 5)
        _, stored = batches(log)
        header = parse_header(stored)
        assert (header.base_sequence, header.last_sequence, header.record_count) == (10, 13, 2)
        assert header.compression == 4
        assert values(log) == [(0, 1), (1, 2), (3, 3), (5, 4)]

    def test_one_that_is_wholly_known_leaves_what_the_sequence_needs(self, log: UnifiedLog) -> None:
        send(log, 1, 2)
        info = send(log, 1, 2, producer_id=7)
        assert info == AppendInfo(2, 3, -1, 0, False)
        assert send(log, 1, 2, producer_id=7) == AppendInfo(2, 3, -1, 0, True)
        assert send(log, 3, producer_id=7, sequence=2)[:2] == (4, 4)
        assert values(log) == [(0, 1), (1, 2), (4, 3)]
        assert log.offset_of_max_timestamp() is not None

    @pytest.mark.parametrize("time", ["CreateTime", "LogAppendTime"])
    def test_an_empty_batch_has_no_time(self, tmp_path: Path, time: str) -> None:
        log = open_log(tmp_path, replace(LARGE, message_timestamp_type=time))
        send(log, 1)
        send(log, 1, producer_id=7, now_ms=NOW_MS + 5)
        found = log.offset_of_max_timestamp()
        assert found is not None
        assert found[:2] == (NOW_MS, 0)
        assert log.offset_for_timestamp(NOW_MS + 1) is None

    def test_records_without_headers_pass(self, log: UnifiedLog) -> None:
        send(log, None, 1, None)
        send(log, None, 1, None, producer_id=7)
        assert [offset for offset, _ in values(log)] == [0, 1, 2, 3, 5]
        assert log._environment.name_budget.dropped_records == 1

    def test_a_record_given_twice_in_one_batch_is_stored_once(self, log: UnifiedLog) -> None:
        send(log, 1, 1, 2)
        assert values(log) == [(0, 1), (2, 2)]

    def test_each_name_has_its_own_sequence(self, log: UnifiedLog) -> None:
        send(log, 5)
        send(log, 3, name="other")
        assert values(log) == [(0, 5), (1, 3)]

    def test_a_lower_epoch_or_none_is_fenced(self, log: UnifiedLog) -> None:
        send(log, 1, epoch=3)
        for epoch in (2, None):
            with pytest.raises(NameFenced, match="newest known is 3"):
                send(log, 2, epoch=epoch)
        send(log, 2, epoch=4)
        with pytest.raises(NameFenced):
            send(log, 2, epoch=3)

    def test_a_new_epoch_fences_although_all_that_came_with_it_was_known(self, log: UnifiedLog) -> None:
        send(log, 1, epoch=3)
        with pytest.raises(NamesNotReady, match="being written down"):
            send(log, 1, epoch=4)
        with pytest.raises(NameFenced, match="newest known is 4"):
            send(log, 2, epoch=3)

    @pytest.mark.parametrize("producer_id", [-1, 7])
    def test_a_new_epoch_of_duplicates_only_is_written_down_before_they_are_acknowledged(
        self, log: UnifiedLog, producer_id: int
    ) -> None:
        send(log, 1, epoch=3)
        flush(log)
        with pytest.raises(NamesNotReady):
            send(log, 1, epoch=4, producer_id=producer_id)
        assert log.capture_names()
        with pytest.raises(NamesNotReady):
            send(log, 1, epoch=4, producer_id=producer_id)
        flush(log)
        send(log, 1, epoch=4, producer_id=producer_id)
        assert values(log) == [(0, 1)]
        with pytest.raises(NameFenced, match="newest known is 4"):
            send(again(log), 2, epoch=3)

    def test_a_higher_epoch_of_a_duplicate_behind_what_is_new_counts_when_its_life_sends_more(
        self, log: UnifiedLog
    ) -> None:
        records = [
            NewRecord(
                b"1", headers=[("dedup.name", b"app"), ("dedup.sequence", b"1"), ("dedup.epoch", epoch)]
            )
            for epoch in (b"3", b"4")
        ]
        log.append(build_batch(records), now_ms=NOW_MS)
        send(log, 2, epoch=3)
        assert values(log) == [(0, 1), (2, 2)]

    def test_nor_is_what_came_with_it_of_other_names(self, log: UnifiedLog) -> None:
        send(log, 1, epoch=3)
        records = [
            NewRecord(b"v", headers=[("dedup.name", name), ("dedup.sequence", b"1"), ("dedup.epoch", b"4")])
            for name in (b"app", b"other")
        ]
        with pytest.raises(NamesNotReady):
            log.append(build_batch(records), now_ms=NOW_MS)
        assert known(log, "other") == (-1, -1)
        log.capture_names()
        flush(log)
        log.append(build_batch(records), now_ms=NOW_MS)
        assert known(log, "other")[1] == 1

    @pytest.mark.parametrize(
        "headers",
        [
            [("dedup.name", b"app")],
            [("dedup.sequence", b"1")],
            [("dedup.name", b"app"), ("dedup.sequence", b"one")],
            [("dedup.name", b"app"), ("dedup.sequence", b"-1")],
            [("dedup.name", b"app"), ("dedup.sequence", b"9223372036854775808")],
            [("dedup.name", b"app"), ("dedup.sequence", None)],
            [("dedup.name", b""), ("dedup.sequence", b"1")],
            [("dedup.name", b"n" * 257), ("dedup.sequence", b"1")],
            [("dedup.name", b"app"), ("dedup.sequence", b"1"), ("dedup.epoch", b"x")],
        ],
    )
    def test_headers_that_say_half_are_refused(
        self, log: UnifiedLog, headers: Sequence[tuple[str, bytes | None]]
    ) -> None:
        with pytest.raises(InvalidRecord, match="header"):
            log.append(build_batch([NewRecord(b"v", headers=headers)]), now_ms=NOW_MS)
        assert log.log_end_offset == 0

    def test_a_further_name_than_may_be_remembered_is_refused(self, tmp_path: Path) -> None:
        environment = LogEnvironment()
        environment.name_budget.min_idle_ms = 100
        log = open_log(tmp_path, replace(LARGE, deduplication_names_max=2), environment=environment)
        send(log, 1, name="a")
        send(log, 1, name="b", now_ms=NOW_MS + 50)
        with pytest.raises(NameLimitReached):
            send(log, 1, name="c", now_ms=NOW_MS + 50)
        send(log, 1, name="c", now_ms=NOW_MS + 100)
        assert {state.name for state in log.name_states()} == {b"b", b"c"}
        assert (environment.name_budget.evictions, environment.name_budget.refusals) == (1, 1)

    def test_idle_names_expire(self, log: UnifiedLog) -> None:
        send(log, 1)
        assert log.expire_names(NOW_MS + 999) == 0
        assert log.expire_names(NOW_MS + 1_000) == 1
        assert known(log) == (-1, -1)

    def test_a_forgotten_name_begins_anew_once_that_is_written_down(self, log: UnifiedLog) -> None:
        send(log, 50)
        log.capture_names()
        flush(log)
        log.expire_names(NOW_MS + 1_000)
        with pytest.raises(NamesNotReady):
            send(log, 1)
        assert log.capture_names()
        with pytest.raises(NamesNotReady):
            send(log, 1)
        flush(log)
        send(log, 1)
        flush(log)
        assert known(again(log)) == (1, 1)

    def test_reading_the_log_again_evicts_nobody(self, tmp_path: Path) -> None:
        environment = LogEnvironment()
        environment.name_budget.min_idle_ms = 100
        config = replace(LARGE, deduplication_names_max=2)
        log = open_log(tmp_path, config, environment=environment)
        send(log, 1, name="b")
        send(log, 1, name="a", now_ms=NOW_MS + 1)
        log.capture_names()
        flush(log)
        send(log, 1, name="b", now_ms=NOW_MS + 500)
        send(log, 1, name="c", now_ms=NOW_MS + 500)
        flush(log)
        assert [state.name for state in log.name_states()] == [b"b", b"c"]
        log.close(clean=False)
        opened = open_log(tmp_path, config, environment=environment)
        assert opened.replay_names(1 << 20, NOW_MS + 1_000)
        assert known(opened, "b") == (1, 1)

    def test_one_that_is_evicted_from_another_partition_too(self, tmp_path: Path) -> None:
        environment = LogEnvironment()
        config = replace(LARGE, deduplication_names_max=1)
        first, second = (open_log(tmp_path / name, config, environment=environment) for name in "ab")
        send(first, 50)
        first.capture_names()
        flush(first)
        send(second, 1, name="other")
        assert known(first) == (-1, -1)
        with pytest.raises(NamesNotReady):
            send(first, 1)
        assert first in environment.names_overdue
        assert first.capture_names()
        flush(first)
        send(first, 1)


class TestTransactions:
    def test_what_is_committed_counts(self, log: UnifiedLog) -> None:
        send(log, 1, 2, producer_id=7, is_transactional=True)
        assert known(log) == (-1, -1)
        log.append_end_marker(7, 0, commit=True, coordinator_epoch=0, now_ms=NOW_MS)
        assert known(log) == (-1, 2)
        flush(log)
        assert known(log) == (2, 2)

    def test_what_is_aborted_does_not(self, log: UnifiedLog) -> None:
        send(log, 1, 2, producer_id=7, is_transactional=True)
        log.append_end_marker(7, 0, commit=False, coordinator_epoch=0, now_ms=NOW_MS)
        flush(log)
        assert known(log) == (-1, -1)
        assert send(log, 1, 2)[:2] == (3, 4)

    def test_in_the_same_transaction_it_is_stored_once(self, log: UnifiedLog) -> None:
        send(log, 1, 2, producer_id=7, is_transactional=True)
        send(log, 2, 3, producer_id=7, sequence=2, is_transactional=True)
        log.append_end_marker(7, 0, commit=True, coordinator_epoch=0, now_ms=NOW_MS)
        assert values(log) == [(0, 1), (1, 2), (3, 3)]

    @pytest.mark.parametrize("commit", [True, False])
    def test_while_one_is_open_others_of_the_name_wait(self, log: UnifiedLog, commit: bool) -> None:
        send(log, 1, 2, producer_id=7, is_transactional=True)
        for sequence_id in (1, 9):
            with pytest.raises(NameUndecided):
                send(log, sequence_id)
            with pytest.raises(NameUndecided):
                send(log, sequence_id, producer_id=8, is_transactional=True)
        send(log, 1, name="other")
        log.append_end_marker(7, 0, commit=commit, coordinator_epoch=0, now_ms=NOW_MS)
        assert (send(log, 1).base_offset == -1) is commit

    @pytest.mark.parametrize("clean", [True, False])
    def test_an_open_one_is_known_after_a_restart(self, log: UnifiedLog, clean: bool) -> None:
        send(log, 1, 2, producer_id=7, is_transactional=True)
        log = again(log, clean=clean)
        with pytest.raises(NameUndecided):
            send(log, 1)
        log.append_end_marker(7, 0, commit=True, coordinator_epoch=0, now_ms=NOW_MS)
        assert known(log)[1] == 2


class TestRestarts:
    @pytest.mark.parametrize("clean", [True, False])
    def test_names_are_known_again(self, log: UnifiedLog, clean: bool) -> None:
        send(log, 1, 2, epoch=4)
        send(log, 3, name="other")
        log = again(log, clean=clean)
        assert known(log) == (2, 2)
        assert known(log, "other") == (3, 3)
        with pytest.raises(NameFenced):
            send(log, 3, epoch=3)

    def test_after_a_clean_stop_nothing_is_read_again(self, log: UnifiedLog) -> None:
        send(log, 1, 2)
        log = again(log, clean=True, replayed=False)
        assert log.names_ready
        assert known(log) == (2, 2)

    def test_what_came_after_the_snapshot_is_read_again(self, log: UnifiedLog) -> None:
        send(log, 1, 2)
        assert log.capture_names()
        flush(log)
        assert not log.capture_names()
        send(log, 3)
        flush(log)
        log = again(log, replayed=False)
        assert not log.names_ready
        assert known(log) == (2, 2)
        assert log.replay_names(1 << 20, NOW_MS)
        assert known(log) == (3, 3)

    def test_a_snapshot_is_never_ahead_of_the_records(self, log: UnifiedLog) -> None:
        send(log, 1, 2)
        log.capture_names()
        assert not offsets_of([path.name for path in Path(log.directory).iterdir()], NAMES_SUFFIX)
        flush(log)
        assert offsets_of([path.name for path in Path(log.directory).iterdir()], NAMES_SUFFIX) == [2]

    def test_nor_is_it_written_when_the_records_could_not_be(
        self, log: UnifiedLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        send(log, 1, 2)
        log.capture_names()
        ticket = log.prepare_flush()
        assert ticket is not None

        def fail(*_: object) -> None:
            raise OSError("the disk fails")

        monkeypatch.setattr(Storage, "sync", fail)
        with pytest.raises(OSError, match="the disk fails"):
            ticket.run()

        assert not offsets_of([path.name for path in Path(log.directory).iterdir()], NAMES_SUFFIX)

    def test_until_all_is_read_a_named_batch_is_refused(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LARGE)
        for sequence_id in range(6_000):
            log.append(batch(sequence_id), now_ms=NOW_MS)
        log = again(log, replayed=False)
        with pytest.raises(NamesNotReady):
            send(log, 1)
        send(log, None)
        while not log.replay_names(1 << 16, NOW_MS):
            pass
        assert send(log, 1).base_offset == -1
        assert known(log)[0] == 5_999

    def test_records_that_are_small_when_compressed_take_as_long_as_others(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, LARGE)
        for first in range(0, 10_000, 1_000):
            compressed = batch(*range(first, first + 1_000), codec="zstd")
            assert len(compressed) < 10_000
            log.append(compressed, now_ms=NOW_MS)
        log = again(log, replayed=False)
        assert not log.replay_names(64 << 10, NOW_MS)
        assert known(log)[1] == 999

    def test_a_log_that_was_damaged_meanwhile_is_not_read_for_ever(self, log: UnifiedLog) -> None:
        send(log, 1)
        end_position = log.size_bytes
        send(log, 2)
        log = again(log, replayed=False)
        with Path(log.directory, offset_name(0, LOG_SUFFIX)).open("r+b") as file:
            file.seek(end_position + LENGTH_POSITION)
            file.write(b"\x7f")
        with pytest.raises(StorageFailed, match="no whole batch at offset 1"):
            log.replay_names(1 << 20, NOW_MS)
        assert not log.names_ready

    @pytest.mark.parametrize("damage", ["newest", "all", "missing", "start"])
    def test_damaged_snapshots_fall_back_to_the_log(self, log: UnifiedLog, damage: str) -> None:
        for sequence_id in range(4):
            send(log, sequence_id)
            log.capture_names()
            flush(log)
        paths = sorted(Path(log.directory).glob(f"*{NAMES_SUFFIX}"))
        assert len(paths) == 2
        log.close(clean=False)
        if damage == "start":
            (Path(log.directory) / DEDUPLICATION_START).write_bytes(b"\xff")
        for path in {"newest": paths[1:], "start": []}.get(damage, paths):
            if damage == "missing":
                path.unlink()
            else:
                path.write_bytes(path.read_bytes()[:-1] + b"\0")
        assert known(again(log)) == (3, 3)

    def test_segments_that_go_are_remembered(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, CONFIG)
        for sequence_id in range(100):
            send(log, sequence_id)
            flush(log)
        log.delete_records_before(90)
        assert log.log_start_offset == 90
        assert known(again(log, CONFIG)) == (99, 99)

    @pytest.mark.parametrize("under_way", [False, True])
    def test_deleted_records_are_remembered_before_the_log_start_is_durable(
        self, log: UnifiedLog, under_way: bool
    ) -> None:
        send(log, 7)
        flush(log)
        late = None
        if under_way:
            log.capture_names()
            late = log.prepare_flush()
        ticket = log.prepare_delete_records(1)
        assert ticket is not None
        ticket.run()

        after_a_crash = open_log(Path(log.directory), LARGE)

        assert after_a_crash.log_start_offset == 1
        assert known(after_a_crash) == (7, 7)
        assert (late is not None) == under_way

    def test_deleted_records_that_are_not_read_yet_are_remembered(self, log: UnifiedLog) -> None:
        send(log, 7)
        flush(log)
        behind = open_log(Path(log.directory), LARGE)
        assert not behind.names_ready

        assert behind.prepare_delete_records(1) is None
        behind.delete_records_before(1, NOW_MS)

        assert known(behind) == (7, 7)
        assert known(open_log(Path(log.directory), LARGE)) == (7, 7)

    def test_what_the_disk_lost_is_not_known(self, log: UnifiedLog) -> None:
        send(log, 1)
        flush(log)
        size = log.size_bytes
        send(log, 2)
        log.close(clean=False)
        with (Path(log.directory) / f"{0:020}.log").open("r+b") as file:
            file.truncate(size)
        assert known(again(log)) == (1, 1)


class TestTurningItOnAndOff:
    def test_what_was_there_when_it_is_turned_on_is_not_known(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, OFF)
        send(log, 1, 2)
        log.update_config(LARGE)
        assert send(log, 1)[:2] == (2, 2)
        log = again(log)
        assert known(log) == (1, 1)

    def test_unless_that_is_asked_for(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, OFF)
        send(log, 1, 2)
        log.update_config(replace(LARGE, deduplication_from_log_start=True))
        assert send(log, 1).base_offset == -1

    def test_turned_off_and_on_again_it_knows_what_came_meanwhile(self, log: UnifiedLog) -> None:
        send(log, 1, 2)
        log.update_config(OFF)
        assert log.names is None
        send(log, 1, 7)
        log.update_config(LARGE)
        assert send(log, 7).base_offset == -1
        assert values(log) == [(0, 1), (1, 2), (2, 1), (3, 7)]

    def test_over_a_restart_too(self, log: UnifiedLog) -> None:
        send(log, 1, 2)
        log.update_config(OFF)
        send(log, 7)
        log = again(log, OFF)
        log = again(log, LARGE)
        assert known(log) == (7, 7)

    def test_what_went_meanwhile_is_told(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        log = open_log(tmp_path, CONFIG)
        send(log, 1)
        log.update_config(replace(CONFIG, deduplicates=False))
        for _ in range(40):
            send(log, 2)
            flush(log)
        log.delete_records_before(30)
        log.update_config(CONFIG)
        assert "are gone" in caplog.text
        log.replay_names(1 << 20, NOW_MS)
        # nothing but memory has all of it now
        assert log in log._environment.names_overdue
        assert log.capture_names()
        assert log not in log._environment.names_overdue
