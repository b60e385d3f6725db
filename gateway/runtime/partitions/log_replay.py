"""Replays a partition log from an offset to its end, to rebuild state that is stored in the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from log import CorruptRecord, PartitionLog
from log.format.record_batch import BatchHeader, crc_matches
from log.format.records import Record, iterate_records

_READ_BYTES: Final = 4 * 1024 * 1024


def replay_records(log: PartitionLog, offset: int) -> Iterator[Record]:
    """Yield all records from `offset` to the present end of the log. Raises LogError."""
    for _, batch in replay_batches(log, offset):
        yield from iterate_records(batch)


def replay_batches(log: PartitionLog, offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield all batches from `offset` to the present end of the log, as header and bytes. Raises LogError.

    State is replayed from sound batches only: a damaged one ends the replay with CorruptRecord.
    """
    log.outage.check()
    with log.outage.reading():
        for header, batch in log.batches(offset, log.log_end_offset, _READ_BYTES):
            if not crc_matches(header, batch):
                raise CorruptRecord(f"{log.place} is damaged at offset {header.base_offset}")
            yield header, batch
    log.segments.drop_cached()
