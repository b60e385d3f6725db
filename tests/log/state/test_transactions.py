"""Transactions in a partition log: markers, the last stable offset, aborted transactions, and recovery."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seqgate.log import InvalidProducerEpoch, InvalidRecord, PartitionLog, TransactionCoordinatorFenced
from seqgate.log.errors import InvalidTxnState
from seqgate.log.format.record_batch import parse_header
from seqgate.log.format.records import build_end_marker, iterate_records
from seqgate.log.recovery.load import CleanStop
from tests.log.support import (
    NOW_MS,
    SMALL,
    append_end_marker,
    batch,
    delete_due,
    delete_records,
    flush,
    open_log,
    read_log,
)

ROOMY = replace(SMALL, segment_bytes=100_000)


def send(log: PartitionLog, producer_id: int, count: int = 1, producer_epoch: int = 0) -> int:
    """Append the next transactional batch of a producer; return its base offset."""
    entry = log.producers.get(producer_id)
    known = entry is not None and entry.producer_epoch == producer_epoch
    info = log.append(
        batch(
            count,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=entry.next_sequence if known and entry is not None else 0,
            is_transactional=True,
        ),
        now_ms=NOW_MS,
    )
    return info.base_offset


def end(
    log: PartitionLog,
    producer_id: int,
    *,
    commit: bool = False,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
) -> int:
    return append_end_marker(
        log, producer_id, producer_epoch, commit=commit, coordinator_epoch=coordinator_epoch, now_ms=NOW_MS
    ).base_offset


def state(log: PartitionLog) -> tuple[object, ...]:
    return (
        log.last_stable_offset,
        log.transactions.open_transactions(),
        log.segments.aborted_between(0, log.log_end_offset),
        {
            entry.producer_id: (entry.producer_epoch, entry.next_sequence, entry.coordinator_epoch)
            for entry in log.producers
        },
    )


def transaction_files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*.txnindex")}


class TestMarkers:
    def test_the_bytes_are_kafkas(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "p", ROOMY)
        send(log, 7, 2)
        offset = end(log, 7, commit=True, coordinator_epoch=3)
        data = read_log(log, offset, 1000, upper_bound=log.log_end_offset)
        header = parse_header(data)
        assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
        assert (header.base_offset, header.record_count, header.max_timestamp) == (2, 1, NOW_MS)
        (record,) = iterate_records(data)
        assert record.key == bytes.fromhex("00000001")
        assert record.value == bytes.fromhex("000000000003")

    def test_an_older_epoch_is_refused(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "p", ROOMY)
        send(log, 7, producer_epoch=2)
        with pytest.raises(InvalidProducerEpoch):
            end(log, 7, producer_epoch=1)
        end(log, 7, producer_epoch=2, coordinator_epoch=4)
        with pytest.raises(TransactionCoordinatorFenced):
            end(log, 7, producer_epoch=2, coordinator_epoch=3)
        assert log.log_end_offset == 2

    def test_the_same_epoch_lets_the_sequence_go_on(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "p", ROOMY)
        send(log, 7, 3)
        end(log, 7, commit=True)
        entry = log.producers.get(7)
        assert entry is not None
        assert entry.next_sequence == 3
        original = batch(3, producer_id=7, base_sequence=0, is_transactional=True)
        assert log.append(original, now_ms=NOW_MS).is_duplicate

    def test_a_new_epoch_begins_at_sequence_0(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "p", ROOMY)
        send(log, 7, 3)
        end(log, 7, commit=True, producer_epoch=1)
        with pytest.raises(InvalidProducerEpoch):
            send(log, 7, producer_epoch=0)
        assert send(log, 7, producer_epoch=1) == 4

    def test_without_anything_open_it_fences_all_the_same(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "p", ROOMY)
        end(log, 7, producer_epoch=5)
        with pytest.raises(InvalidProducerEpoch):
            send(log, 7, producer_epoch=4)
        flush(log)
        assert log.last_stable_offset == 1
        assert log.segments.aborted_between(0, 1) == []

    def test_a_client_may_not_write_one(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "p", ROOMY)
        marker = build_end_marker(7, 0, commit=True, coordinator_epoch=0, now_ms=NOW_MS)
        with pytest.raises(InvalidRecord):
            log.append(marker, now_ms=NOW_MS)

    def test_a_batch_outside_of_the_open_transaction_is_refused(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "p", ROOMY)
        send(log, 7)
        plain = batch(producer_id=7, base_sequence=1)
        with pytest.raises(InvalidTxnState):
            log.append(plain, now_ms=NOW_MS)
        end(log, 7)
        assert log.append(plain, now_ms=NOW_MS).base_offset == 2

    def test_a_coordinator_writes_without_a_sequence(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "p", ROOMY)
        offsets = batch(producer_id=7, producer_epoch=1, base_sequence=-1, is_transactional=True)
        for _ in range(3):
            log.append(offsets, now_ms=NOW_MS, is_client=False)
        assert log.transactions.open_transaction(7) == (1, 0)
        older = batch(producer_id=7, producer_epoch=0, base_sequence=-1, is_transactional=True)
        with pytest.raises(InvalidProducerEpoch):
            log.append(older, now_ms=NOW_MS, is_client=False)


class TestLastStableOffset:
    def test_it_waits_for_the_earliest_open_transaction(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "p", ROOMY)
        log.append(batch(), now_ms=NOW_MS)
        first, second = send(log, 7), send(log, 8)
        flush(log)
        assert (log.high_watermark, log.last_stable_offset) == (3, first)
        assert log.transactions.open_transaction(7) == (0, first)
        assert log.transactions.open_transactions() == [(7, (0, first)), (8, (0, second))]
        end(log, 7)
        flush(log)
        assert log.last_stable_offset == second
        end(log, 8, commit=True)
        flush(log)
        assert log.last_stable_offset == log.log_end_offset == 5
        assert log.transactions.open_transactions() == []

    def test_a_marker_counts_when_it_is_below_the_high_watermark(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "p", ROOMY)
        first = send(log, 7)
        flush(log)
        end(log, 7, commit=True)
        assert log.last_stable_offset == first
        flush(log)
        assert log.last_stable_offset == 2

    def test_deleted_records_do_not_hold_it_back(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "p", ROOMY)
        send(log, 7, 4)
        flush(log)
        delete_records(log, 3)
        assert (log.log_start_offset, log.last_stable_offset) == (3, 3)


class TestAbortedTransactions:
    def test_they_are_found_by_what_they_overlap(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "p", ROOMY)
        send(log, 7), send(log, 8), send(log, 7)  # offsets 0 1 2
        end(log, 7)  # offset 3
        end(log, 8, commit=True)  # offset 4
        send(log, 8), end(log, 8)  # offsets 5 6
        flush(log)
        assert log.segments.aborted_between(0, 1) == [(7, 0)]
        assert log.segments.aborted_between(3, 5) == [(7, 0)]
        assert log.segments.aborted_between(4, 5) == []
        assert log.segments.aborted_between(0, 7) == [(7, 0), (8, 5)]
        assert log.segments.aborted_between(6, 7) == [(8, 5)]

    def test_later_segments_are_searched_as_far_as_needed(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "p", ROOMY)
        send(log, 7), send(log, 8)
        log.roll(NOW_MS)
        end(log, 8)
        log.roll(NOW_MS)
        end(log, 7)
        flush(log)
        assert log.segments.aborted_between(0, 2) == [(8, 1), (7, 0)]
        region = log.find(0, 10_000, upper_bound=log.last_stable_offset)
        assert log.aborted_in(0, region) == [(8, 1), (7, 0)]
        assert log.aborted_in(0, None) == []

    def test_removed_segments_take_theirs_along(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "p", ROOMY)
        send(log, 7), end(log, 7)
        log.roll(NOW_MS)
        send(log, 7), end(log, 7)
        flush(log)
        assert list(transaction_files(tmp_path / "p")) == ["00000000000000000000.txnindex"]
        delete_records(log, 2)
        delete_due(log.environment, NOW_MS)
        assert transaction_files(tmp_path / "p") == {}
        assert log.segments.aborted_between(0, 4) == [(7, 2)]

    def test_a_log_without_aborts_has_no_file(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "p", ROOMY)
        send(log, 7), end(log, 7, commit=True)
        log.roll(NOW_MS)
        assert log.close(clean=True) is not None
        assert transaction_files(tmp_path / "p") == {}


def lively(log: PartitionLog) -> None:
    """Return a log with commits, aborts and open transactions over several segments."""
    for number in range(12):
        producer_id = 7 + number % 3
        send(log, producer_id, 1 + number % 2)
        log.append(batch(2), now_ms=NOW_MS)
        if number % 4 == 3:
            end(log, producer_id, commit=number % 8 == 3, coordinator_epoch=number)
    send(log, 11)
    flush(log)


class TestWhatSurvives:
    def closed(self, directory: Path, *, clean: bool) -> tuple[tuple[object, ...], CleanStop | None]:
        log = open_log(directory)
        lively(log)
        before = state(log)
        assert len(log.segments) > 2
        assert log.transactions.open_transactions()
        assert log.segments.aborted_between(0, log.log_end_offset)
        return before, log.close(clean=clean)

    def test_a_clean_stop(self, tmp_path: Path) -> None:
        before, stop = self.closed(tmp_path / "p", clean=True)
        log = open_log(tmp_path / "p", clean_stop=stop)
        assert state(log) == before

    def test_a_crash(self, tmp_path: Path) -> None:
        before, _ = self.closed(tmp_path / "p", clean=False)
        assert state(open_log(tmp_path / "p")) == before

    def test_the_rebuilt_indexes_are_the_written_ones(self, tmp_path: Path) -> None:
        _, stop = self.closed(tmp_path / "p", clean=True)
        written = transaction_files(tmp_path / "p")
        assert written
        for name in written:
            (tmp_path / "p" / name).unlink()
        log = open_log(tmp_path / "p")
        log.close(clean=True)
        assert transaction_files(tmp_path / "p") == written
        assert stop is not None

    @pytest.mark.parametrize("damage", ["torn", "zeros", "garbage", "short", "empty"])
    def test_a_damaged_index_is_made_anew(self, tmp_path: Path, damage: str) -> None:
        before, stop = self.closed(tmp_path / "p", clean=True)
        for name, content in transaction_files(tmp_path / "p").items():
            damaged = {
                "torn": content[:-1],
                "zeros": bytes(len(content)),
                "garbage": b"\x55" * len(content),
                "short": content[:20],
                "empty": b"",
            }[damage]
            (tmp_path / "p" / name).write_bytes(damaged)
        log = open_log(tmp_path / "p", clean_stop=stop)
        assert state(log) == before

    def test_all_indexes_removed_by_hand(self, tmp_path: Path) -> None:
        before, stop = self.closed(tmp_path / "p", clean=True)
        for suffix in ("index", "timeindex", "txnindex"):
            for path in (tmp_path / "p").glob(f"*.{suffix}"):
                if path.name[:20] != f"{stop.active_base_offset if stop else 0:020d}":
                    path.unlink()
        log = open_log(tmp_path / "p", clean_stop=stop)
        assert state(log) == before
        log.let_go()
        log.load(log.recovery_point, stop, NOW_MS, may_check=False, may_mend=False)
        assert state(log) == before, "the first load left nothing to write"

    def test_a_torn_marker_leaves_the_transaction_open(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "p", ROOMY)
        send(log, 7), end(log, 7)
        send(log, 7), end(log, 7)
        log.close(clean=False)
        path = tmp_path / "p" / "00000000000000000000.log"
        path.write_bytes(path.read_bytes()[:-1])
        log = open_log(tmp_path / "p", ROOMY)
        assert log.transactions.open_transaction(7) == (0, 2)
        assert log.last_stable_offset == 2
        assert log.segments.aborted_between(0, 9) == [(7, 0)]

    def test_reopening_after_a_failure(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "p")
        lively(log)
        before = state(log)
        log.go_offline("a test says so")
        log.reopen(NOW_MS)
        assert state(log) == before

    def test_a_producer_with_an_open_transaction_does_not_expire(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "p", ROOMY)
        send(log, 7), send(log, 8), end(log, 8)
        assert log.expire_producers(NOW_MS + 10**10) == 1
        assert log.transactions.open_transaction(7) == (0, 0)
        end(log, 7)
        flush(log)
        assert log.last_stable_offset == 4
