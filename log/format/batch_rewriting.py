"""Rewrites a stored batch with fewer records.

The rewritten batch keeps base_offset and last_offset_delta, and with them every offset and the range of sequences. The batch also
keeps producer id, producer epoch, leader epoch, codec, and the bytes of each kept record. A delete horizon (KIP-534) is stored in
base_timestamp and marked by attribute bit 6; the records' timestamp deltas are then relative to the horizon.
Source: Kafka's `MemoryRecords.buildRetainedRecordsInto`, `DefaultRecordBatch.writeEmptyHeader`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from log.errors import InvalidRecord
from log.format import compression
from log.format.record_batch import (
    COMPRESSION_MASK,
    DELETE_HORIZON_FLAG,
    HEADER_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    sealed,
)
from log.format.records import as_int64, read_varint, read_varlong, write_varint

_new_tuple = tuple.__new__


class StoredRecord(NamedTuple):
    """A record inside the plain bytes of its batch. `offset` is absolute, `timestamp_delta` as stored."""

    offset: int
    timestamp_delta: int
    key: bytes | None
    has_value: bool
    start: int
    """The position of the record's length, its first bytes."""
    rest: int
    """The position after the record's timestamp delta."""
    end: int


def plain_records(header: BatchHeader, batch: memoryview, limit_bytes: int) -> bytes:
    """Return the records of a batch as plain bytes. Raises InvalidRecord, UnsupportedCompressionType."""
    return bytes(
        compression.decompress(header.compression, batch[HEADER_BYTES : header.size_bytes], limit_bytes)
    )


def stored_records(header: BatchHeader, plain: bytes) -> Iterator[StoredRecord]:
    """Yield the records in the plain bytes of a batch, by ascending offsets. Raises InvalidRecord on damage."""
    position = 0
    previous = -1
    base_offset, last_offset_delta = header.base_offset, header.last_offset_delta
    try:
        for _ in range(header.record_count):
            start = position
            length, position = _varint(plain, position)
            end = position + length
            timestamp_delta, rest = _varlong(plain, position + 1)
            offset_delta, position = _varint(plain, rest)
            if not previous < offset_delta <= last_offset_delta:
                raise InvalidRecord(
                    f"a record has offset delta {offset_delta}; "
                    f"it must be above {previous} and at most {last_offset_delta}"
                )
            key_bytes, position = _varint(plain, position)
            key = None
            if key_bytes >= 0:
                key = plain[position : position + key_bytes]
                position += key_bytes
            value_bytes, position = _varint(plain, position)
            if position + max(value_bytes, 0) >= end or end > len(plain):
                raise InvalidRecord("a record is shorter than its content")
            # The NamedTuple's own constructor takes three times as long, and this code runs for every record.
            yield _new_tuple(
                StoredRecord,
                (base_offset + offset_delta, timestamp_delta, key, value_bytes >= 0, start, rest, end),
            )
            previous, position = offset_delta, end
    except IndexError:
        raise InvalidRecord("the records are cut") from None
    if position != len(plain):
        raise InvalidRecord(f"{len(plain) - position} bytes follow the last record")


def _varint(plain: bytes, position: int) -> tuple[int, int]:
    byte = plain[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    return read_varint(plain, position)


def _varlong(plain: bytes, position: int) -> tuple[int, int]:
    byte = plain[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    return read_varlong(plain, position)


def delete_horizon_ms(header: BatchHeader) -> int | None:
    """Return from when on (ms) compaction may drop the tombstones or the marker in the batch; None before a horizon is set."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON_FLAG else None


def rewritten_batch(
    header: BatchHeader, plain: bytes, kept: Sequence[StoredRecord], *, new_horizon_ms: int | None = None
) -> bytes:
    """Return the batch with only the records `kept`, in order; without records `empty_batch`.

    `new_horizon_ms` becomes the delete horizon. max_timestamp becomes the largest kept timestamp, except under LogAppendTime.
    """
    if not kept:
        return empty_batch(header)
    base_timestamp, attributes = header.base_timestamp, header.attributes
    max_timestamp = header.max_timestamp
    if not header.is_log_append_time:
        max_timestamp = _max_timestamp(base_timestamp, kept)
    if new_horizon_ms is None:
        body = b"".join([plain[record.start : record.end] for record in kept])
    else:
        body = _relative_to(new_horizon_ms, base_timestamp, plain, kept)
        base_timestamp, attributes = new_horizon_ms, attributes | DELETE_HORIZON_FLAG
    payload = compression.compress(header.compression, body)
    return sealed_batch(header, attributes, base_timestamp, max_timestamp, len(kept), payload)


def empty_batch(header: BatchHeader) -> bytes:
    """Return the batch without records. Its header keeps the log's offsets and the producer's sequence."""
    attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_FLAG)
    return sealed_batch(header, attributes, NO_TIMESTAMP, header.max_timestamp, 0, b"")


def _max_timestamp(base_timestamp: int, kept: Sequence[StoredRecord]) -> int:
    deltas = [record.timestamp_delta for record in kept]
    earliest, latest = base_timestamp + min(deltas), base_timestamp + max(deltas)
    if earliest == as_int64(earliest) and latest == as_int64(latest):
        return latest
    return max(as_int64(base_timestamp + delta) for delta in deltas)


def _relative_to(horizon_ms: int, base_timestamp: int, plain: bytes, kept: Sequence[StoredRecord]) -> bytes:
    body = bytearray()
    for record in kept:
        # A record begins with its attributes: one byte, always 0 so far.
        content = bytearray(1)
        write_varint(content, as_int64(base_timestamp + record.timestamp_delta - horizon_ms))
        content += plain[record.rest : record.end]
        write_varint(body, len(content))
        body += content
    return bytes(body)


def sealed_batch(
    header: BatchHeader,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    record_count: int,
    payload: bytes,
) -> bytes:
    """Return the batch with these attributes, timestamps, count and payload; all else is as in `header`."""
    return sealed(
        header.base_offset,
        header.partition_leader_epoch,
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        record_count,
        payload,
    )
