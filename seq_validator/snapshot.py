"""The bytes of a partition's producer state. All numbers are big-endian.

    magic "SQPS" | version int16 | log_end_offset int64 | producers int32 | entry …
           | CRC-32C of all before, uint32
    entry: producer_id int64 | producer_epoch int16 | last_active_ms int64 | coordinator_epoch int32
           | current_transaction_first_offset int64
           | (from version 2 on: marker_offset int64 | marker_timestamp int64) | batches int32 | batch …
    batch: base_sequence int32 | last_sequence int32 | base_offset int64 | last_offset int64 | timestamp int64

Version 1 had no markers, so each of its entries has a batch. Entries are ordered longest idle first, batches
oldest first. Kafka's own snapshot keeps only the last batch of a producer. This snapshot keeps the whole
window, so that a retry of an older batch is recognized after a restart.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import Final

from seqgate.seq_validator.checksum import CRC_BYTES, HEAD_BYTES, Envelope
from seqgate.seq_validator.entry import NO_OFFSET, NO_TIMESTAMP, ProducerEntry, RetainedBatch, following

VERSION: Final = 2
FIRST_VERSION: Final = 1
_ENTRY: Final = struct.Struct(">qhqiqqqi")
_FIRST_ENTRY: Final = struct.Struct(">qhqiqi")
_BATCH: Final = struct.Struct(">iiqqq")
_new_tuple = tuple.__new__


class CorruptSnapshot(Exception):
    """The bytes are no producer snapshot that this version can read; the message says why."""


_ENVELOPE: Final = Envelope(b"SQPS", FIRST_VERSION, VERSION, "producer snapshot", CorruptSnapshot)
newer_version = _ENVELOPE.newer_version


def encode(entries: Collection[ProducerEntry], log_end_offset: int) -> bytes:
    """Return the snapshot of `entries` for a log that ends at `log_end_offset` (exclusive)."""
    parts = [_ENVELOPE.head(log_end_offset, len(entries))]
    add, pack_entry, pack_batch = parts.append, _ENTRY.pack, _BATCH.pack
    for entry in entries:
        batches = entry.batches
        add(
            pack_entry(
                entry.producer_id,
                entry.producer_epoch,
                entry.last_active_ms,
                entry.coordinator_epoch,
                entry.current_transaction_first_offset,
                entry.marker_offset,
                entry.marker_timestamp,
                len(batches),
            )
        )
        for batch in batches:
            add(pack_batch(*batch))
    return _ENVELOPE.seal(b"".join(parts))


def decode(data: bytes, retained_batches: int) -> tuple[list[ProducerEntry], int]:
    """Return the entries in `data`, each with its newest `retained_batches`, and the log end offset. Raises
    CorruptSnapshot when the bytes are cut, damaged, or of a later version.
    """
    version, log_end_offset, count = _ENVELOPE.check(data)
    try:
        entries, position = _decode_entries(data, version, count, retained_batches)
    except struct.error as error:
        raise _ENVELOPE.miscounted() from error
    if position != len(data) - CRC_BYTES:
        raise _ENVELOPE.miscounted()
    return entries, log_end_offset


def _decode_entries(
    data: bytes, version: int, count: int, retained_batches: int
) -> tuple[list[ProducerEntry], int]:
    """Return the entries, and the position after them. One loop decodes all: there may be a million."""
    entries: list[ProducerEntry] = []
    position = HEAD_BYTES
    is_first = version == FIRST_VERSION
    unpack_entry = _unpack_first_entry if is_first else _ENTRY.unpack_from
    entry_bytes = _FIRST_ENTRY.size if is_first else _ENTRY.size
    unpack_batch, batch_bytes = _BATCH.unpack_from, _BATCH.size
    for _ in range(count):
        (
            producer_id,
            producer_epoch,
            last_active_ms,
            coordinator_epoch,
            first_offset,
            marker_offset,
            marker_timestamp,
            number,
        ) = unpack_entry(data, position)
        position += entry_bytes
        if number < 1 and (number < 0 or marker_offset == NO_OFFSET):
            message = f"The producer snapshot is damaged: producer {producer_id} has {number} batches."
            raise CorruptSnapshot(message)
        batches = []
        for _ in range(number):
            # The NamedTuple's own constructor costs three times as much.
            batches.append(_new_tuple(RetainedBatch, unpack_batch(data, position)))
            position += batch_bytes
        del batches[:-retained_batches]
        next_sequence = following(batches[-1].last_sequence) if batches else 0
        entry = ProducerEntry(producer_id, producer_epoch, last_active_ms, batches, next_sequence)
        entry.coordinator_epoch = coordinator_epoch
        entry.current_transaction_first_offset = first_offset
        entry.marker_offset = marker_offset
        entry.marker_timestamp = marker_timestamp
        entries.append(entry)
    return entries, position


def _unpack_first_entry(data: bytes, position: int) -> tuple[int, int, int, int, int, int, int, int]:
    """Return the fields of an entry of version 1, which had no markers, as those of later versions."""
    *fields, number = _FIRST_ENTRY.unpack_from(data, position)
    producer_id, producer_epoch, last_active_ms, coordinator_epoch, first_offset = fields
    return (
        producer_id,
        producer_epoch,
        last_active_ms,
        coordinator_epoch,
        first_offset,
        NO_OFFSET,
        NO_TIMESTAMP,
        number,
    )
