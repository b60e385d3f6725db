"""Cleans a log in this process, as the worker and the gateway do together, and reads the result."""

from __future__ import annotations

import itertools
from typing import NamedTuple

from seqgate.log import PartitionLog, Storage
from seqgate.log.cleaning import (
    Cleaning,
    abandon_swap,
    begin_cleaning,
    begin_swap,
    cleanable,
    fail_swap,
    finish_swap,
    replace_sources,
)
from seqgate.log.compaction.cleaner import LogCleaner, Throttle
from seqgate.log.compaction.job import CleanedSegment, CleaningFinished, JobLimits, decode_job, encode_job
from seqgate.log.compaction.swap import SwapTicket
from seqgate.log.format.record_batch import BatchHeader, parse_header, whole_batches
from seqgate.log.format.records import NewRecord, build_batch, iterate_records
from tests.log.support import persist, read_log

LIMITS = JobLimits(map_bytes=1 << 20, map_load_factor=0.9, read_bytes=4096, bytes_per_s=0)
_tokens = itertools.count()


def keyed(
    *records: tuple[str | None, str | None],
    timestamp: int = 1_000,
    producer_id: int = -1,
    base_sequence: int = -1,
    codec: str = "none",
    is_transactional: bool = False,
) -> bytes:
    """Return a batch of (key, value) pairs. None stands for no key, or for a tombstone."""
    return build_batch(
        [
            NewRecord(
                None if value is None else value.encode(),
                key=None if key is None else key.encode(),
                timestamp=timestamp + index,
                headers=(("h", b"x"),),
            )
            for index, (key, value) in enumerate(records)
        ],
        codec=codec,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )


class Kept(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None


def begin(
    log: PartitionLog, *, clean_end_offset: int | None = None, now_ms: int, limits: JobLimits = LIMITS
) -> Cleaning:
    found = cleanable(log, clean_end_offset, log.recovery_point, now_ms)
    ticket = log.prepare_flush()
    if ticket is not None:
        persist(ticket)
        log.complete_flush(ticket)
    return begin_cleaning(log, found, limits, token=f"t{next(_tokens)}", now_ms=now_ms)


def run(storage: Storage, cleaning: Cleaning) -> tuple[list[CleanedSegment], CleaningFinished]:
    cleaned: list[CleanedSegment] = []
    job = decode_job(encode_job(cleaning.job))
    throttle = Throttle(0, lambda: 0.0, lambda _: None)
    finished = LogCleaner(storage, job, throttle=throttle, salt=b"salt", report=cleaned.append).run()
    return cleaned, finished


def compact(
    log: PartitionLog,
    storage: Storage,
    *,
    clean_end_offset: int | None = None,
    now_ms: int,
    limits: JobLimits = LIMITS,
) -> CleaningFinished:
    """Clean everything that can be cleaned, once."""
    cleaning = begin(log, clean_end_offset=clean_end_offset, now_ms=now_ms, limits=limits)
    cleaned, finished = run(storage, cleaning)
    for segment in cleaned:
        ticket = begin_swap(log, cleaning, segment)
        assert ticket is not None
        swap(log, ticket, now_ms)
    return finished


def swap(log: PartitionLog, ticket: SwapTicket, now_ms: int) -> None:
    """Complete a swap as the gateway does. Raises OSError, StorageFailed."""
    try:
        ticket.read_and_run()
    except OSError:
        abandon_swap(log, ticket)
        raise
    assert replace_sources(log, ticket, now_ms)
    try:
        ticket.run()
    except OSError as error:
        fail_swap(log, ticket, error)
        raise
    assert finish_swap(log, ticket)


def stored_batches(log: PartitionLog) -> list[tuple[BatchHeader, bytes]]:
    """Return all batches of the log as readers see them."""
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = read_log(log, offset, 1 << 20, upper_bound=log.log_end_offset)
        if not data:
            break
        for position, header in whole_batches(data):
            found.append((header, data[position : position + header.size_bytes]))
            offset = header.last_offset + 1
    return found


def stored(log: PartitionLog) -> list[Kept]:
    """Return all records except those of control batches."""
    return [
        Kept(record.offset, record.key, record.value)
        for header, data in stored_batches(log)
        if not header.is_control
        for record in iterate_records(data)
    ]


def whole(data: bytes) -> BatchHeader:
    return parse_header(data)
