"""A partition log whose topic delays records: waiting records, the offset that they hold, and the state after
a restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from seqgate.log import LogConfig, PartitionLog, Storage
from seqgate.log.environment import LogEnvironment
from seqgate.log.errors import DelayedLimitReached, InvalidRecord
from seqgate.log.files.file_names import DELAYED_RECORDS
from seqgate.log.format.records import NewRecord, build_batch
from seqgate.log.recovery.load import CleanStop
from seqgate.log.state.delays import NOT_HELD, Delays
from tests.log.support import (
    NOW_MS,
    append_end_marker,
    delete_old_segments,
    delete_records,
    flush,
    open_log,
    persist,
)

CONFIG = LogConfig(
    segment_bytes=600,
    index_interval_bytes=100,
    file_delete_delay_ms=0,
    delivery_delay_header="due",
    delivery_delay_max_ms=10_000,
    delivery_delay_hold_ms=0,
)


def batch(*delays_ms: int | None, producer_id: int = -1, sequence: int = -1, codec: str = "none") -> bytes:
    """Return a batch with a record per delay; None makes a record without the header."""
    records = [
        NewRecord(
            b"v" * 50,
            timestamp=NOW_MS,
            headers=() if delay_ms is None else [("due", b"%d" % (NOW_MS + delay_ms))],
        )
        for delay_ms in delays_ms
    ]
    return build_batch(
        records,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
        is_transactional=producer_id >= 0,
        codec=codec,
    )


def waiting(log: PartitionLog) -> dict[int, int]:
    """Return how long each record still waits at NOW_MS, by offset."""
    assert log.record_states.delayed is not None
    return {offset: due_ms - NOW_MS for due_ms, offset in log.record_states.delayed.entries()}


def send(log: PartitionLog, *delays_ms: int | None, **of_producer: int) -> None:
    log.append(batch(*delays_ms, **of_producer), now_ms=NOW_MS)  # type: ignore[arg-type]


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return open_log(tmp_path, CONFIG)


def again(
    log: PartitionLog,
    config: LogConfig = CONFIG,
    *,
    clean: bool = False,
    now_ms: int = NOW_MS,
    recovery_point: int = 0,
) -> PartitionLog:
    """Open the log of the same directory as the next process does."""
    stop: CleanStop | None = log.close(clean=clean)
    return open_log(
        Path(log.directory), config, clean_stop=stop, now_ms=now_ms, recovery_point=recovery_point
    )


class TestAppending:
    def test_what_is_due_later_waits_and_holds_the_log(self, log: PartitionLog) -> None:
        send(log, None, -5, 0, 30)
        send(log, 20)
        assert waiting(log) == {3: 30, 4: 20}
        assert (log.held_from, log.record_states.next_due_ms) == (3, NOW_MS + 20)
        assert not log.record_states.release_due(NOW_MS + 19)
        assert log.record_states.release_due(NOW_MS + 20)
        assert waiting(log) == {3: 30}
        assert log.record_states.release_due(NOW_MS + 30)
        assert log.held_from == NOT_HELD

    @pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
    def test_compressed(self, log: PartitionLog, codec: str) -> None:
        log.append(batch(None, 10, codec=codec), now_ms=NOW_MS)
        assert waiting(log) == {1: 10}

    def test_a_header_that_tells_no_time(self, log: PartitionLog, caplog: pytest.LogCaptureFixture) -> None:
        records = [NewRecord(b"v", headers=[("due", value)]) for value in (b"tomorrow", None, b"-1", b"1.5")]
        log.append(build_batch(records), now_ms=NOW_MS)
        assert not waiting(log)
        (line,) = caplog.messages
        assert "the header due of 4 records" in line

    def test_too_far_in_the_future_is_refused(self, log: PartitionLog) -> None:
        send(log, 10_000)
        with pytest.raises(InvalidRecord, match=r"10001 ms from now; delivery.delay.max.ms is 10000"):
            send(log, 5, 10_001)
        assert (log.log_end_offset, waiting(log)) == (1, {0: 10_000})

    def test_too_many_records_to_be_looked_at_are_refused(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, replace(CONFIG, max_decoded_records=2))
        send(log, 10, 20)
        with pytest.raises(InvalidRecord, match="3 records"):
            send(log, 10, 20, 30)
        assert log.log_end_offset == 2

    def test_no_room_for_more_until_some_are_due(self, tmp_path: Path) -> None:
        environment = LogEnvironment(Storage())
        environment.delayed_limit.change(3, 100)
        log = open_log(tmp_path, CONFIG, environment=environment)
        send(log, 10, 20, 30)
        with pytest.raises(DelayedLimitReached, match="No more records"):
            send(log, 40)
        send(log, None)
        log.append(batch(40), now_ms=NOW_MS + 10)
        assert waiting(log) == {1: 20, 2: 30, 4: 40}
        log.close(clean=False)
        assert environment.delayed_limit.in_all == 0
        assert not log.lists.delaying

    def test_a_duplicate_is_tracked_once(self, log: PartitionLog) -> None:
        for _ in range(2):
            send(log, 10, producer_id=7, sequence=0)
        assert waiting(log) == {0: 10}

    def test_a_topic_that_delays_nothing(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, replace(CONFIG, delivery_delay_header=""))
        send(log, 10)
        assert log.record_states.delayed is None
        assert log.held_from == NOT_HELD
        flush(log)
        log.close(clean=True)
        assert not (tmp_path / DELAYED_RECORDS).exists()


class TestTransactions:
    def end(self, log: PartitionLog, producer_id: int, *, commit: bool) -> None:
        append_end_marker(log, producer_id, 0, commit=commit, coordinator_epoch=0, now_ms=NOW_MS)

    @pytest.mark.parametrize("restarts", [False, True])
    def test_what_was_aborted_waits_for_nothing(self, log: PartitionLog, restarts: bool) -> None:
        send(log, 30, 40, producer_id=7, sequence=0)
        send(log, 30, producer_id=8, sequence=0)
        send(log, 50)
        if restarts:
            log.capture_delays()
            log = again(log)
        self.end(log, 7, commit=False)
        if restarts:
            log = again(log)
        assert waiting(log) == {2: 30, 3: 50}
        assert log.held_from == 2
        self.end(log, 8, commit=True)
        if restarts:
            log = again(log, clean=True)
        assert waiting(log) == {2: 30, 3: 50}

    def test_what_is_open_at_a_clean_stop(self, log: PartitionLog) -> None:
        send(log, 50)
        send(log, 30, producer_id=7, sequence=0)
        log = again(log, clean=True)
        assert waiting(log) == {0: 50, 1: 30}
        self.end(log, 7, commit=False)
        assert waiting(log) == {0: 50}


class TestDeletion:
    def old(self, log: PartitionLog) -> None:
        log.update_config(replace(log.config, retention_ms=1, retention_bytes=1))

    def fill(self, log: PartitionLog) -> None:
        for number in range(12):
            send(log, 5_000 if number == 6 else None, None, None)
        flush(log)
        assert len(log.segments) > 3

    def test_retention_leaves_what_waits(self, log: PartitionLog) -> None:
        self.fill(log)
        self.old(log)
        assert delete_old_segments(log, NOW_MS + 4_999)
        assert 0 < log.log_start_offset <= 18
        assert not delete_old_segments(log, NOW_MS + 4_999)
        assert delete_old_segments(log, NOW_MS + 5_000)
        assert log.log_start_offset == log.log_end_offset

    def test_retention_leaves_it_a_while_longer(self, log: PartitionLog) -> None:
        log.update_config(replace(CONFIG, delivery_delay_hold_ms=6_000))
        self.fill(log)
        self.old(log)
        delete_old_segments(log, NOW_MS)
        assert not delete_old_segments(log, NOW_MS + 10_999)
        assert delete_old_segments(log, NOW_MS + 11_100)

    @pytest.mark.parametrize("is_noted", [True, False])
    def test_a_while_longer_after_a_restart_too(self, log: PartitionLog, is_noted: bool) -> None:
        config = replace(CONFIG, delivery_delay_hold_ms=6_000)
        log.update_config(config)
        self.fill(log)
        log.record_states.release_due(NOW_MS + 5_001)
        if is_noted:
            log.capture_delays()
        log = again(log, config, now_ms=NOW_MS + 5_002)
        self.old(log)
        delete_old_segments(log, NOW_MS + 5_002)
        assert not delete_old_segments(log, NOW_MS + 10_999)
        assert delete_old_segments(log, NOW_MS + 11_100)

    def test_the_longest_time_is_for_ever(self, log: PartitionLog) -> None:
        config = replace(CONFIG, delivery_delay_hold_ms=2**63 - 1)
        log.update_config(config)
        self.fill(log)
        log.record_states.release_due(NOW_MS + 5_001)
        assert log.capture_delays()
        flush(log)
        log = again(log, config, now_ms=NOW_MS + 5_002)
        assert log.held_from == 18
        delete_old_segments(log, 2**62)
        assert 0 < log.log_start_offset <= 18

    def test_who_deletes_records_deletes_those_too(self, log: PartitionLog) -> None:
        self.fill(log)
        delete_records(log, 18)
        assert log.held_from == 18
        delete_records(log, 19)
        assert (log.held_from, waiting(log)) == (NOT_HELD, {})
        log = again(log)
        assert waiting(log) == {}


class TestRestart:
    @pytest.mark.parametrize("clean", [True, False])
    @pytest.mark.parametrize("is_noted", [True, False])
    def test_what_waits_is_found_again(self, log: PartitionLog, clean: bool, is_noted: bool) -> None:
        send(log, None, 30)
        flush(log)
        if is_noted:
            log.capture_delays()
        send(log, 20, None)
        flush(log)
        log = again(log, clean=clean)
        assert waiting(log) == {1: 30, 2: 20}
        assert log.held_from == 1

    def test_what_was_noted_is_not_read_again(
        self, log: PartitionLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for _ in range(10):
            send(log, 30, 40)
        flush(log)
        log.capture_delays()
        flush(log)
        send(log, 50)
        flush(log)
        read: list[int] = []
        replay = Delays.replay
        monkeypatch.setattr(
            Delays,
            "replay",
            lambda self, batch, *rest: (read.append(batch.base_offset), replay(self, batch, *rest)),
        )
        log = again(log)
        assert read == [20]
        assert len(waiting(log)) == 21
        read.clear()
        again(log, clean=True)
        assert not read

    @pytest.mark.parametrize(
        "damage",
        [
            lambda content: b"",
            lambda content: content[:-1],
            lambda content: content[:20] + b"\xff" + content[21:],
            lambda content: b"nonsense" * 10,
        ],
    )
    def test_with_a_damaged_file_the_log_is_read(self, log: PartitionLog, damage: object) -> None:
        send(log, 30, None, 20)
        log = again(log, clean=True)
        path = Path(log.directory) / DELAYED_RECORDS
        log.close(clean=True)
        path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
        log = open_log(Path(log.directory), CONFIG)
        assert waiting(log) == {0: 30, 2: 20}

    def test_a_file_of_a_longer_log_is_not_believed(self, log: PartitionLog) -> None:
        send(log, 30)
        flush(log)
        size_bytes = log.size_bytes
        send(log, 40)
        flush(log)
        log.capture_delays()
        flush(log)
        log.close(clean=False)
        (segment,) = Path(log.directory).glob("*.log")
        with segment.open("r+b") as file:
            file.truncate(size_bytes)
        log = open_log(Path(log.directory), CONFIG)
        assert waiting(log) == {0: 30}
        send(log, None, None)
        log = again(log)
        assert waiting(log) == {0: 30}

    def test_only_what_is_durable_is_noted(self, log: PartitionLog) -> None:
        send(log, 30)
        flush(log)
        send(log, 40)
        log.capture_delays()
        flush(log)
        content = (Path(log.directory) / DELAYED_RECORDS).read_bytes()
        assert (NOW_MS + 30).to_bytes(8, "big") in content
        assert (NOW_MS + 40).to_bytes(8, "big") not in content

    def test_after_a_failed_disk(self, log: PartitionLog) -> None:
        send(log, 30)
        flush(log)
        log.go_offline("a test")
        log.reopen(NOW_MS)
        assert waiting(log) == {0: 30}
        assert log.held_from == 0


class TestConfiguration:
    OFF = replace(CONFIG, delivery_delay_header="")

    def begin_off(self, path: Path, delays_ms: Sequence[int]) -> PartitionLog:
        log = open_log(path, self.OFF)
        send(log, *delays_ms)
        flush(log)
        return log

    def test_turned_on_it_is_for_records_to_come(self, tmp_path: Path) -> None:
        log = self.begin_off(tmp_path, [30, 40])
        log.alter_delays(CONFIG)
        flush(log)
        assert waiting(log) == {}
        send(log, 50)
        assert waiting(log) == {2: 50}
        log = again(log)
        assert waiting(log) == {2: 50}, "a restart must know from which offset on the header delays records"

    def test_a_log_that_is_loaded_before_its_configuration_is_known(self, log: PartitionLog) -> None:
        send(log, 30)
        log = again(log, self.OFF)
        log.update_config(CONFIG)
        assert waiting(log) == {0: 30}

    def test_turned_off_everything_is_due(self, log: PartitionLog) -> None:
        send(log, 30)
        log.alter_delays(self.OFF)
        assert log.record_states.delayed is None
        assert log.held_from == NOT_HELD
        log = again(log, self.OFF)
        log.alter_delays(CONFIG)
        assert waiting(log) == {}

    def test_turned_off_no_flush_in_flight_brings_the_file_back(
        self, log: PartitionLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        send(log, 1_000)
        flush(log)
        assert log.capture_delays()
        ticket = log.prepare_flush()
        assert ticket is not None
        delete = Storage.delete

        def delete_while_the_flush_runs(storage: Storage, path: str) -> None:
            delete(storage, path)
            persist(ticket)

        monkeypatch.setattr(Storage, "delete", delete_while_the_flush_runs)
        log.alter_delays(replace(CONFIG, delivery_delay_header=""))
        assert not (Path(log.directory) / DELAYED_RECORDS).exists()

    def test_with_another_header_everything_is_due(self, log: PartitionLog) -> None:
        other = replace(CONFIG, delivery_delay_header="not.before")
        send(log, 30)
        flush(log)
        log.alter_delays(other)
        send(log, 40)
        assert waiting(log) == {}
        log = again(log, other)
        assert waiting(log) == {}


@pytest.mark.parametrize("byte", [8, 70])
def test_a_damaged_batch_is_passed_over(tmp_path: Path, byte: int) -> None:
    log = open_log(tmp_path / "log", CONFIG)
    for delay_ms in (100, 200, 300):
        send(log, delay_ms)
    flush(log)
    log.close(clean=False)
    path = tmp_path / "log" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[len(batch(100)) + byte] ^= 1
    path.write_bytes(content)
    (tmp_path / "log" / DELAYED_RECORDS).unlink(missing_ok=True)
    log = open_log(tmp_path / "log", CONFIG, recovery_point=3)
    assert waiting(log) == {0: 100, 2: 300}
