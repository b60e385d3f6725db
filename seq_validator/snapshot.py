"""The bytes of a partition's producer state. All numbers are big-endian.

    magic "SQPS" | version int16 | log_end_offset int64 | producers int32 | entry … | CRC-32C of all before, uint32
    entry: producer_id int64 | producer_epoch int16 | last_active_ms int64 | coordinator_epoch int32
           | current_transaction_first_offset int64 | (from version 2 on: marker_offset int64 | marker_timestamp int64)
           | batches int32 | batch …
    batch: base_sequence int32 | last_sequence int32 | base_offset int64 | last_offset int64 | timestamp int64

Version 1 had no markers, so each of its entries has a batch. Entries are ordered longest idle first, batches oldest first.
Kafka's own snapshot keeps only the last batch of a producer. This snapshot keeps the whole window, so that a retry of an
older batch is recognized after a restart.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from seq_validator.entry import NO_OFFSET, ProducerEntry, RetainedBatch
from seq_validator.envelope import CRC_BYTES, Envelope

if TYPE_CHECKING:
    from collections.abc import Collection

VERSION: Final = 2
FIRST_VERSION: Final = 1
_MAGIC: Final = b"SQPS"
_HEADER: Final = struct.Struct(">4shqi")
_ENTRY_HEAD: Final = struct.Struct(">qhqiq")
_MARKER: Final = struct.Struct(">qq")
_COUNT: Final = struct.Struct(">i")
_BATCH: Final = struct.Struct(">iiqqq")


class CorruptSnapshot(Exception):
    """The bytes are no producer snapshot that this version can read; the message is a sentence that says why."""


_ENVELOPE: Final = Envelope(
    _MAGIC, FIRST_VERSION, VERSION, _HEADER.size, "producer snapshot", CorruptSnapshot
)
newer_version = _ENVELOPE.newer_version


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
    return _ENVELOPE.seal(b"".join(parts))


def decode(data: bytes, retained_batches: int) -> tuple[list[ProducerEntry], int]:
    """Return the entries in `data`, each with its newest `retained_batches`, and the log end offset.

    Raises CorruptSnapshot when the bytes are cut, damaged, or of a later version.
    """
    _ENVELOPE.check(data)
    _, version, log_end_offset, count = _HEADER.unpack_from(data)
    end = len(data) - CRC_BYTES
    position = _HEADER.size
    entries: list[ProducerEntry] = []
    try:
        for _ in range(count):
            position = _decode_entry(data, position, version, retained_batches, entries)
    except struct.error as error:
        raise _ENVELOPE.miscounted() from error
    if count < 0 or position != end:
        raise _ENVELOPE.miscounted()
    return entries, log_end_offset


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
