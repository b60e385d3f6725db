"""Group commit into a bucket: what an object holds, when flush rounds begin and end, and what happens when a
write to the bucket fails.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.cluster.wal.wal_object import DataRow, FileRow
from seqgate.gateway.metadata.image import TRANSACTION_STATE_TOPIC
from seqgate.gateway.runtime.partitions.partition import persist_files, persist_start_and_remove
from seqgate.gateway.runtime.partitions.unwritten import PutLimits
from seqgate.log import KeptWrites, LogConfig, Storage, StorageFailed, retention
from seqgate.log.format.record_batch import whole_batches
from tests.gateway.runtime.partitions.object_scene import Scene
from tests.log import deduplicated
from tests.log.support import NOW_MS, batch

LARGE = LogConfig(segment_bytes=1 << 20)


def test_one_object_has_the_batches_of_all_partitions(tmp_path: Path) -> None:
    at = Scene(tmp_path, partitions=3)
    for index in (0, 1, 2, 1):
        at.append(index)
    at.run()
    [(rows, _)] = at.held.objects
    ranges = [(row.partition, row.first_offset, row.end_offset) for row in rows if isinstance(row, DataRow)]
    assert ranges == [(0, 0, 1), (1, 0, 2), (2, 0, 1)]
    assert at.answers == []
    assert [partition.log.high_watermark for partition in at.partitions] == [0, 0, 0]
    at.held.confirm()
    assert at.answers == [(0, 0, True), (1, 0, True), (2, 0, True), (1, 1, True)]
    assert [partition.log.high_watermark for partition in at.partitions] == [1, 2, 1]
    at.finish()


def test_rounds_overlap_and_end_in_order(tmp_path: Path) -> None:
    at = Scene(tmp_path)
    over: list[int] = []
    at.flusher.after_round.append(lambda: over.append(len(at.answers)))
    for _ in range(3):
        at.append()
        at.run()
    assert at.held.in_flight == 3
    assert at.flusher.is_flushing
    for confirmed in (1, 2, 3):
        at.held.confirm()
        assert at.log.high_watermark == confirmed
        assert at.answers == [(0, offset, True) for offset in range(confirmed)]
    assert over == [1, 2, 3], "after a round its answers leave together"
    at.finish()
    assert not at.flusher.is_flushing


def test_no_more_objects_are_in_flight_than_allowed(tmp_path: Path) -> None:
    at = Scene(tmp_path, limits=PutLimits(puts_in_flight=2))
    for _ in range(5):
        at.append()
        at.run()
    assert at.held.in_flight == 2
    at.held.confirm()
    at.run()
    assert at.held.in_flight == 2
    last = at.held.objects[-1][0][-1]
    assert isinstance(last, DataRow)
    assert (last.first_offset, last.end_offset) == (2, 5), "what came meanwhile shares an object"
    at.held.confirm(2)
    at.finish()


class TestWhenARoundBegins:
    def test_at_once_while_nothing_is_in_flight(self, tmp_path: Path) -> None:
        at = Scene(tmp_path, latency_s=0.03)
        for _ in range(5):
            at.append()
            begun_s = at.loop.time()
            at.loop.run_until_complete(at.flusher.idle())
            assert at.held.put_at_s[-1] - begun_s < 0.005
        assert len(at.held.objects) == 5

    def test_later_while_an_object_is_in_flight(self, tmp_path: Path) -> None:
        at = Scene(tmp_path, latency_s=0.5, config=LARGE)
        for _ in range(30):
            at.append()
            at.run(0.01)
        at.finish()
        gaps = [
            later - earlier for earlier, later in zip(at.held.put_at_s, at.held.put_at_s[1:], strict=False)
        ]
        assert len(gaps) >= 2
        assert min(gaps) >= 0.099, "a round gathers for a tenth of a second"

    def test_earlier_once_it_fills_an_object(self, tmp_path: Path) -> None:
        at = Scene(tmp_path, limits=PutLimits(put_max_bytes=2000), config=LARGE)
        at.append()
        at.run(0.01)
        assert at.held.in_flight == 1
        at.append()
        at.run(0.01)
        assert at.held.in_flight == 1
        at.append(size=2000)
        at.run(0.01)
        assert at.held.in_flight == 3
        at.held.confirm(3)
        at.finish()

    def test_never_beyond_the_budget(self, tmp_path: Path) -> None:
        at = Scene(tmp_path, latency_s=0.001, limits=PutLimits(puts_per_second=5), config=LARGE)
        for _ in range(400):
            at.append()
            at.run(0.01)
        at.finish()
        assert at.loop.time() == pytest.approx(4, abs=0.5)
        assert 20 <= len(at.held.objects) <= 5 + 5 * 4 + 2, "five at once, then five per second"

    def test_full_objects_take_nothing_from_the_budget(self, tmp_path: Path) -> None:
        limits = PutLimits(puts_per_second=2, put_max_bytes=1000)
        at = Scene(tmp_path, latency_s=0.001, limits=limits, config=LARGE)
        for _ in range(40):
            at.append(size=900)
            at.append(size=900)
            at.run(0.01)
        assert len(at.held.objects) > 40
        begun_s, objects = at.loop.time(), len(at.held.objects)
        at.append(size=10)
        at.finish()
        assert at.loop.time() - begun_s < 1.1, "a small object waits for its own share only"
        assert len(at.held.objects) <= objects + 2


class TestSizes:
    def test_a_large_round_is_divided_between_batches(self, tmp_path: Path) -> None:
        at = Scene(tmp_path, partitions=2, latency_s=0.05, limits=PutLimits(put_max_bytes=1000), config=LARGE)
        for size in (100, 300, 50, 2500, 700, 20, 20, 900, 900):
            at.append(0, size=size)
            at.append(1, size=size, count=2)
        at.finish()
        for rows, data in at.held.objects:
            size_bytes = sum(map(len, data))
            batches = [header for content in data for _, header in whole_batches(content)]
            ends = [row.end_offset for row in rows if isinstance(row, DataRow)]
            assert (
                sum(header.size_bytes for header in batches)
                + sum(row.length for row in rows if isinstance(row, FileRow))
                == size_bytes
            ), "no batch is divided"
            assert set(ends) <= {header.last_offset + 1 for header in batches}
            assert size_bytes <= 1000 or len(batches) <= 1 or rows[0].length > 1000
            if rows[0].partition == 0 and isinstance(rows[0], DataRow) and rows[0].first_offset == 0:
                raise AssertionError("the first records come before the metadata of their partition")
        assert len(at.answers) == 18
        assert all(is_persisted for _, _, is_persisted in at.answers)

    @pytest.mark.parametrize("most_bytes", [1 << 20, 2000])
    def test_large_batches_are_not_read_back(self, tmp_path: Path, most_bytes: int) -> None:
        kept_writes = KeptWrites(least_bytes=250, max_bytes=most_bytes)
        at = Scene(tmp_path, limits=PutLimits(put_max_bytes=1000), config=LARGE, kept_writes=kept_writes)
        for size in (300, 50, 50, 700, 400, 2500, 20, 300):
            at.append(size=size)
        assert 0 < kept_writes.size_bytes <= most_bytes
        at.run()
        while at.held.in_flight:
            at.held.confirm()
            at.run()
        at.finish()
        pieces = [content for _, data in at.held.objects for content in data if isinstance(content, tuple)]
        assert len(pieces) == (5 if most_bytes > 2000 else 4)
        assert not kept_writes.size_bytes

    def test_a_round_of_many_rolled_segments(self, tmp_path: Path) -> None:
        at = Scene(tmp_path, latency_s=0.05)
        at.append()
        at.finish()
        for _ in range(100):
            at.append()
        assert len(at.log.segments) > 5
        at.finish()


def test_a_request_joins_the_round_that_has_its_offset(tmp_path: Path) -> None:
    at = Scene(tmp_path)
    at.append()
    at.run()
    at.append()
    at.run()
    at.partition.when_decided(1, lambda is_persisted: at.answers.append((0, 1, is_persisted)))
    assert at.held.in_flight == 2, "it needs no object of its own"
    at.held.confirm(2)
    assert at.answers == [(0, 0, True), (0, 1, True), (0, 1, True)]
    at.partition.when_decided(1, lambda is_persisted: at.answers.append((0, 1, is_persisted)))
    at.finish()
    assert at.answers[3:] == [(0, 1, True)], "it is answered, though nothing is left to write"


def test_flushed_waits_until_the_log_is_durable(tmp_path: Path) -> None:
    at = Scene(tmp_path, latency_s=0.05)
    at.log.append(batch(), now_ms=NOW_MS)
    at.loop.run_until_complete(at.flusher.flushed(at.log))
    assert at.log.recovery_point == 1
    at.held.fence()
    at.log.append(batch(), now_ms=NOW_MS)
    with pytest.raises(StorageFailed):
        at.loop.run_until_complete(at.flusher.flushed(at.log))


class TestFenced:
    def test_nothing_is_acknowledged_any_more(self, tmp_path: Path) -> None:
        at = Scene(tmp_path, partitions=3)
        at.append(0)
        at.run()
        at.append(1)
        at.run()
        at.append(2)
        at.held.fence()
        at.loop.run_until_complete(at.flusher.idle())
        assert sorted(at.answers) == [(0, 0, False), (1, 0, False), (2, 0, False)]
        assert all(partition.log.offline for partition in at.partitions)
        assert all(partition.log.high_watermark == 0 for partition in at.partitions)
        at.held.confirm(2)
        assert at.log.high_watermark == 0, "a late confirmation changes nothing"
        assert at.flusher.failures == 3

    def test_a_reopened_log_acknowledges_nothing_either(self, tmp_path: Path) -> None:
        at = Scene(tmp_path)
        at.append()
        at.run()
        at.held.fence()
        at.log.reopen(NOW_MS)
        at.append()
        at.loop.run_until_complete(at.flusher.idle())
        assert at.answers == [(0, 0, False), (0, 1, False)]
        assert at.log.high_watermark == 0

    def test_while_a_thread_reads(self, tmp_path: Path) -> None:
        at = Scene(tmp_path, config=LARGE)
        at.append(size=200_000)
        at.loop.call_soon(at.held.fence)
        at.loop.run_until_complete(at.flusher.idle())
        at.run()
        assert at.answers == [(0, 0, False)]
        assert at.held.objects == []


class TestRemovals:
    def test_an_object_has_the_log_start_before_any_file_goes(self, tmp_path: Path) -> None:
        at = Scene(tmp_path)
        for _ in range(30):
            at.append()
            at.run()
            at.held.confirm()
        assert len(at.log.segments) > 3
        ticket = retention.prepare_delete_records(at.log, 25, NOW_MS)
        assert ticket is not None
        removal = at.loop.create_task(persist_start_and_remove(at.partition, ticket, NOW_MS))
        at.run()
        path = Path(at.log.directory) / "log-start-offset-checkpoint"
        assert not removal.done()
        assert not path.exists()
        assert at.log.log_start_offset == 0
        rows, data = at.held.objects[-1]
        assert [row.name for row in rows if isinstance(row, FileRow)] == [path.name]
        at.held.confirm()
        at.loop.run_until_complete(removal)
        assert at.log.log_start_offset == 25
        assert path.read_bytes() == data[-1]
        assert len(at.log.segments) < 4

    def test_a_removal_waits_for_the_records_before_it(self, tmp_path: Path) -> None:
        at = Scene(tmp_path)
        at.append()
        at.run()
        at.held.confirm()
        at.append()
        at.run()
        at.log.roll(NOW_MS)
        ticket = retention.prepare_delete_records(at.log, 1, NOW_MS)
        assert ticket is not None
        ticket.flush.end_offset = 2
        removal = at.loop.create_task(persist_start_and_remove(at.partition, ticket, NOW_MS))
        at.run()
        assert at.held.in_flight == 1
        at.held.confirm()
        at.run()
        assert at.held.in_flight == 1
        at.held.confirm()
        at.loop.run_until_complete(removal)
        assert at.log.log_start_offset == 1

    def test_a_fenced_gateway_removes_nothing(self, tmp_path: Path) -> None:
        at = Scene(tmp_path)
        at.append()
        at.run()
        at.held.confirm()
        ticket = retention.prepare_delete_records(at.log, 1, NOW_MS)
        assert ticket is not None
        removal = at.loop.create_task(persist_start_and_remove(at.partition, ticket, NOW_MS))
        at.run()
        at.held.fence()
        at.loop.run_until_complete(removal)
        assert at.log.log_start_offset == 0
        assert at.log.offline

    def test_files_alone_need_no_object(self, tmp_path: Path) -> None:
        at = Scene(tmp_path, latency_s=0.05)
        at.append()
        at.finish()
        at.log.roll(NOW_MS)
        count = len(at.held.objects)
        at.loop.run_until_complete(persist_files(at.partition))
        assert at.log.unflushed.is_durable
        assert len(at.held.objects) == count


class TestTransactions:
    def test_no_object_has_a_batch_before_the_record_by_which_its_partition_takes_part(
        self, tmp_path: Path
    ) -> None:
        at = Scene(
            tmp_path,
            partitions=2,
            topics=["flights", TRANSACTION_STATE_TOPIC],
            latency_s=0.05,
            limits=PutLimits(put_max_bytes=1000),
            config=LARGE,
        )
        at.append(0, size=900)
        at.append(1, size=900)
        at.finish()
        places = [row.partition for rows, _ in at.held.objects for row in rows if isinstance(row, DataRow)]
        assert places == [1, 0]


class TestSideFiles:
    def test_a_new_partition_sends_its_metadata_with_its_first_records(self, tmp_path: Path) -> None:
        at = Scene(tmp_path, latency_s=0.05)
        at.append()
        at.finish()
        [(rows, data)] = at.held.objects
        assert [row.name for row in rows if isinstance(row, FileRow)] == ["partition.metadata"]
        assert data[0] == (Path(at.log.directory) / "partition.metadata").read_bytes()

    def test_names_are_sent_behind_the_records_that_they_describe(self, tmp_path: Path) -> None:
        at = Scene(tmp_path, latency_s=0.05, config=deduplicated.CONFIG)
        at.partition.append(deduplicated.batch(0), NOW_MS)
        at.finish()
        for number in range(1, 40):
            at.partition.append(deduplicated.batch(number), NOW_MS)
        at.finish()
        end_offset, names = 0, []
        for rows, _ in at.held.objects:
            for row in rows:
                if isinstance(row, DataRow):
                    end_offset = row.end_offset
                elif row.name.endswith(".names"):
                    names.append(row.name)
                    assert int(row.name.removesuffix(".names")) <= end_offset
        assert names

    def test_a_side_file_that_can_not_be_written_takes_only_its_log_offline(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        at = Scene(tmp_path, partitions=2, latency_s=0.05)

        def fail(ticket: Any, written: Any) -> None:
            if ticket.place.partition == 0:
                raise OSError("a test says so")

        monkeypatch.setattr(at.durability, "write_side_files", fail)
        at.append(0)
        at.append(1)
        at.finish()
        assert at.answers == [(0, 0, True), (1, 0, True)], "objects have the records"
        assert [partition.log.offline for partition in at.partitions] == [True, False]
        at.log.reopen(NOW_MS)
        at.append(0)
        monkeypatch.undo()
        at.finish()


class TestFailures:
    def test_records_that_can_not_be_read_are_not_acknowledged(self, tmp_path: Path) -> None:
        at = Scene(tmp_path, partitions=2, latency_s=0.05)
        at.append(0)
        at.append(1)
        path = Path(at.log.segments.active.file.path)
        content = path.read_bytes()
        with path.open("r+b") as file:
            file.truncate(10)
        at.loop.run_until_complete(at.flusher.idle())
        assert sorted(at.answers) == [(0, 0, False), (1, 0, True)]
        assert at.log.offline
        path.write_bytes(content)
        at.log.reopen(NOW_MS)
        at.append(0)
        at.finish()
        assert at.answers[2:] == [(0, 1, True)]
        assert at.log.high_watermark == 2

    def test_bytes_that_the_disk_changed_get_into_no_object(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Storage, "was_just_written", lambda *_: False)
        at = Scene(tmp_path, partitions=2, latency_s=0.05)
        at.append(0)
        at.finish()
        at.append(0)
        at.append(1)
        path = Path(at.log.segments.active.file.path)
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        at.loop.run_until_complete(at.flusher.idle())
        assert sorted(at.answers[1:]) == [(0, 1, False), (1, 0, True)]
        at.log.reopen(NOW_MS)
        assert at.log.log_end_offset == 1, (
            "the damaged batch was not acknowledged, so the reopened log ends before it"
        )
        at.append(0)
        at.finish()

    def test_a_log_that_comes_back_keeps_what_was_sent(self, tmp_path: Path) -> None:
        at = Scene(tmp_path)
        at.append()
        at.run()
        at.append()
        at.log.go_offline("a test says so")
        at.run()
        assert at.answers == [(0, 1, False)], "it is not known whether the record stays"
        at.log.reopen(NOW_MS)
        assert at.log.high_watermark == 0
        at.flusher.reopened(at.log)
        at.partition.start_flush()
        at.run()
        assert at.held.in_flight == 2
        at.held.confirm(2)
        at.finish()
        assert at.answers == [(0, 1, False), (0, 0, True)]
        assert at.log.high_watermark == 2


class TestUnwritten:
    def test_producers_are_refused_until_half_is_written(self, tmp_path: Path) -> None:
        at = Scene(tmp_path, config=LARGE, limits=PutLimits(unwritten_max_bytes=10_000, put_max_bytes=2000))
        told: list[bool] = []
        at.flusher.unwritten.when_changed.append(told.append)
        for _ in range(8):
            at.append(size=1300)
            at.run(0.2)
        assert told == [True]
        assert at.flusher.unwritten.is_too_much
        while at.held.in_flight:
            at.held.confirm()
            at.run()
        assert told == [True, False]
        assert at.flusher.unwritten.size_bytes == 0
        at.finish()

    def test_bytes_of_failed_rounds_do_not_count(self, tmp_path: Path) -> None:
        at = Scene(tmp_path, config=LARGE, limits=PutLimits(unwritten_max_bytes=1000))
        at.append(size=1300)
        at.run()
        at.held.fence()
        at.loop.run_until_complete(at.flusher.idle())
        assert at.flusher.unwritten.size_bytes == 0
