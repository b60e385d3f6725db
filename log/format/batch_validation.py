"""Validates a produced batch before the log judges it, stamps it before the log writes it, and rewrites a
stored one.

Sources: Kafka's `ProduceRequest.validateRecords`, `ByteBufferLogInputStream`,
`UnifiedLog.analyzeAndValidateRecords`, `LogValidator`. Every record of a client is checked, so that no batch
is stored that consumers can't read; `record_walk.py` has the check of good records. A topic may choose that
only the header and the CRC are checked (`message.deep.validation`). Then the timestamps are decoded where the
topic limits them, or where the header has one that is too late.

`rewritten_batch` leaves records of a stored batch out. The rewritten batch keeps base_offset and
last_offset_delta, and with them every offset and the range of sequences. The batch also keeps producer id,
producer epoch, leader epoch, codec, and the bytes of each kept record. A delete horizon (KIP-534) is stored
in base_timestamp and marked by attribute bit 6; the records' timestamp deltas are then relative to the
horizon. Source: Kafka's `MemoryRecords.buildRetainedRecordsInto`, `DefaultRecordBatch.writeEmptyHeader`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import Enum
from types import FunctionType
from typing import TYPE_CHECKING, Final

from seqgate.log.config import ANY_RECORD_BYTES
from seqgate.log.errors import (
    CorruptRecord,
    DecompressionLimitReached,
    InvalidRecord,
    InvalidTimestamp,
    MalformedBatch,
    RecordBatchTooLarge,
    RecordTooLarge,
    UnsupportedCompressionType,
)
from seqgate.log.format import compression
from seqgate.log.format.compression import (
    FRAME_MAGIC,
    LZ4,
    ZSTD,
    check_one_frame,
    decompress,
    decompress_quickly,
)
from seqgate.log.format.record_batch import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    CRC_COVERS_FROM,
    DELETE_HORIZON_FLAG,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    PATCHED,
    REWRITABLE,
    REWRITABLE_BYTES,
    SMALLEST_BATCH_LENGTH,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    UP_TO_MAGIC_BYTES,
    BatchHeader,
    Buffer,
    parse_header,
    sealed,
    stamped_head,
)
from seqgate.log.format.record_walk import PlainRecord, largest_timestamp, sound_records
from seqgate.log.format.records import (
    HEADERS_PER_RECORD,
    MAX_HEADERS,
    as_int64,
    iterate_plain,
    read_varint,
    read_varlong,
    write_varint,
)
from seqgate.seq_validator.checksum import crc32c

if TYPE_CHECKING:
    from seqgate.log.config import LogConfig


_INT32: Final = struct.Struct(">i")
_LENGTH_BYTES: Final = 5
"""The most bytes of the varint before a record."""
_LENGTH_AT: Final = 8
_MAGIC_AT: Final = 16
_ATTRIBUTES_AT: Final = 22
"""The position of the low byte of the attributes in the batch."""
_NEWEST_MAGIC: Final = 2
_LZ4_FLAGS_AT: Final = HEADER_BYTES + 4
_LZ4_INDEPENDENT: Final = 0x20
"""The flag of an lz4 frame whose blocks need no earlier block."""
_FOREVER: Final = 2**63 - 1
_RECORD_ERRORS: Final = 100
"""The number of refused records that an answer lists; the error message counts the others."""
_NAMED_RECORDS: Final = 10_000
"""The most records of a refused batch that are decoded to list those with a wrong timestamp. Of a larger
batch, only the timestamps in the header are reported.
"""
_NAMED_BYTES: Final = 8 << 20
"""The most decompressed bytes of a refused batch that are decoded to list records with wrong timestamps."""
QUICK_BYTES: Final = (_FOREVER, 64 << 10, 512 << 10, 512 << 10, 512 << 10, _FOREVER, _FOREVER, _FOREVER)
"""The bytes of a batch whose records are checked in the event loop, by the bits of its codec; gzip takes ten
times as long as the others. And ...
"""
QUICK_PLAIN_BYTES: Final = 512 << 10
"""... the bytes to which they may decompress, and ..."""
QUICK_RECORDS: Final = 4_000 if isinstance(largest_timestamp, FunctionType) else 20_000
"""... the number of records, which is smaller where the core is interpreted, and ..."""
QUICK_HEADERS: Final = 4_000 if isinstance(largest_timestamp, FunctionType) else 100_000
"""... the number of headers. A larger batch is checked in a thread first."""
QUICK_SIZED_RECORDS: Final = 1_000
"""The number of records of a compressed batch where the topic limits their sizes, which are then read one by
one. A larger batch is checked in a thread, too.
"""
LAST_OFFSET: Final = 2**63 - 1
"""The highest offset that 64 bits hold."""
_RECORDS_AT_ONCE: Final = 256
"""The records of a stored batch that are held decoded."""
QUICK_DECODED_BYTES: Final = 16 << 10
"""The decompressed bytes of a batch whose records are decoded in the event loop, to find out what is wrong. A
larger batch is decoded in a thread.
"""


CORRECTED: Final = -1
"""The CRC in a header that a check has corrected in memory; the batch's bytes still have the wrong one."""


class RecordCheck(Enum):
    """Where the records of a batch are checked, apart from its header."""

    HERE = "here"
    IF_QUICK = "if quick"
    """Here, but a batch that takes long raises TakesLong."""
    DONE = "done"
    """They are checked already."""


class TakesLong(Exception):
    """Checking the records of a batch would hold up all other requests."""


HERE: Final = RecordCheck.HERE
IF_QUICK: Final = RecordCheck.IF_QUICK
DONE: Final = RecordCheck.DONE


def check_batch(  # noqa: C901, PLR0912 - the checks of every batch, in Kafka's order and in one call
    records: memoryview, config: LogConfig, now_ms: int, is_client: bool, record_check: RecordCheck = HERE
) -> BatchHeader:
    """Return the header of the one batch in `records`, after all checks that need no state of the partition.

    Bytes after the batch that are no whole batch are ignored, as in Kafka. Where the records are checked, the
    header gets their largest timestamp; where the stored max_timestamp differs, the header's CRC is
    CORRECTED, and `stamp` must correct the bytes. Raises CorruptRecord, InvalidRecord, RecordTooLarge,
    RecordBatchTooLarge, InvalidTimestamp, UnsupportedCompressionType; TakesLong as `record_check` says.
    """
    available = len(records)
    if available < HEADER_BYTES:
        _refuse_short(records)
    batch = parse_header(records)
    size_bytes = batch.size_bytes
    if batch.magic != MAGIC or size_bytes < HEADER_BYTES or size_bytes > available:
        _refuse_frame(batch, available)
    if size_bytes < available:
        _check_trailing(records[size_bytes:])
    if is_client and batch.base_offset:
        raise InvalidRecord(f"The base offset of a produced batch must be 0, not {batch.base_offset}.")
    if size_bytes > config.max_message_bytes and is_client:
        raise RecordTooLarge(
            f"The batch has {size_bytes} bytes; max.message.bytes is {config.max_message_bytes}."
        )
    attributes = batch.attributes
    if (
        (batch.record_count > QUICK_RECORDS or size_bytes > QUICK_BYTES[attributes & COMPRESSION_MASK])
        and record_check is IF_QUICK
        and config.deep_validation
    ):
        raise TakesLong  # before the CRC, which the thread computes
    if crc32c(records[CRC_COVERS_FROM:size_bytes]) != batch.crc:
        raise CorruptRecord(f"The batch is corrupt: its stored CRC-32C is {batch.crc:#010x}.")
    if (
        batch.record_count <= 0
        or batch.record_count != batch.last_offset_delta + 1
        or (batch.producer_id >= 0 and batch.base_sequence < 0 and is_client)
        or attributes & COMPRESSION_MASK > ZSTD
        or (attributes & CONTROL_FLAG and is_client)
    ):
        _refuse_content(batch, is_client)
    if is_client:
        if attributes & COMPRESSION_MASK:
            _check_compressed(batch.compression, records)
        if attributes & TIMESTAMP_TYPE_FLAG:
            _check_timestamp_type(batch, config, now_ms)
        if config.deep_validation:
            if record_check is not DONE:
                plain, start, end = records, HEADER_BYTES, size_bytes
                if attributes & COMPRESSION_MASK or batch.record_count > config.max_decoded_records:
                    check_countable(batch, config)
                    plain = memoryview(_plain(batch, records, config, record_check))
                    start, end = 0, len(plain)
                _check_records(batch, plain, start, end, config, now_ms, record_check)
        elif record_check is not DONE and (
            attributes & COMPRESSION_MASK or _must_examine_timestamps(batch, config, now_ms)
        ):
            _check_limits(batch, records, config, now_ms, record_check)
    if size_bytes > config.segment_bytes:
        raise RecordBatchTooLarge(
            f"The batch has {size_bytes} bytes; segment.bytes is {config.segment_bytes}."
        )
    return batch


def stamp(
    batch: BatchHeader, view: memoryview, config: LogConfig, now_ms: int
) -> tuple[bytes, memoryview, int]:
    """Write offset, leader epoch and timestamp type into the head of a checked batch, whose bytes are in
    `view`. Return (head, rest, log_append_time_ms); the time is -1 where the producer's timestamps count.

    The topic sets the timestamp type, whatever the producer wrote. Where a check has corrected
    `max_timestamp`, it replaces the wrong one in the bytes.
    """
    size_bytes, attributes = batch.size_bytes, batch.attributes
    if config.message_timestamp_type != "CreateTime" and batch.record_count:
        head = stamped_head(batch, view, attributes | TIMESTAMP_TYPE_FLAG, now_ms)
        return head, view[PATCHED.size : size_bytes], now_ms
    if attributes & TIMESTAMP_TYPE_FLAG or batch.crc == CORRECTED:
        head = stamped_head(batch, view, attributes & ~TIMESTAMP_TYPE_FLAG, batch.max_timestamp)
        return head, view[PATCHED.size : size_bytes], -1
    head = REWRITABLE.pack(batch.base_offset, batch.batch_length, batch.partition_leader_epoch)
    return head, view[REWRITABLE_BYTES:size_bytes], -1


def check_frame(records: memoryview) -> None:
    """Check by the frame alone that this is one batch of magic 2. Raises CorruptRecord, MalformedBatch."""
    available = len(records)
    if available < HEADER_BYTES:
        _refuse_short(records)
    batch = parse_header(records)
    if batch.magic != MAGIC or batch.size_bytes < HEADER_BYTES or batch.size_bytes > available:
        _refuse_frame(batch, available)
    if batch.size_bytes < available:
        _check_trailing(records[batch.size_bytes :])


def is_transactional_frame(records: memoryview) -> bool:
    """Return whether the bytes begin with a whole batch that is in a transaction. Raises CorruptRecord."""
    if len(records) < UP_TO_MAGIC_BYTES:
        if len(records) >= LOG_OVERHEAD_BYTES:
            _check_length(records)
        return False
    if _check_frame_start(records) > len(records) or records[_MAGIC_AT] != MAGIC:
        return False
    return len(records) > _ATTRIBUTES_AT and bool(records[_ATTRIBUTES_AT] & TRANSACTIONAL_FLAG)


def _check_compressed(codec: int, records: memoryview) -> None:
    """Refuse records without their codec's magic bytes, and lz4 frames with linked blocks, which Kafka's
    consumers can't read (`Lz4BlockInputStream`).
    """
    magic = FRAME_MAGIC.get(codec, b"")
    if records[HEADER_BYTES : HEADER_BYTES + len(magic)] != magic:
        raise InvalidRecord(
            f"The header of the batch says compression codec {codec}, but the records do not begin as that "
            "codec's data."
        )
    if codec == LZ4 and len(records) > _LZ4_FLAGS_AT and not records[_LZ4_FLAGS_AT] & _LZ4_INDEPENDENT:
        raise InvalidRecord(
            "The blocks of the lz4 frame are linked; Kafka's consumers can't read such frames."
        )


def _check_timestamp_type(batch: BatchHeader, config: LogConfig, now_ms: int) -> None:
    """Refuse a batch that says LogAppendTime, unless the topic wants CreateTime and takes the one timestamp
    of the batch. Source: Kafka's `LogValidator`, `DefaultRecordBatch`. Raises InvalidTimestamp.
    """
    if config.message_timestamp_type != "CreateTime":
        _refuse_timestamp_type(batch, "A producer must not set the timestamp type to LogAppendTime.")
    if batch.max_timestamp == NO_TIMESTAMP:
        _refuse_timestamp_type(
            batch, "The batch says LogAppendTime and has no timestamp; the topic wants CreateTime."
        )
    complaint = _complaint(batch.max_timestamp, config, now_ms)
    if complaint:
        _refuse_timestamp_type(batch, complaint)


def _check_limits(
    batch: BatchHeader, records: memoryview, config: LogConfig, now_ms: int, record_check: RecordCheck
) -> None:
    """Check what a topic that checks headers only limits all the same: the sizes of compressed records, and
    the timestamps. Raises InvalidRecord, InvalidTimestamp; TakesLong as `record_check` says.
    """
    compressed = bool(batch.attributes & COMPRESSION_MASK)
    limits_sizes = compressed and config.max_record_bytes < ANY_RECORD_BYTES
    limits_timestamps = _must_examine_timestamps(batch, config, now_ms)
    if not limits_sizes and not limits_timestamps:
        return
    if record_check is IF_QUICK and (compressed or batch.size_bytes > QUICK_DECODED_BYTES):
        raise TakesLong
    if limits_sizes:
        check_countable(batch, config)
        plain_records(batch, records, config.max_decompressed_bytes, config.max_record_bytes)
    if limits_timestamps:
        _examine_timestamps(batch, records[HEADER_BYTES : batch.size_bytes], config, now_ms)


def _must_examine_timestamps(batch: BatchHeader, config: LogConfig, now_ms: int) -> bool:
    latest = now_ms + config.message_timestamp_after_max_ms
    return (
        config.message_timestamp_type == "CreateTime"
        and not batch.attributes & TIMESTAMP_TYPE_FLAG
        and (config.examines_timestamps or batch.max_timestamp > latest or batch.base_timestamp > latest)
    )


def _examine_timestamps(batch: BatchHeader, body: memoryview, config: LogConfig, now_ms: int) -> None:
    """Decode all records' timestamps, because the header's are only the producer's word; correct a wrong
    max_timestamp in the header. Raises InvalidTimestamp, InvalidRecord, UnsupportedCompressionType.
    """
    record_errors: list[tuple[int, str]] = []
    max_timestamp = NO_TIMESTAMP
    try:
        for number, timestamp in enumerate(_timestamps(batch, body, config)):
            max_timestamp = max(max_timestamp, timestamp)
            complaint = _complaint(timestamp, config, now_ms)
            if complaint:
                record_errors.append((number, complaint))
                if len(record_errors) == _RECORD_ERRORS:
                    break
    except (InvalidRecord, UnsupportedCompressionType):
        if config.examines_timestamps:
            raise
        # The records can't be decoded. The header's timestamp is out of bounds, which alone refuses a batch.
        suspect = max(batch.base_timestamp, batch.max_timestamp)
        raise InvalidTimestamp(_complaint(suspect, config, now_ms)) from None
    if record_errors:
        raise InvalidTimestamp(record_errors[0][1], tuple(record_errors))
    if batch.max_timestamp != max_timestamp:
        batch.max_timestamp, batch.crc = max_timestamp, CORRECTED


def _refuse_timestamp_type(batch: BatchHeader, text: str) -> None:
    """Refuse the batch, and name all its records, whose timestamp type it is. Raises InvalidTimestamp."""
    raise InvalidTimestamp(
        text, tuple((number, text) for number in range(min(batch.record_count, _RECORD_ERRORS)))
    )


def _complaint(timestamp: int, config: LogConfig, now_ms: int) -> str:
    """Return the reason why a record's timestamp is refused; empty when the topic allows the timestamp."""
    after_ms, before_ms = config.message_timestamp_after_max_ms, config.message_timestamp_before_max_ms
    if timestamp > now_ms + after_ms:
        return f"Timestamp {timestamp} is more than {after_ms} ms after the gateway's clock ({now_ms})."
    if before_ms != _FOREVER and timestamp != NO_TIMESTAMP and timestamp < now_ms - before_ms:
        return f"Timestamp {timestamp} is more than {before_ms} ms before the gateway's clock ({now_ms})."
    return ""


def _timestamps(batch: BatchHeader, body: memoryview, config: LogConfig) -> Iterator[int]:
    """Yield the timestamps of the records; headers of records, which may be millions, are not decoded. Raises
    UnsupportedCompressionType; InvalidRecord, also for a batch that would take too long to decode.
    """
    limit_bytes = config.max_decompressed_bytes
    if config.examines_timestamps:
        check_countable(batch, config)
    else:
        limit_bytes = min(limit_bytes, _NAMED_BYTES)
        if batch.record_count > _NAMED_RECORDS:
            raise InvalidRecord(f"The batch has {batch.record_count} records.")
    plain = bytes(decompress(batch.compression, body, limit_bytes))
    for record in stored_records(batch, plain):
        yield as_int64(batch.base_timestamp + record.timestamp_delta)


def _refuse_short(records: memoryview) -> None:
    if len(records) >= UP_TO_MAGIC_BYTES:
        _check_frame_start(records)
        if 0 <= records[_MAGIC_AT] < MAGIC:
            raise MalformedBatch("Only record batches of magic 2 can be produced.")
    raise MalformedBatch(
        "A produce request carries exactly one record batch per partition; this one has none."
    )


def _refuse_frame(batch: BatchHeader, available: int) -> None:
    if batch.batch_length < SMALLEST_BATCH_LENGTH:
        raise CorruptRecord(f"A batch length of {batch.batch_length} is below the minimum.")
    if not 0 <= batch.magic <= _NEWEST_MAGIC:
        raise CorruptRecord(f"There is no record format of magic {batch.magic}.")
    if batch.size_bytes > available:
        raise MalformedBatch(
            f"A produce request carries exactly one record batch per partition; this one is cut: {available} "
            f"of {batch.size_bytes} bytes."
        )
    if batch.magic != MAGIC:
        raise MalformedBatch(f"Only record batches of magic 2 can be produced, not of magic {batch.magic}.")
    raise CorruptRecord(f"A batch of {batch.size_bytes} bytes has no room for its header.")


def _check_frame_start(rest: memoryview) -> int:
    """Return the size of the batch at the start of `rest`, by its length field. Raises CorruptRecord."""
    length = _check_length(rest)
    if rest[_MAGIC_AT] > _NEWEST_MAGIC:
        raise CorruptRecord(f"There is no record format of magic {rest[_MAGIC_AT]}.")
    return length + LOG_OVERHEAD_BYTES


def _check_length(rest: memoryview) -> int:
    length = int(_INT32.unpack_from(rest, _LENGTH_AT)[0])
    if length < SMALLEST_BATCH_LENGTH:
        raise CorruptRecord(f"A batch length of {length} is below the minimum.")
    return length


def _check_trailing(rest: memoryview) -> None:
    if len(rest) < UP_TO_MAGIC_BYTES:
        if (
            len(rest) >= LOG_OVERHEAD_BYTES
            and _INT32.unpack_from(rest, _LENGTH_AT)[0] < SMALLEST_BATCH_LENGTH
        ):
            raise CorruptRecord("The bytes after the batch are no batch.")
        return
    if _check_frame_start(rest) <= len(rest):
        raise MalformedBatch("A produce request carries exactly one record batch per partition.")


def _refuse_content(batch: BatchHeader, is_client: bool) -> None:
    if batch.attributes & COMPRESSION_MASK > ZSTD:
        raise UnsupportedCompressionType(f"There is no compression type {batch.compression}.")
    if batch.record_count <= 0 or batch.record_count != batch.last_offset_delta + 1:
        raise InvalidRecord(
            f"The batch has record count {batch.record_count} and last offset delta "
            f"{batch.last_offset_delta}; the count must be positive and one more than the delta."
        )
    if batch.attributes & CONTROL_FLAG and is_client:
        raise InvalidRecord("Clients are not allowed to write control records.")
    raise InvalidRecord(
        f"The batch has producer id {batch.producer_id} and the invalid sequence {batch.base_sequence}."
    )


def check_countable(batch: BatchHeader, config: LogConfig) -> None:
    """Refuse a batch of too many records: a few hundred bytes can hold millions. Raises InvalidRecord."""
    if batch.record_count > config.max_decoded_records:
        raise InvalidRecord(
            f"The batch has {batch.record_count} records; seqgate.batch.decoded.max.records is "
            f"{config.max_decoded_records}. Send smaller batches."
        )


def checked_plain(
    batch: BatchHeader, records: memoryview, config: LogConfig, now_ms: int
) -> bytes | memoryview:
    """Decompress the records of a batch whose header is checked, check them as the topic demands, and return
    them. The header gets their largest timestamp. Raises InvalidRecord, InvalidTimestamp.
    """
    if config.deep_validation or config.max_record_bytes < ANY_RECORD_BYTES:
        check_countable(batch, config)
    plain = _plain(batch, records, config, HERE)
    if config.deep_validation:
        _check_records(batch, memoryview(plain), 0, len(plain), config, now_ms, HERE)
    elif _must_examine_timestamps(batch, config, now_ms):
        _examine_timestamps(batch, records[HEADER_BYTES : batch.size_bytes], config, now_ms)
    return plain


def _check_records(
    batch: BatchHeader,
    plain: memoryview,
    start: int,
    end: int,
    config: LogConfig,
    now_ms: int,
    record_check: RecordCheck,
) -> None:
    """Check all records, from `start` to `end` of `plain`, against the header, and correct a wrong
    max_timestamp in the header.
    """
    is_quick = record_check is IF_QUICK
    is_create_time = (
        config.message_timestamp_type == "CreateTime" and not batch.attributes & TIMESTAMP_TYPE_FLAG
    )
    max_timestamp = largest_timestamp(
        plain,
        start,
        end,
        batch.record_count,
        QUICK_HEADERS if is_quick else MAX_HEADERS,
        0 if is_quick else HEADERS_PER_RECORD,
        batch.base_timestamp,
        now_ms,
        config.message_timestamp_before_max_ms if is_create_time else _FOREVER,
        config.message_timestamp_after_max_ms if is_create_time else _FOREVER,
        config.compact,
    )
    if max_timestamp is None:
        max_timestamp = _decode_records(batch, plain[start:end], config, now_ms, record_check)
    elif not is_create_time:
        return
    elif max_timestamp < NO_TIMESTAMP:
        max_timestamp = NO_TIMESTAMP
    if batch.max_timestamp != max_timestamp:
        batch.max_timestamp, batch.crc = max_timestamp, CORRECTED


def _plain(
    batch: BatchHeader, records: memoryview, config: LogConfig, record_check: RecordCheck
) -> bytes | memoryview:
    """Return the decompressed records. Raises InvalidRecord, and TakesLong as `record_check` says."""
    limit_bytes = config.max_decompressed_bytes
    body = records[HEADER_BYTES : batch.size_bytes]
    if record_check is not IF_QUICK:
        if config.max_record_bytes < ANY_RECORD_BYTES:
            plain: bytes | memoryview = plain_records(batch, records, limit_bytes, config.max_record_bytes)
        else:
            plain = decompress(batch.compression, body, limit_bytes)
        check_one_frame(batch.compression, body)
        return plain
    if batch.record_count > QUICK_SIZED_RECORDS and config.max_record_bytes < ANY_RECORD_BYTES:
        raise TakesLong
    found = decompress_quickly(batch.compression, body, min(limit_bytes, QUICK_PLAIN_BYTES))
    if found is None:
        raise TakesLong
    check_record_sizes(found, batch.record_count, config.max_record_bytes)
    return found


def _decode_records(
    batch: BatchHeader, plain: memoryview, config: LogConfig, now_ms: int, record_check: RecordCheck
) -> int:
    """Decode the records one by one, and return their largest timestamp. Raises the error of the first rule
    that a record breaks; TakesLong as `record_check` says.
    """
    if record_check is IF_QUICK and len(plain) > QUICK_DECODED_BYTES:
        raise TakesLong
    max_timestamp = NO_TIMESTAMP
    create_time = config.message_timestamp_type == "CreateTime"
    errors: list[tuple[int, str]] = []
    keyless, wrong = 0, ""
    for delta, record in enumerate(iterate_plain(batch, plain)):
        if record.offset != batch.base_offset + delta:
            raise InvalidRecord(
                f"Record {delta} of the batch has offset delta {record.offset - batch.base_offset}."
            )
        if record.key is None and config.compact:
            keyless += 1
            errors.append((delta, _KEYLESS))
            continue
        timestamp = record.timestamp
        max_timestamp = max(max_timestamp, timestamp)
        complaint = _complaint(timestamp, config, now_ms) if create_time else ""
        if complaint:
            wrong = wrong or complaint
            errors.append((delta, complaint))
    if errors:
        _refuse_records(tuple(errors[:_RECORD_ERRORS]), keyless, wrong)
    return max_timestamp


_KEYLESS: Final = "A compacted topic takes no record without a key."


def _refuse_records(record_errors: tuple[tuple[int, str], ...], keyless: int, wrong: str) -> None:
    """Refuse `keyless` records without a key, and those with a timestamp out of bounds; `wrong` is the text
    of the first of these, or empty. Raises InvalidTimestamp where any timestamp is wrong, else InvalidRecord.

    Source: Kafka's `LogValidator.validateRecord`, `processRecordErrors`. Kafka's answer names every such
    record; this one names the first _RECORD_ERRORS.
    """
    if wrong:
        raise InvalidTimestamp(wrong, record_errors)
    raise InvalidRecord(
        f"{keyless} records of the batch have no key, which a compacted topic needs.", record_errors
    )


def plain_records(
    header: BatchHeader, batch: memoryview, limit_bytes: int, max_record_bytes: int = ANY_RECORD_BYTES
) -> bytes:
    """Return the records of a batch as plain bytes. Raises UnsupportedCompressionType; InvalidRecord, also
    for a record of a compressed batch with more than `max_record_bytes`.

    The limit of records bounds the decompression, too: a batch of small records that decompresses to more
    costs no more than records of the largest size. Source: Kafka's `DefaultRecord.readFrom`.
    """
    body = batch[HEADER_BYTES : header.size_bytes]
    if not header.compression or max_record_bytes >= ANY_RECORD_BYTES:
        return bytes(compression.decompress(header.compression, body, limit_bytes))
    most_bytes = header.record_count * (max_record_bytes + _LENGTH_BYTES)
    try:
        plain = bytes(compression.decompress(header.compression, body, min(limit_bytes, most_bytes)))
    except DecompressionLimitReached as error:
        text = f"{error}, in {header.record_count}; max.decompressed.message.bytes is {max_record_bytes}."
        raise DecompressionLimitReached(text) from None
    check_record_sizes(plain, header.record_count, max_record_bytes)
    return plain


def check_record_sizes(plain: Buffer, record_count: int, max_record_bytes: int) -> None:
    """Refuse a record with more than `max_record_bytes`. Raises InvalidRecord."""
    if max_record_bytes >= ANY_RECORD_BYTES:
        return
    position = 0
    for _ in range(record_count):
        size, position = read_varint(plain, position)
        if size > max_record_bytes:
            raise InvalidRecord(
                f"A record of the batch has {size} bytes; max.decompressed.message.bytes is "
                f"{max_record_bytes}."
            )
        position += max(size, 0)


def stored_records(header: BatchHeader, plain: bytes) -> Iterator[PlainRecord]:
    """Yield the records in a batch's plain bytes, by ascending offsets. Raises InvalidRecord on damage."""
    base_offset, last_offset_delta = header.base_offset, header.last_offset_delta
    if base_offset + last_offset_delta > LAST_OFFSET:
        raise InvalidRecord(
            f"the batch ends at offset {base_offset + last_offset_delta}, above {LAST_OFFSET}"
        )
    position, previous, left = 0, -1, header.record_count
    while left > 0:
        wanted = min(left, _RECORDS_AT_ONCE)
        found = sound_records(plain, position, wanted, previous, base_offset, last_offset_delta)
        if not found:
            found = [_stored_record(plain, position, previous, base_offset, last_offset_delta)]
        yield from found
        left -= len(found)
        previous, position = found[-1].offset - base_offset, found[-1].end
    if position != len(plain):
        raise InvalidRecord(f"{len(plain) - position} bytes follow the last record")


def _stored_record(
    plain: bytes, start: int, previous: int, base_offset: int, last_offset_delta: int
) -> PlainRecord:
    """Return the record at `start`, a rare one. Raises InvalidRecord for a damaged one."""
    length, position = read_varint(plain, start)
    end = position + length
    timestamp_delta, rest = read_varlong(plain, position + 1)
    offset_delta, position = read_varint(plain, rest)
    if not previous < offset_delta <= last_offset_delta:
        raise InvalidRecord(
            f"a record has offset delta {offset_delta}; "
            f"it must be above {previous} and at most {last_offset_delta}"
        )
    key_bytes, position = read_varint(plain, position)
    key = None
    if key_bytes >= 0:
        key = plain[position : position + key_bytes]
        position += key_bytes
    value_bytes, position = read_varint(plain, position)
    if position + max(value_bytes, 0) >= end or end > len(plain):
        raise InvalidRecord("a record is shorter than its content")
    return PlainRecord(base_offset + offset_delta, timestamp_delta, key, value_bytes >= 0, start, rest, end)


def delete_horizon_ms(header: BatchHeader) -> int | None:
    """Return when (ms) compaction may drop the batch's tombstones or marker; None before a horizon is set."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON_FLAG else None


def rewritten_batch(
    header: BatchHeader, plain: bytes, kept: Sequence[PlainRecord], *, new_horizon_ms: int | None = None
) -> bytes:
    """Return the batch with only the records `kept`, in order; without records `empty_batch`.
    `new_horizon_ms` becomes the delete horizon. max_timestamp is the largest, except under LogAppendTime.
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


def _max_timestamp(base_timestamp: int, kept: Sequence[PlainRecord]) -> int:
    deltas = [record.timestamp_delta for record in kept]
    earliest, latest = base_timestamp + min(deltas), base_timestamp + max(deltas)
    if earliest == as_int64(earliest) and latest == as_int64(latest):
        return latest
    return max(as_int64(base_timestamp + delta) for delta in deltas)


def _relative_to(horizon_ms: int, base_timestamp: int, plain: bytes, kept: Sequence[PlainRecord]) -> bytes:
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
