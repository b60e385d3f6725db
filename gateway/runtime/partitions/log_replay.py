"""Reads a partition log from one end to the other, to replay the state that it holds at start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from log import CorruptRecord, PartitionLog
from log.format.record_batch import HEADER_BYTES, BatchHeader, crc_matches, whole_batches
from log.format.records import Record, iterate_records

_READ_BYTES: Final = 4 * 1024 * 1024


def replay_records(log: PartitionLog, offset: int) -> Iterator[Record]:
    """Yield all records from `offset` to the present end of the log. Raises LogError."""
    for _, batch in replay_batches(log, offset):
        yield from iterate_records(batch)


def replay_batches(log: PartitionLog, offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield all batches from `offset` to the present end of the log, as header and bytes. Raises LogError."""
    end_offset = log.log_end_offset
    while offset < end_offset:
        data = memoryview(log.read(offset, _READ_BYTES, upper_bound=end_offset, min_one_batch=True).records)
        start = offset
        for position, header in whole_batches(data):
            if header.size_bytes < HEADER_BYTES or not crc_matches(header, data, position):
                raise CorruptRecord(f"{log.topic}-{log.partition} is damaged at offset {offset}")
            yield header, data[position : position + header.size_bytes]
            offset = header.last_offset + 1
        if offset == start:
            raise CorruptRecord(f"{log.topic}-{log.partition} has no whole batch at offset {offset}")
    log.segments.drop_cached()
