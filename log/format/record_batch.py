"""The header of a record batch, magic 2 (KIP-98).

Layout, big-endian, 61 bytes: base_offset int64, batch_length int32 (bytes after this field),
partition_leader_epoch int32, magic int8, crc uint32 (CRC-32C of all bytes from 21 on), attributes int16,
last_offset_delta int32, base_timestamp int64, max_timestamp int64, producer_id int64, producer_epoch int16,
base_sequence int32, record_count int32. The broker may rewrite the first 16 bytes without touching the CRC.
Source: Kafka's `DefaultRecordBatch`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from seqgate.log.errors import CorruptRecord
from seqgate.seq_validator.checksum import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterator

Buffer = bytes | bytearray | memoryview

HEADER_BYTES: Final = 61
LOG_OVERHEAD_BYTES: Final = 12
UP_TO_MAGIC_BYTES: Final = 17
CRC_COVERS_FROM: Final = 21
REWRITABLE_BYTES: Final = 16
MAGIC: Final = 2
# Kafka's LegacyRecord.RECORD_OVERHEAD_V0: no batch of any magic is smaller.
SMALLEST_BATCH_LENGTH: Final = 14

COMPRESSION_MASK: Final = 0x07
TIMESTAMP_TYPE_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1

REWRITABLE: Final = struct.Struct(">qii")
PATCHED: Final = struct.Struct(">qiibIhiqq")
_unpack_header = struct.Struct(">qiibIhiqqqhii").unpack_from
_pack_up_to_crc = struct.Struct(">qiibI").pack
_pack_covered = struct.Struct(">hiqqqhii").pack
_pack_after_crc = struct.Struct(">hiqq").pack


@dataclass(init=False, eq=False, repr=False, slots=True)
class BatchHeader:
    """The 61 header bytes of one batch as fields. Timestamps in ms, `base_offset` as stored."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    size_bytes: int
    """Bytes of the whole batch, header included."""

    @property
    def is_plausible(self) -> bool:
        """Whether the header is possible: magic 2, its size, ascending offsets. The CRC proves the rest."""
        return self.magic == MAGIC and self.size_bytes >= HEADER_BYTES and self.last_offset_delta >= 0

    @property
    def last_offset(self) -> int:
        """Offset of the last record, inclusive."""
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, inclusive; wraps from 2**31 - 1 to 0. -1 without a sequence."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def compression(self) -> int:
        """Codec id: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5 to 7 are unknown."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether max_timestamp is the broker's time and holds for every record."""
        return bool(self.attributes & TIMESTAMP_TYPE_FLAG)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a control record (a transaction marker)."""
        return bool(self.attributes & CONTROL_FLAG)


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Return the header at `position`, unchecked. Raises CorruptRecord when fewer than 61 bytes remain."""
    header = BatchHeader()
    try:
        (
            header.base_offset,
            header.batch_length,
            header.partition_leader_epoch,
            header.magic,
            header.crc,
            header.attributes,
            header.last_offset_delta,
            header.base_timestamp,
            header.max_timestamp,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.record_count,
        ) = _unpack_header(buffer, position)
    except struct.error as error:
        raise CorruptRecord(
            f"a record batch has {HEADER_BYTES} header bytes; only {max(0, len(buffer) - position)} are left"
        ) from error
    header.size_bytes = header.batch_length + LOG_OVERHEAD_BYTES
    return header


def sealed(
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
    payload: bytes,
) -> bytes:
    """Return the batch of magic 2 with these fields, its length and CRC, and `payload` after the header."""
    covered = (
        _pack_covered(
            attributes,
            last_offset_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            record_count,
        )
        + payload
    )
    batch_length = CRC_COVERS_FROM - LOG_OVERHEAD_BYTES + len(covered)
    return _pack_up_to_crc(base_offset, batch_length, leader_epoch, MAGIC, crc32c(covered)) + covered


def whole_batches(data: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each batch in `data`, and stop before a last batch that is cut."""
    position = 0
    while len(data) - position >= HEADER_BYTES:
        header = parse_header(data, position)
        if position + header.size_bytes > len(data):
            return
        yield position, header
        position += header.size_bytes


def crc_matches(header: BatchHeader, batch: memoryview, position: int = 0) -> bool:
    """Return whether the CRC-32C fits the bytes of the batch at `position`. The batch must be whole."""
    return bool(crc32c(batch[position + CRC_COVERS_FROM : position + header.size_bytes]) == header.crc)


def stamped_head(header: BatchHeader, batch: memoryview, attributes: int, max_timestamp: int) -> bytes:
    """Return the first 43 bytes of `batch` with other attributes, another max_timestamp and the CRC for both.

    base_offset and partition_leader_epoch come from `header`. base_timestamp stays, as in Kafka's
    `DefaultRecordBatch.setMaxTimestamp`. The function updates `header` too.
    """
    covered = _pack_after_crc(attributes, header.last_offset_delta, header.base_timestamp, max_timestamp)
    header.crc = crc32c(batch[PATCHED.size : header.size_bytes], crc32c(covered))
    header.attributes = attributes
    header.max_timestamp = max_timestamp
    return PATCHED.pack(
        header.base_offset,
        header.batch_length,
        header.partition_leader_epoch,
        header.magic,
        header.crc,
        attributes,
        header.last_offset_delta,
        header.base_timestamp,
        max_timestamp,
    )
