"""A partition log on a temporary directory, and batches for it."""

from __future__ import annotations

import struct
import threading
import uuid
from pathlib import Path
from typing import Any, Final

from seqgate.log import (
    Appended,
    DeletedSegment,
    FlushTicket,
    LocalDurability,
    LogConfig,
    PartitionLog,
    RemovalTicket,
    Storage,
    retention,
)
from seqgate.log.environment import LogEnvironment
from seqgate.log.format.records import NewRecord, build_batch
from seqgate.log.log_lists import LogLists
from seqgate.log.recovery.load import CleanStop
from tests.support.batches import read_batches

NOW_MS = 1_700_000_000_000
DISK_OPERATIONS: Final = frozenset(
    name for name, member in vars(Storage).items() if callable(member) and not name.startswith("_")
)
SMALL = LogConfig(segment_bytes=600, index_interval_bytes=100, file_delete_delay_ms=0)


def read_log(
    log: PartitionLog, offset: int, max_bytes: int, *, upper_bound: int, min_one_batch: bool = True
) -> bytes:
    """Return the bytes that `find` finds."""
    region = log.find(offset, max_bytes, upper_bound=upper_bound, min_one_batch=min_one_batch)
    return b"" if region is None else log.read_region(region)


def delete_due(environment: LogEnvironment, now_ms: int, max_files: int = 1 << 62) -> int:
    """Delete the queued files that are due, in this thread. Return the number of files deleted."""
    ticket = environment.deletions.prepare(
        environment.storage, environment.durability, now_ms, max_files=max_files
    )
    if ticket is None:
        return 0
    ticket.run()
    environment.deletions.complete(ticket, now_ms)
    return ticket.files


def open_log(
    directory: Path,
    config: LogConfig = SMALL,
    *,
    storage: Storage | None = None,
    environment: LogEnvironment | None = None,
    lists: LogLists[PartitionLog] | None = None,
    recovery_point: int = 0,
    clean_stop: CleanStop | None = None,
    now_ms: int = NOW_MS,
) -> PartitionLog:
    """Load a log and flush the derived state that the load captured, as a gateway does."""
    directory.mkdir(exist_ok=True)
    log = PartitionLog(
        environment or LogEnvironment(storage or Storage()),
        str(directory),
        topic="flights",
        partition=0,
        topic_id=uuid.UUID(int=7),
        config=config,
        now_ms=now_ms,
        recovery_point=recovery_point,
        clean_stop=clean_stop,
        lists=lists,
    )
    if log.unflushed.has_captures:
        flush(log)
    return log


def batch(
    count: int = 1,
    *,
    timestamp: int = NOW_MS,
    codec: str = "none",
    producer_id: int = -1,
    base_sequence: int = -1,
    producer_epoch: int = 0,
    size: int = 20,
    step_ms: int = 0,
    is_transactional: bool = False,
) -> bytes:
    records = [
        NewRecord(f"v{index}".encode().ljust(size, b"."), timestamp=timestamp + index * step_ms)
        for index in range(count)
    ]
    return build_batch(
        records,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch if producer_id >= 0 else -1,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )


def fill(
    log: PartitionLog, batches: int, *, count: int = 1, timestamp: int = NOW_MS, step_ms: int = 1
) -> None:
    for number in range(batches):
        log.append(batch(count, timestamp=timestamp + number * step_ms), now_ms=NOW_MS)


def persist(ticket: FlushTicket | RemovalTicket) -> None:
    """Make a ticket durable on the local disk. Raises OSError."""
    flush = ticket.flush if isinstance(ticket, RemovalTicket) else ticket
    LocalDurability(flush.storage).persist(flush)


def flush(log: PartitionLog) -> None:
    ticket = log.prepare_flush()
    if ticket is not None:
        persist(ticket)
        log.complete_flush(ticket)
    log.advance_high_watermark(log.log_end_offset)


def delete_records(log: PartitionLog, offset: int, now_ms: int = NOW_MS) -> int:
    """Delete the records before `offset` and return the log start offset, as a DeleteRecords request does."""
    ticket = retention.prepare_delete_records(log, offset, now_ms)
    if ticket is not None:
        remove(log, ticket, now_ms)
    return log.log_start_offset


def delete_old_segments(log: PartitionLog, now_ms: int) -> list[DeletedSegment]:
    """Remove the segments that the log's retention settings no longer keep. Return these segments."""
    ticket = retention.prepare_retention(log, now_ms)
    return [] if ticket is None else remove(log, ticket, now_ms)


def remove(log: PartitionLog, ticket: RemovalTicket, now_ms: int = NOW_MS) -> list[DeletedSegment]:
    """Run a removal's ticket and complete the removal. Raises StorageFailed when the disk fails."""
    try:
        persist(ticket)
    except OSError as error:
        retention.fail_removal(log, ticket, error)
        log.check_online()
        return []
    return retention.complete_removal(log, ticket, now_ms)


def append_end_marker(
    log: PartitionLog,
    producer_id: int,
    producer_epoch: int,
    *,
    commit: bool,
    coordinator_epoch: int,
    now_ms: int,
    leader_epoch: int = 0,
) -> Appended:
    """Append the marker that ends the producer's open transaction."""
    marker = log.end_marker(
        producer_id, producer_epoch, commit=commit, coordinator_epoch=coordinator_epoch, now_ms=now_ms
    )
    return log.append(marker, now_ms=now_ms, leader_epoch=leader_epoch, is_client=False)


def offsets_read(log: PartitionLog, offset: int, max_bytes: int = 300) -> list[int]:
    """Read repeatedly from the batch with `offset` to the high watermark; return the base offsets of all
    batches.
    """
    found: list[int] = []
    while offset < log.high_watermark:
        views, _ = read_batches(read_log(log, offset, max_bytes, upper_bound=log.high_watermark))
        assert views
        assert all(view.crc_is_right for view in views)
        found += [view.base_offset for view in views]
        offset = views[-1].base_offset + views[-1].last_offset_delta + 1
    return found


def plant_segments(directory: Path, count: int) -> None:
    """Write `count` closed segments of one record each into a partition's directory, from offset 0 on."""
    head, rest = batch()[:8], batch()[8:]
    for offset in range(count):
        name = f"{directory}/{offset:020d}"
        Path(f"{name}.log").write_bytes(offset.to_bytes(len(head), "big") + rest)
        Path(f"{name}.index").touch()
        Path(f"{name}.timeindex").write_bytes(struct.pack(">qi", NOW_MS, 0))


class CountingStorage(Storage):
    """Counts the disk operations of the thread that created it. `largest` is the most between two calls of
    `turn`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()
        self._count = 0
        self.largest = 0

    def turn(self) -> None:
        self.largest = max(self.largest, self._count)
        self._count = 0

    def __getattribute__(self, name: str) -> Any:
        if name in DISK_OPERATIONS and threading.get_ident() == self._thread:
            self._count += 1
        return super().__getattribute__(name)
