"""A partition log that deduplicates by producer names: it stores the new records of a batch, and counts those
of a transaction when it commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from seqgate.log import PartitionLog
from seqgate.log.environment import LogEnvironment
from seqgate.log.errors import InvalidRecord, NameFenced, NameLimitReached, NamesNotReady, NameUndecided
from seqgate.log.format.record_batch import parse_header
from seqgate.log.format.records import NewRecord, build_batch
from seqgate.log.segments.scan import Appended
from tests.log.deduplicated import LARGE, again, batches, known, send, values
from tests.log.support import NOW_MS, append_end_marker, flush, open_log


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return open_log(tmp_path, LARGE)


class TestAppending:
    def test_what_was_there_before_is_not_stored(self, log: PartitionLog) -> None:
        assert send(log, 1, 2, 3)[:2] == (0, 2)
        flush(log)
        assert send(log, 2, 3) == Appended(-1, -1, -1, 0, True, -1)
        assert send(log, 5)[:2] == (3, 3)
        assert values(log) == [(0, 1), (1, 2), (2, 3), (3, 5)]

    def test_until_the_flush_the_answer_waits_for_the_original(self, log: PartitionLog) -> None:
        send(log, 1, 2)
        assert known(log) == (-1, 2)
        assert send(log, 1) == Appended(-1, -1, -1, 0, True, 1)
        flush(log)
        assert known(log) == (2, 2)
        assert send(log, 1).answer_after == -1

    def test_a_batch_that_is_partly_known_keeps_offsets_sequences_and_codec(self, log: PartitionLog) -> None:
        send(log, 1, 2)
        info = send(log, 2, 3, 1, 4, codec="zstd", producer_id=7, sequence=10)
        assert info[:2] == (2, 5)
        _, stored = batches(log)
        header = parse_header(stored)
        assert (header.base_sequence, header.last_sequence, header.record_count) == (10, 13, 2)
        assert header.compression == 4
        assert values(log) == [(0, 1), (1, 2), (3, 3), (5, 4)]

    def test_one_that_is_wholly_known_leaves_what_the_sequence_needs(self, log: PartitionLog) -> None:
        send(log, 1, 2)
        info = send(log, 1, 2, producer_id=7)
        assert info._replace(batch=None) == Appended(2, 3, -1, 0, False, 3)
        assert send(log, 1, 2, producer_id=7)._replace(batch=None) == Appended(2, 3, -1, 0, True, 3)
        assert send(log, 3, producer_id=7, sequence=2)[:2] == (4, 4)
        assert values(log) == [(0, 1), (1, 2), (4, 3)]
        assert log.first_of_largest_timestamp() is not None

    @pytest.mark.parametrize("time", ["CreateTime", "LogAppendTime"])
    def test_an_empty_batch_has_no_time(self, tmp_path: Path, time: str) -> None:
        log = open_log(tmp_path, replace(LARGE, message_timestamp_type=time))
        send(log, 1)
        send(log, 1, producer_id=7, now_ms=NOW_MS + 5)
        found = log.first_of_largest_timestamp()
        assert found is not None
        assert found[:2] == (NOW_MS, 0)
        assert log.first_not_before(NOW_MS + 1) is None

    def test_records_without_headers_pass(self, log: PartitionLog) -> None:
        send(log, None, 1, None)
        send(log, None, 1, None, producer_id=7)
        assert [offset for offset, _ in values(log)] == [0, 1, 2, 3, 5]
        assert log.environment.name_budget.dropped_records == 1

    def test_a_record_given_twice_in_one_batch_is_stored_once(self, log: PartitionLog) -> None:
        send(log, 1, 1, 2)
        assert values(log) == [(0, 1), (2, 2)]

    def test_each_name_has_its_own_sequence(self, log: PartitionLog) -> None:
        send(log, 5)
        send(log, 3, name="other")
        assert values(log) == [(0, 5), (1, 3)]

    def test_a_lower_epoch_or_none_is_fenced(self, log: PartitionLog) -> None:
        send(log, 1, epoch=3)
        for epoch in (2, None):
            with pytest.raises(NameFenced, match="newest known is 3"):
                send(log, 2, epoch=epoch)
        send(log, 2, epoch=4)
        with pytest.raises(NameFenced):
            send(log, 2, epoch=3)

    def test_a_new_epoch_fences_although_all_that_came_with_it_was_known(self, log: PartitionLog) -> None:
        send(log, 1, epoch=3)
        with pytest.raises(NamesNotReady, match="the epoch is being persisted"):
            send(log, 1, epoch=4)
        with pytest.raises(NameFenced, match="newest known is 4"):
            send(log, 2, epoch=3)

    @pytest.mark.parametrize("producer_id", [-1, 7])
    def test_a_new_epoch_of_duplicates_only_is_written_down_before_they_are_acknowledged(
        self, log: PartitionLog, producer_id: int
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
        self, log: PartitionLog
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

    def test_nor_is_what_came_with_it_of_other_names(self, log: PartitionLog) -> None:
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
        self, log: PartitionLog, headers: Sequence[tuple[str, bytes | None]]
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
        assert {state.name for state in log.record_states.name_states()} == {b"b", b"c"}
        assert (environment.name_budget.evictions, environment.name_budget.refusals) == (1, 1)

    def test_idle_names_expire(self, log: PartitionLog) -> None:
        send(log, 1)
        assert log.record_states.expire_names(NOW_MS + 999) == 0
        assert log.record_states.expire_names(NOW_MS + 1_000) == 1
        assert known(log) == (-1, -1)

    def test_a_forgotten_name_begins_anew_once_that_is_written_down(self, log: PartitionLog) -> None:
        send(log, 50)
        log.capture_names()
        flush(log)
        log.record_states.expire_names(NOW_MS + 1_000)
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
        assert [state.name for state in log.record_states.name_states()] == [b"b", b"c"]
        log.close(clean=False)
        opened = open_log(tmp_path, config, environment=environment)
        assert opened.record_states.replay_names(1 << 20, NOW_MS + 1_000)
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
        assert first in first.lists.due_for_snapshot
        assert first.capture_names()
        flush(first)
        send(first, 1)


class TestTransactions:
    def test_what_is_committed_counts(self, log: PartitionLog) -> None:
        send(log, 1, 2, producer_id=7, is_transactional=True)
        assert known(log) == (-1, -1)
        append_end_marker(log, 7, 0, commit=True, coordinator_epoch=0, now_ms=NOW_MS)
        assert known(log) == (-1, 2)
        flush(log)
        assert known(log) == (2, 2)

    def test_what_is_aborted_does_not(self, log: PartitionLog) -> None:
        send(log, 1, 2, producer_id=7, is_transactional=True)
        append_end_marker(log, 7, 0, commit=False, coordinator_epoch=0, now_ms=NOW_MS)
        flush(log)
        assert known(log) == (-1, -1)
        assert send(log, 1, 2)[:2] == (3, 4)

    def test_in_the_same_transaction_it_is_stored_once(self, log: PartitionLog) -> None:
        send(log, 1, 2, producer_id=7, is_transactional=True)
        send(log, 2, 3, producer_id=7, sequence=2, is_transactional=True)
        append_end_marker(log, 7, 0, commit=True, coordinator_epoch=0, now_ms=NOW_MS)
        assert values(log) == [(0, 1), (1, 2), (3, 3)]

    @pytest.mark.parametrize("commit", [True, False])
    def test_while_one_is_open_others_of_the_name_wait(self, log: PartitionLog, commit: bool) -> None:
        send(log, 1, 2, producer_id=7, is_transactional=True)
        for sequence_id in (1, 9):
            with pytest.raises(NameUndecided):
                send(log, sequence_id)
            with pytest.raises(NameUndecided):
                send(log, sequence_id, producer_id=8, is_transactional=True)
        send(log, 1, name="other")
        append_end_marker(log, 7, 0, commit=commit, coordinator_epoch=0, now_ms=NOW_MS)
        assert (send(log, 1).base_offset == -1) is commit

    @pytest.mark.parametrize("clean", [True, False])
    def test_an_open_one_is_known_after_a_restart(self, log: PartitionLog, clean: bool) -> None:
        send(log, 1, 2, producer_id=7, is_transactional=True)
        log = again(log, clean=clean)
        with pytest.raises(NameUndecided):
            send(log, 1)
        append_end_marker(log, 7, 0, commit=True, coordinator_epoch=0, now_ms=NOW_MS)
        assert known(log)[1] == 2
