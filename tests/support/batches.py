"""Record batches for tests, written from the format's description and independent of the code under test.

Format: https://kafka.apache.org/documentation/#recordbatch. Every header field can be set to a wrong value; a
field of `Batch` that is None is computed from the records.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import cramjam
from crc32c import crc32c

HEAD = struct.Struct(">qiibIhiqqqhii")
_CHECKED_FROM = 21
_UP_TO_PRODUCER = struct.Struct(">hiqq")
_PRODUCER = struct.Struct(">qhii")
XERIAL_MAGIC = b"\x82SNAPPY\0"
"""The first bytes of snappy records in the framing of Kafka's Java client."""
XERIAL_HEADER_BYTES = 16
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
# A full hour of yesterday: a test would notice if the code used the present time instead, and retention
# deletes nothing so young.
DEFAULT_TIMESTAMP = (int(time.time()) // 3600 - 24) * 3_600_000


def varint(value: int) -> bytes:
    """Encode a signed variable-length integer (zig-zag)."""
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while True:
        byte = zigzag & 0x7F
        zigzag >>= 7
        if zigzag:
            out.append(byte | 0x80)
        else:
            out.append(byte)
            return bytes(out)


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


@dataclass(frozen=True)
class Record:
    """One record; its offset and timestamp are relative to its batch."""

    value: bytes | None = b"value"
    key: bytes | None = None
    headers: Sequence[tuple[bytes, bytes | None]] = ()
    timestamp_delta: int = 0
    offset_delta: int | None = None

    def encode(self, index: int) -> bytes:
        offset_delta = index if self.offset_delta is None else self.offset_delta
        body = (
            b"\0"
            + varint(self.timestamp_delta)
            + varint(offset_delta)
            + _sized(self.key)
            + _sized(self.value)
        )
        body += varint(len(self.headers)) + b"".join(
            _sized(key) + _sized(value) for key, value in self.headers
        )
        return varint(len(body)) + body


@dataclass(frozen=True)
class Batch:
    """A record batch of format version 2."""

    records: Sequence[Record] = (Record(),)
    base_offset: int = 0
    partition_leader_epoch: int = -1
    magic: int = 2
    codec: str | int = "none"
    attributes: int = 0
    base_timestamp: int = DEFAULT_TIMESTAMP
    max_timestamp: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    last_offset_delta: int | None = None
    record_count: int | None = None
    batch_length: int | None = None
    crc: int | None = None
    payload: bytes | None = None

    def of(self, producer_id: int, producer_epoch: int, base_sequence: int) -> Batch:
        """Return the same records as a batch of an idempotent producer."""
        return replace(
            self, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence
        )

    def encode(self) -> bytes:
        count = len(self.records)
        codec = CODECS[self.codec] if isinstance(self.codec, str) else self.codec
        payload = self.payload
        if payload is None:
            plain = b"".join(record.encode(index) for index, record in enumerate(self.records))
            payload = compress(codec, plain)
        latest = max((record.timestamp_delta for record in self.records), default=0)
        after_crc = struct.pack(
            ">hiqqqhii",
            self.attributes | codec,
            count - 1 if self.last_offset_delta is None else self.last_offset_delta,
            self.base_timestamp,
            self.base_timestamp + latest if self.max_timestamp is None else self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            count if self.record_count is None else self.record_count,
        )
        after_crc += payload
        crc = crc32c(after_crc) if self.crc is None else self.crc
        length = 9 + len(after_crc) if self.batch_length is None else self.batch_length
        return (
            struct.pack(">qiibI", self.base_offset, length, self.partition_leader_epoch, self.magic, crc)
            + after_crc
        )


def compress(codec: int, data: bytes) -> bytes:
    """Compress as clients do; leave the data unchanged for an unknown codec."""
    if codec == 1:
        return bytes(cramjam.gzip.compress(data))
    if codec == 2:
        return bytes(cramjam.snappy.compress_raw(data))
    if codec == 3:
        # Kafka's decoder refuses frames with dependent blocks.
        compressor = cramjam.lz4.Compressor(block_linked=False)
        compressor.compress(data)
        return bytes(compressor.finish())
    if codec == 4:
        return bytes(cramjam.zstd.compress(data))
    return data


def decompress(codec: int, payload: bytes) -> bytes:
    """Return the plain records of a batch. Raises ValueError for an unknown codec."""
    if codec == 0:
        return payload
    if codec == 1:
        return bytes(cramjam.gzip.decompress(payload))
    if codec == 2:
        if payload.startswith(XERIAL_MAGIC):
            return b"".join(_xerial_blocks(payload))
        return bytes(cramjam.snappy.decompress_raw(payload))
    if codec == 3:
        return bytes(cramjam.lz4.decompress(payload))
    if codec == 4:
        return bytes(cramjam.zstd.decompress(payload))
    raise ValueError(f"codec {codec}")


def _xerial_blocks(payload: bytes) -> Iterator[bytes]:
    position = XERIAL_HEADER_BYTES
    while position < len(payload):
        (size,) = struct.unpack_from(">i", payload, position)
        yield bytes(cramjam.snappy.decompress_raw(payload[position + 4 : position + 4 + size]))
        position += 4 + size


def records(count: int, size: int = 10, *, prefix: str = "v", step_ms: int = 0) -> tuple[Record, ...]:
    """Return `count` records with distinct values of about `size` bytes."""
    return tuple(
        Record(value=f"{prefix}{index:06d}".encode().ljust(size, b"."), timestamp_delta=index * step_ms)
        for index in range(count)
    )


@dataclass(frozen=True)
class BatchView:
    """A decoded batch header, whether its CRC is right, and the bytes after the header."""

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
    crc_is_right: bool
    payload: bytes


def _view(head: tuple[int, ...], crc_is_right: bool, payload: bytes) -> BatchView:
    names = [field.name for field in fields(BatchView)][: len(head)]
    named: dict[str, Any] = dict(zip(names, head, strict=True))
    return BatchView(**named, crc_is_right=crc_is_right, payload=payload)


def read_batches(data: bytes) -> tuple[list[BatchView], bytes]:
    """Return the whole batches at the front of `data`, and the remaining bytes."""
    views = []
    position = 0
    while len(data) - position >= HEAD.size:
        head = HEAD.unpack_from(data, position)
        end = position + 12 + head[1]
        if end > len(data):
            break
        checked = crc32c(data[position + 21 : end]) == head[4]
        views.append(_view(head, checked, data[position + HEAD.size : end]))
        position = end
    return views, data[position:]


class Batches:
    """Batches of one record and one producer each, which differ in the producer id and the offset."""

    def __init__(self, size_bytes: int) -> None:
        """Make batches of about `size_bytes`."""
        plain = Batch((Record(b"." * max(1, size_bytes - HEAD.size - 10)),), partition_leader_epoch=0)
        encoded = plain.of(0, 0, 0).encode()
        self.size_bytes = len(encoded)
        self._fields = HEAD.unpack_from(encoded)
        self._payload = encoded[HEAD.size :]
        self._before = crc32c(encoded[_CHECKED_FROM : _CHECKED_FROM + _UP_TO_PRODUCER.size])

    def encode(self, offset: int, producer_id: int) -> bytes:
        """Return the batch of a producer at an offset."""
        _, length, leader_epoch, magic, _, attributes, delta, base_ms, max_ms, *_ = self._fields
        crc = crc32c(self._payload, crc32c(_PRODUCER.pack(producer_id, 0, 0, 1), self._before))
        head = (offset, length, leader_epoch, magic, crc, attributes, delta, base_ms, max_ms)
        return HEAD.pack(*head, producer_id, 0, 0, 1) + self._payload
