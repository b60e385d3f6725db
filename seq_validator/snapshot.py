"""The bytes of a partition's producer state. All numbers are big-endian.

    magic "SQPS" | version int16 | log_end_offset int64 | producers int32 | entry … | CRC-32C of all before, uint32
    entry: producer_id int64 | producer_epoch int16 | last_active_ms int64 | coordinator_epoch int32
           | current_transaction_first_offset int64 | (from version 2 on: marker_offset int64 | marker_timestamp int64)
           | batches int32 | batch …
    batch: base_sequence int32 | last_sequence int32 | base_offset int64 | last_offset int64 | timestamp int64

Version 1 knew no markers, so there every entry has a batch. Entries stand longest idle first, batches oldest first. Kafka's own snapshot keeps the last batch only; this one keeps
the whole window, so that a retry of an older batch is still known after a restart.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import crc32c

from seq_validator.entry import NO_OFFSET, ProducerEntry, RetainedBatch

if TYPE_CHECKING:
    from collections.abc import Collection

VERSION: Final = 2
FIRST_VERSION: Final = 1
_MAGIC: Final = b"SQPS"
_PREFIX: Final = struct.Struct(">4sh")
_HEADER: Final = struct.Struct(">4shqi")
_ENTRY_HEAD: Final = struct.Struct(">qhqiq")
_MARKER: Final = struct.Struct(">qq")
_COUNT: Final = struct.Struct(">i")
_BATCH: Final = struct.Struct(">iiqqq")
_CRC: Final = struct.Struct(">I")


class CorruptSnapshot(Exception):
    """The bytes are no snapshot that this version can read; the message is a sentence that says why."""


def encode(entries: Collection[ProducerEntry], log_end_offset: int) -> bytes:
    """Return the snapshot of `entries` for a log that ends at `log_end_offset` (exclusive)."""
    parts = [_HEADER.pack(_MAGIC, VERSION, log_end_offset, len(entries))]
    for entry in entries:
        parts.append(
            _ENTRY_HEAD.pack(
                entry.producer_id,
                entry.producer_epoch,
                entry.last_active_ms,
                entry.coordinator_epoch,
                entry.current_transaction_first_offset,
            )
        )
        parts.append(_MARKER.pack(entry.marker_offset, entry.marker_timestamp))
        parts.append(_COUNT.pack(len(entry.batches)))
        parts.extend(_BATCH.pack(*batch) for batch in entry.batches)
    body = b"".join(parts)
    return body + _CRC.pack(crc32c.crc32c(body))


def decode(data: bytes, retained_batches: int) -> tuple[list[ProducerEntry], int]:
    """Return the entries in `data`, each keeping its newest `retained_batches`, and the log end offset.

    Raises CorruptSnapshot when the bytes are cut, damaged, or written in a later version.
    """
    _check(data)
    _, version, log_end_offset, count = _HEADER.unpack_from(data)
    end = len(data) - _CRC.size
    position = _HEADER.size
    entries: list[ProducerEntry] = []
    try:
        for _ in range(count):
            position = _decode_entry(data, position, version, retained_batches, entries)
    except struct.error as error:
        raise _miscounted() from error
    if count < 0 or position != end:
        raise _miscounted()
    return entries, log_end_offset


def newer_version(data: bytes) -> int | None:
    """The version of a snapshot that a later release wrote; None for any other, and for one that is damaged.

    Every version begins with the magic and its number, and ends with the CRC-32C of all before.
    """
    if len(data) < _PREFIX.size + _CRC.size:
        return None
    magic, version = _PREFIX.unpack_from(data)
    (expected,) = _CRC.unpack_from(data, len(data) - _CRC.size)
    if magic != _MAGIC or version <= VERSION or crc32c.crc32c(memoryview(data)[: -_CRC.size]) != expected:
        return None
    return int(version)


def _check(data: bytes) -> None:
    if len(data) < _HEADER.size + _CRC.size:
        message = f"The producer snapshot is cut short: {len(data)} bytes."
        raise CorruptSnapshot(message)
    magic, version = _PREFIX.unpack_from(data)
    if magic != _MAGIC:
        message = f"This is no producer snapshot: it begins with {magic!r}."
        raise CorruptSnapshot(message)
    # Another version may protect itself otherwise, so it is named before its checksum is tried.
    if not FIRST_VERSION <= version <= VERSION:
        message = (
            f"The producer snapshot has version {version}; "
            f"this program reads versions {FIRST_VERSION} to {VERSION}."
        )
        raise CorruptSnapshot(message)
    (expected,) = _CRC.unpack_from(data, len(data) - _CRC.size)
    actual = crc32c.crc32c(memoryview(data)[: -_CRC.size])
    if actual != expected:
        message = f"The producer snapshot is damaged: its CRC-32C is {actual:#010x}, not {expected:#010x}."
        raise CorruptSnapshot(message)


def _decode_entry(
    data: bytes, position: int, version: int, retained_batches: int, entries: list[ProducerEntry]
) -> int:
    producer_id, producer_epoch, last_active_ms, coordinator_epoch, first_offset = _ENTRY_HEAD.unpack_from(
        data, position
    )
    position += _ENTRY_HEAD.size
    entry = ProducerEntry(
        producer_id, producer_epoch, retained_batches=retained_batches, last_active_ms=last_active_ms
    )
    entry.coordinator_epoch = coordinator_epoch
    entry.current_transaction_first_offset = first_offset
    if version > FIRST_VERSION:
        entry.marker_offset, entry.marker_timestamp = _MARKER.unpack_from(data, position)
        position += _MARKER.size
    (count,) = _COUNT.unpack_from(data, position)
    position += _COUNT.size
    if not count and entry.marker_offset != NO_OFFSET:
        entry.begin_epoch(producer_epoch)
    elif count < 1:
        message = f"The producer snapshot is damaged: producer {producer_id} has {count} batches."
        raise CorruptSnapshot(message)
    for _ in range(count):
        entry.retain(RetainedBatch(*_BATCH.unpack_from(data, position)))
        position += _BATCH.size
    entries.append(entry)
    return position


def _miscounted() -> CorruptSnapshot:
    return CorruptSnapshot("The producer snapshot is damaged: its counts do not fit its length.")
