"""Logs that deduplicate by producer names, and batches for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from seqgate.log import LogConfig, PartitionLog
from seqgate.log.format.record_batch import parse_header, whole_batches
from seqgate.log.format.records import NewRecord, build_batch, iterate_records
from seqgate.log.recovery.load import CleanStop
from seqgate.log.segments.scan import Appended
from tests.log.support import NOW_MS, open_log, read_log

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
"""The position of the length in a batch."""


def batch(
    *sequence_ids: int | None,
    name: str = "app",
    epoch: int | None = None,
    producer_id: int = -1,
    sequence: int = 0,
    is_transactional: bool = False,
    codec: str = "none",
) -> bytes:
    """Return a batch with a record per sequence id, which is also the record's value; None makes a record
    without headers.
    """
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


def send(log: PartitionLog, *sequence_ids: int | None, now_ms: int = NOW_MS, **given: object) -> Appended:
    return log.append(batch(*sequence_ids, **given), now_ms=now_ms)  # type: ignore[arg-type]


def values(log: PartitionLog) -> list[tuple[int, int]]:
    """Return (offset, value) of every record."""
    found = []
    for batch_bytes in batches(log):
        if not parse_header(batch_bytes).is_control:
            found += [(record.offset, int(record.value or b"")) for record in iterate_records(batch_bytes)]
    return found


def batches(log: PartitionLog) -> list[memoryview]:
    end = log.log_end_offset
    data = memoryview(read_log(log, log.log_start_offset, 1 << 20, upper_bound=end))
    return [data[at : at + header.size_bytes] for at, header in whole_batches(data)]


def known(log: PartitionLog, name: str = "app") -> tuple[int, int]:
    """Return the name's (persisted, pushed) sequence ids."""
    state = log.record_states.name_state(name.encode())
    return (-1, -1) if state is None else (state.persisted_sequence, state.pushed_sequence)


def again(
    log: PartitionLog, config: LogConfig = LARGE, *, clean: bool = False, replayed: bool = True
) -> PartitionLog:
    """Open the log of the same directory as the next process does."""
    stop: CleanStop | None = log.close(clean=clean)
    opened = open_log(Path(log.directory), config, clean_stop=stop)
    if replayed:
        while not opened.record_states.replay_names(1, NOW_MS):
            pass
    return opened
