"""Apache Kafka's DumpLogSegments reads the files of the log package without complaint, whatever the log went
through."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from seqgate.log import LogConfig, PartitionLog
from tests.log.support import NOW_MS, append_end_marker, batch, delete_due, delete_records, flush, open_log
from tests.support.kafka_tools import run_tool

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=500, file_delete_delay_ms=0)


def fill(log: PartitionLog, batches: int = 60) -> None:
    for number in range(batches):
        count = 1 + number % 7
        log.append(
            batch(
                count,
                codec=CODECS[number % 5],
                timestamp=NOW_MS + 100 * number - 250 * (number % 3),
                step_ms=3,
                size=300,
                producer_id=11,
                base_sequence=log.log_end_offset,
            ),
            now_ms=NOW_MS + number,
        )


def rolled_by_size(directory: Path) -> PartitionLog:
    log = open_log(directory, CONFIG)
    fill(log)
    return log


def rolled_by_time(directory: Path) -> PartitionLog:
    log = open_log(directory, replace(CONFIG, segment_ms=1000))
    fill(log)
    return log


def log_append_time(directory: Path) -> PartitionLog:
    log = open_log(directory, replace(CONFIG, message_timestamp_type="LogAppendTime"))
    fill(log)
    return log


def recovered(directory: Path) -> PartitionLog:
    rolled_by_size(directory).close(clean=False)
    for suffix in (".index", ".timeindex"):
        for path in directory.glob(f"*{suffix}"):
            path.unlink()
    newest = max(directory.glob("*.log"))
    newest.write_bytes(newest.read_bytes()[:-100])
    log = open_log(directory, CONFIG)
    assert log.bytes_cut > 0
    fill(log, 20)
    return log


def after_delete_records(directory: Path) -> PartitionLog:
    log = rolled_by_size(directory)
    flush(log)
    delete_records(log, 100)
    delete_due(log.environment, NOW_MS)
    fill(log, 10)
    return log


def without_timestamps(directory: Path) -> PartitionLog:
    log = open_log(directory, CONFIG)
    for _ in range(120):
        log.append(batch(5, timestamp=-1, size=200), now_ms=NOW_MS)
    return log


def restarted(directory: Path) -> PartitionLog:
    log = rolled_by_size(directory)
    log = open_log(directory, CONFIG, clean_stop=log.close(clean=True))
    fill(log)
    return log


def with_transactions(directory: Path) -> PartitionLog:
    """Write transactions of three producers: the second's are aborted, and the third's last one stays open."""
    log = open_log(directory, CONFIG)
    for number in range(60):
        producer_id = 21 + number % 3
        entry = log.producers.get(producer_id)
        log.append(
            batch(
                1 + number % 5,
                size=300,
                timestamp=NOW_MS + number,
                producer_id=producer_id,
                base_sequence=0 if entry is None else entry.next_sequence,
                is_transactional=True,
            ),
            now_ms=NOW_MS + number,
        )
        if number % 7 == 6:
            append_end_marker(
                log, producer_id, 0, commit=producer_id != 22, coordinator_epoch=4, now_ms=NOW_MS + number
            )
    return log


LOGS = (
    rolled_by_size,
    rolled_by_time,
    log_append_time,
    recovered,
    after_delete_records,
    without_timestamps,
    restarted,
    with_transactions,
)


@pytest.mark.parametrize("make", LOGS, ids=[make.__name__ for make in LOGS])
def test_dump_finds_nothing_wrong(tmp_path: Path, make: Callable[[Path], PartitionLog]) -> None:
    directory = tmp_path / "flights-0"
    log = make(directory)
    end_offset = log.log_end_offset
    assert len(log.segments) > 1
    assert log.close(clean=True) is not None
    dump(directory, ".log", "--deep-iteration", "--print-data-log", last_offset=end_offset - 1)
    for check in ("--verify-index-only", "--index-sanity-check"):
        dump(directory, ".index", check)
        dump(directory, ".timeindex", check)


def test_dump_shows_transactions(tmp_path: Path) -> None:
    directory = tmp_path / "flights-0"
    log = with_transactions(directory)
    aborted = log.segments.aborted_between(0, log.log_end_offset)
    assert len(aborted) == 3
    log.close(clean=True)
    files = sorted(directory.glob("*.log")) + sorted(directory.glob("*.txnindex"))
    assert len(files) > 3
    run = run_tool(
        "kafka-dump-log", "--deep-iteration", "--print-data-log", "--files", ",".join(map(str, files))
    ).expect_success()
    assert run.stdout.count("endTxnMarker: COMMIT coordinatorEpoch: 4") == 5
    assert run.stdout.count("endTxnMarker: ABORT coordinatorEpoch: 4") == 3
    shown = re.findall(
        r"version: 0 producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)",
        run.stdout,
    )
    assert [(int(producer_id), int(first)) for producer_id, first, _, _ in shown] == aborted


def dump(directory: Path, suffix: str, *options: str, last_offset: int | None = None) -> None:
    files = sorted(directory.glob(f"*{suffix}"))
    assert len(files) > 1
    run = run_tool("kafka-dump-log", *options, "--files", ",".join(map(str, files))).expect_success()
    # Kafka's tool prints this about the first offset of every segment but the first, in Kafka's own
    # logs too.
    complaints = re.sub(r"Non-consecutive offsets in \S+\n(  -1 is followed by \d+\n)", "", run.stderr)
    assert complaints == ""
    for bad in ("isvalid: false", "Mismatch", "out of order", "not equal", "xception"):
        assert bad not in run.stdout
    assert run.stdout.count("Dumping ") == len(files)
    if last_offset is not None:
        assert f"lastOffset: {last_offset} " in run.stdout
        assert f"| offset: {last_offset} " in run.stdout
