"""Builds and reads the records inside a batch (KIP-98, Kafka's `DefaultRecord`).

A record is: length varint, attributes int8, timestamp_delta varint, offset_delta varint, key and value each
as a varint length (-1 is null) and bytes, headers as a count of (key, nullable value). Varints are zigzag.

The marker that ends a transaction in a partition is a control record. Key: version int16 (0), type int16 (0
abort, 1 commit). Value: version int16 (0), coordinator_epoch int32. The batch around the record has the
transactional and the control flag, and no sequence. Source: Kafka's `ControlRecordType`,
`EndTransactionMarker` (KIP-98).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from seqgate.log.config import DEFAULT_DECOMPRESSED_BYTES
from seqgate.log.errors import InvalidRecord, LogError
from seqgate.log.format import compression
from seqgate.log.format.record_batch import (
    CONTROL_FLAG,
    HEADER_BYTES,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
    parse_header,
    sealed,
)

_INT64_MASK = 0xFFFFFFFFFFFFFFFF
_INT64_SIGN = 1 << 63
_INT32_MASK = 0xFFFFFFFF
MAX_HEADERS: Final = 100_000
"""Headers decoded in a batch, plus HEADERS_PER_RECORD per earlier record; a batch with more is refused."""
HEADERS_PER_RECORD: Final = 10
"""Headers by which each decoded record raises the limit of its batch."""
_VARINT_MAX_BYTES = 5
_VARLONG_MAX_BYTES = 10
_NULL: Final = b"\x01"
"""The length of a null key or value, -1, as a varint."""
_ABORT_MARKER: Final = 0
_COMMIT_MARKER: Final = 1
_MARKER_VERSION: Final = 0
_MARKER_KEY: Final = struct.Struct(">hh")
_MARKER_VALUE: Final = struct.Struct(">hi")


class Record(NamedTuple):
    """A stored record: absolute `offset`, `timestamp` in ms (-1: none), headers as (name, value or None)."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class NewRecord(msgspec.Struct, frozen=True):
    """A record for `build_batch`. `timestamp` in ms, -1 for none."""

    value: bytes | None
    key: bytes | None = None
    timestamp: int = NO_TIMESTAMP
    headers: Sequence[tuple[str, bytes | None]] = ()


def build_batch(
    records: Iterable[NewRecord | Record],
    *,
    base_offset: int = 0,
    codec: str = "none",
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    is_log_append_time: bool = False,
) -> bytes:
    """Return a record batch of magic 2 with these records at consecutive offsets, CRC included. `codec` is
    none, gzip, snappy, lz4 or zstd. base_timestamp is the first record's timestamp, max_timestamp the
    largest. Raises ValueError without records or with an unknown codec.
    """
    listed = records if isinstance(records, list) else list(records)
    if not listed:
        raise ValueError("a record batch needs at least one record, not 0")
    attributes = compression.CODEC_IDS.get(codec)
    if attributes is None:
        raise ValueError(f"unknown codec {codec!r}; the codecs are {', '.join(compression.CODEC_IDS)}")
    base_timestamp = max_timestamp = listed[0].timestamp
    pieces = []
    for offset_delta, record in enumerate(listed):
        timestamp = record.timestamp
        pieces.append(_encoded(record, offset_delta, timestamp - base_timestamp))
        max_timestamp = max(max_timestamp, timestamp)
    payload = b"".join(pieces)
    if attributes:
        payload = compression.compress(attributes, payload)
    if is_transactional:
        attributes |= TRANSACTIONAL_FLAG
    if is_control:
        attributes |= CONTROL_FLAG
    if is_log_append_time:
        attributes |= TIMESTAMP_TYPE_FLAG
    return sealed(
        base_offset,
        leader_epoch,
        attributes,
        len(listed) - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(listed),
        payload,
    )


def iterate_records(batch: Buffer, *, limit_bytes: int = DEFAULT_DECOMPRESSED_BYTES) -> Iterator[Record]:
    """Yield the records of the batch at the start of `batch`, in order, without checking the CRC.

    Under LogAppendTime every record has the batch's max_timestamp. Decompression stops at `limit_bytes`.
    Raises InvalidRecord on damage and for too many headers, CorruptRecord without a whole header,
    UnsupportedCompressionType.
    """
    view = memoryview(batch).cast("B")
    header = parse_header(view)
    if len(view) < header.size_bytes:
        raise InvalidRecord(f"the batch is cut: {len(view)} of {header.size_bytes} bytes")
    body = view[HEADER_BYTES : header.size_bytes]
    yield from iterate_plain(header, compression.decompress(header.compression, body, limit_bytes))


def iterate_plain(header: BatchHeader, data: memoryview) -> Iterator[Record]:
    """Yield the records of a batch from its header and its decompressed records. Raises InvalidRecord on
    damage and for too many headers.
    """
    position = 0
    headers = 0
    for number in range(header.record_count):
        length, start = read_varint(data, position)
        end = start + length
        if length < 0 or end > len(data):
            raise InvalidRecord(f"a record of {length} bytes does not fit the batch")
        record = _read_record(header, data[start:end], number, headers)
        headers += len(record.headers)
        yield record
        position = end
    if position != len(data):
        raise InvalidRecord(f"{len(data) - position} bytes follow the last record")


def check_header_count(count: int, record_bytes: int, records_before: int, headers_before: int) -> None:
    """Refuse an impossible count of headers, or too many to decode. Raises InvalidRecord.

    A few bytes can hold millions of headers. `records_before` records had `headers_before` headers.
    """
    if not 0 <= count <= record_bytes:
        raise InvalidRecord(f"a record of {record_bytes} bytes can't have {count} headers")
    if headers_before + count > MAX_HEADERS + HEADERS_PER_RECORD * records_before:
        raise InvalidRecord(
            f"the first {records_before + 1} records of the batch have {headers_before + count} headers; "
            f"at most {MAX_HEADERS + HEADERS_PER_RECORD * records_before} are decoded"
        )


def _read_record(header: BatchHeader, data: memoryview, records_before: int, headers_before: int) -> Record:
    if not data:
        raise InvalidRecord("a record is empty")
    timestamp_delta, position = read_varlong(data, 1)
    offset_delta, position = read_varint(data, position)
    key, position = _read_bytes(data, position)
    value, position = _read_bytes(data, position)
    count, position = read_varint(data, position)
    check_header_count(count, len(data), records_before, headers_before)
    headers = []
    for _ in range(count):
        name, position = _read_bytes(data, position)
        if name is None:
            raise InvalidRecord("a record header has no name")
        content, position = _read_bytes(data, position)
        headers.append((name.decode("utf-8", "replace"), content))
    if position != len(data):
        raise InvalidRecord("a record is longer than its content")
    timestamp = (
        header.max_timestamp
        if header.is_log_append_time
        else as_int64(header.base_timestamp + timestamp_delta)
    )
    return Record(header.base_offset + offset_delta, timestamp, key, value, tuple(headers))


def _read_bytes(data: memoryview, position: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        return None, position
    end = position + length
    if end > len(data):
        raise InvalidRecord("a field is longer than its record")
    return bytes(data[position:end]), end


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Return the zigzag varint of an int32, and the position after it. Bits above the 32nd are dropped, as in
    Kafka's `ByteUtils.readVarint`. Raises InvalidRecord.
    """
    return _read_zigzag(data, position, _VARINT_MAX_BYTES, _INT32_MASK)


def read_varlong(data: Buffer, position: int) -> tuple[int, int]:
    """Return the zigzag varint of an int64, and the position after it. Bits above the 64th are dropped, as in
    Kafka's `ByteUtils.readVarlong`. Raises InvalidRecord.
    """
    return _read_zigzag(data, position, _VARLONG_MAX_BYTES, _INT64_MASK)


def _read_zigzag(data: Buffer, position: int, max_bytes: int, mask: int) -> tuple[int, int]:
    result = shift = 0
    for index in range(position, position + max_bytes):
        if index >= len(data):
            break
        byte = data[index]
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            result &= mask
            return (result >> 1) ^ -(result & 1), index + 1
        shift += 7
    raise InvalidRecord("a varint is cut or too long")


def as_int64(value: int) -> int:
    """Return a sum of two int64, wrapped around as Java does. A producer may send any timestamps."""
    if -_INT64_SIGN <= value < _INT64_SIGN:
        return value
    return ((value + _INT64_SIGN) & _INT64_MASK) - _INT64_SIGN


def write_varint(output: bytearray, value: int) -> None:
    """Append `value` (within int64) as a zigzag varint."""
    rest = ((value << 1) ^ (value >> 63)) & _INT64_MASK
    while rest >= 0x80:
        output.append(rest & 0x7F | 0x80)
        rest >>= 7
    output.append(rest)


def _varint(value: int) -> bytes:
    """Return `value` (within int64) as a zigzag varint."""
    if 0 <= value < _SHORT_VARINT_COUNT:
        return _SHORT_VARINTS[value]
    output = bytearray()
    write_varint(output, value)
    return bytes(output)


_SHORT_VARINT_COUNT: Final = 1 << 13
"""Numbers whose varint is kept encoded: all that need one byte or two."""
_SHORT_VARINTS: Final = tuple(
    bytes((value << 1,)) if value < 0x40 else bytes((value << 1 & 0x7F | 0x80, value >> 6))
    for value in range(_SHORT_VARINT_COUNT)
)


def _sized(value: bytes | None) -> bytes:
    return _NULL if value is None else _varint(len(value)) + value


def _encoded(record: NewRecord | Record, offset_delta: int, timestamp_delta: int) -> bytes:
    key, value, headers = record.key, record.value, record.headers
    content = b"".join(
        (
            b"\x00",
            _varint(timestamp_delta) if timestamp_delta else b"\x00",
            _varint(offset_delta) if offset_delta else b"\x00",
            _NULL if key is None else _varint(len(key)),
            key or b"",
            _NULL if value is None else _varint(len(value)),
            value or b"",
            _headers(headers) if headers else b"\x00",
        )
    )
    return _varint(len(content)) + content


def _headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    pieces = [_varint(len(headers))]
    for name, value in headers:
        pieces += (_sized(name.encode()), _sized(value))
    return b"".join(pieces)


class EndMarker(NamedTuple):
    is_commit: bool
    coordinator_epoch: int


def build_end_marker(
    producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int, now_ms: int
) -> bytes:
    """Return the batch of one marker, at offset 0."""
    record = NewRecord(
        _MARKER_VALUE.pack(_MARKER_VERSION, coordinator_epoch),
        key=_MARKER_KEY.pack(_MARKER_VERSION, _COMMIT_MARKER if commit else _ABORT_MARKER),
        timestamp=now_ms,
    )
    return build_batch(
        [record],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def read_end_marker(batch: Buffer) -> EndMarker | None:
    """Return the marker in a control batch; None when the batch holds no marker that this version knows."""
    try:
        record = next(iter(iterate_records(batch)), None)
    except LogError:
        return None
    if record is None or record.key is None or record.value is None:
        return None
    if len(record.key) < _MARKER_KEY.size or len(record.value) < _MARKER_VALUE.size:
        return None
    control_type = _MARKER_KEY.unpack_from(record.key)[1]
    if control_type not in {_ABORT_MARKER, _COMMIT_MARKER}:
        return None
    return EndMarker(control_type == _COMMIT_MARKER, _MARKER_VALUE.unpack_from(record.value)[1])
