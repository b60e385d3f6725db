"""Record batches as producers send them: an input is what a Produce request holds for one partition.

A bad batch is refused with one of the log's errors. A batch that passes deep validation can be read by all
readers: consumers, compaction, delayed delivery, the coordinators. A batch that passes only shallow
validation may be damaged inside. Then all readers must report the damage.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from crc32c import crc32c

from seqgate.gateway.coordinator.group import records as group_records
from seqgate.gateway.runtime.coordinators.shards import decoded
from seqgate.log.config import LogConfig
from seqgate.log.errors import IncompatibleFormat, LogError
from seqgate.log.format.batch_validation import check_batch, plain_records, rewritten_batch, stored_records
from seqgate.log.format.record_batch import HEADER_BYTES, BatchHeader, crc_matches, parse_header
from seqgate.log.format.records import Record, iterate_records, read_end_marker
from seqgate.log.state.delays import due_values, parse_due_ms
from seqgate.seq_validator import ProducerTable
from tests.fuzzing.changes import changed, extreme
from tests.fuzzing.target import Breach, Run
from tests.support.batches import Batch, compress, varint
from tests.support.batches import Record as WrittenRecord

MAX_INPUT_BYTES = 4096
PEAK_BYTES = 32 << 20
BASE_WORK = 100.0
NOW_MS = 1_700_000_000_000
LIMIT_BYTES = 1 << 20
DELAY_HEADER = "deliver-at-ms"
SHALLOW = LogConfig(max_decompressed_bytes=LIMIT_BYTES, segment_bytes=1 << 20, deep_validation=False)
DEEP = LogConfig(max_decompressed_bytes=LIMIT_BYTES, segment_bytes=1 << 20)


@contextmanager
def opened() -> Iterator[Run]:
    yield feed


def feed(data: bytes) -> None:
    view = memoryview(data)
    deep = _checked(view, DEEP, is_client=True)
    shallow = _checked(view, SHALLOW, is_client=True)
    if shallow is None:
        if deep is not None:
            raise Breach("deep validation accepts what shallow validation refuses")
        shallow = _checked(view, SHALLOW, is_client=False)
    if shallow is not None:
        batch = view[: shallow.size_bytes]
        if not crc_matches(parse_header(batch), batch):  # the check may have corrected its own header
            raise Breach("a batch with a wrong CRC is accepted")
        _judge(shallow)
        _read_by_all(shallow, batch, is_sound=deep is not None)


def _checked(view: memoryview, config: LogConfig, *, is_client: bool) -> BatchHeader | None:
    try:
        return check_batch(view, config, NOW_MS, is_client)
    except LogError:
        return None


def _judge(header: BatchHeader) -> None:
    table = ProducerTable(retained_batches=2)
    if header.producer_id >= 0 and not header.is_control:
        table.judge(header, NOW_MS)
        table.update(header, 10, NOW_MS)
        ProducerTable.restore(table.snapshot(20), retained_batches=2)


def _read_by_all(header: BatchHeader, batch: memoryview, *, is_sound: bool) -> None:
    try:
        records = list(iterate_records(batch, limit_bytes=LIMIT_BYTES))
    except LogError as error:
        if is_sound:
            raise Breach(f"deep validation accepts a batch that can't be read: {error}") from error
        records = None
    if is_sound and records is not None:
        _check_offsets(header, records)
    for read in (_compact, _delay, _coordinate):
        try:
            read(header, batch)
        except LogError as error:
            if is_sound:
                raise Breach(f"the records can be decoded, but {read.__name__} fails: {error}") from error
    read_end_marker(batch)


def _check_offsets(header: BatchHeader, records: list[Record]) -> None:
    offsets = [record.offset - header.base_offset for record in records]
    if offsets != list(range(header.last_offset_delta + 1)):
        raise Breach(f"a batch with the offset deltas {offsets} was accepted")


def _compact(header: BatchHeader, batch: memoryview) -> None:
    plain = plain_records(header, batch, LIMIT_BYTES)
    kept = list(stored_records(header, plain))[::2]
    for horizon_ms in (None, NOW_MS):
        rest = rewritten_batch(header, plain, kept, new_horizon_ms=horizon_ms)
        again = list(iterate_records(rest, limit_bytes=2 * LIMIT_BYTES))
        if [record.offset for record in again] != [record.offset for record in kept]:
            raise Breach("a rewritten batch has other records")
        if not crc_matches(parse_header(rest), memoryview(rest)):
            raise Breach("a rewritten batch has a wrong CRC")


def _delay(header: BatchHeader, batch: memoryview) -> None:
    for _, value in due_values(header, batch, DELAY_HEADER.encode(), LIMIT_BYTES):
        parse_due_ms(value)


def _coordinate(header: BatchHeader, batch: memoryview) -> None:
    # a value of a newer version stops a coordinator, and only the gateway writes into its topics
    with suppress(IncompatibleFormat):
        for _ in decoded(group_records, header, batch, "fuzzed"):  # type: ignore[arg-type]
            pass


def seeds() -> Iterator[bytes]:
    headers = ((DELAY_HEADER.encode(), b"1700000000001"), (b"other", None))
    several = (WrittenRecord(b"a", b"key"), WrittenRecord(None, b"key", headers, 5), WrittenRecord(b"", None))
    for codec in range(5):
        yield Batch(several, codec=codec, base_timestamp=NOW_MS).encode()
        yield Batch(several, codec=codec, base_timestamp=NOW_MS).of(7, 0, 2**31 - 2).encode()
    yield Batch(several[:1], attributes=0x10, base_timestamp=NOW_MS).of(7, 1, 0).encode()
    marker = WrittenRecord(b"\0\0\0\0\0\1", b"\0\0\0\1")
    yield Batch((marker,), attributes=0x30, base_timestamp=NOW_MS, producer_id=7, producer_epoch=0).encode()
    yield Batch(several, base_timestamp=NOW_MS).encode() * 2
    yield b"\0" * 12 + b"\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"


def mutated(data: bytes, chance: random.Random) -> bytes:
    if len(data) < HEADER_BYTES or chance.random() < 0.3:
        return _sealed(_composed(chance))
    if chance.random() < 0.4:
        data = _with_field_changed(data, chance)
    if chance.random() < 0.7:
        data = data[:HEADER_BYTES] + changed(data[HEADER_BYTES:], chance)
    return data if chance.random() < 0.1 else _sealed(data)


def _composed(chance: random.Random) -> bytes:
    """Return a batch of well-formed records, with a few wrong fields."""
    records = [_record(index, chance) for index in range(chance.choice((1, 1, 2, 3, 20)))]
    codec = chance.randrange(5)
    plain = b"".join(record.encode(index) for index, record in enumerate(records))
    if chance.random() < 0.3:
        plain = changed(plain, chance)
    if chance.random() < 0.1:
        plain += varint(extreme(chance, 64))
    return Batch(
        records,
        codec=codec,
        payload=compress(codec, plain),
        attributes=chance.choice((0, 0, 0x08, 0x10, 0x30, 0x40, 0x80)),
        base_timestamp=chance.choice((NOW_MS, extreme(chance, 64))),
        max_timestamp=chance.choice((NOW_MS, extreme(chance, 64))),
        base_offset=chance.choice((0, 0, extreme(chance, 64))),
    ).encode()


def _record(index: int, chance: random.Random) -> WrittenRecord:
    header = (
        chance.choice((b"", b"h", DELAY_HEADER.encode(), b"\xff")),
        chance.choice((None, b"", b"17", b"9" * 30)),
    )
    return WrittenRecord(
        chance.choice((None, b"", b"value", b"v" * 300)),
        chance.choice((None, b"", b"key", DELAY_HEADER.encode())),
        [header] * chance.choice((0, 0, 1, 3)),
        chance.choice((0, index, extreme(chance, 64))),
        chance.choice((None, None, None, extreme(chance, 32))),
    )


def _with_field_changed(data: bytes, chance: random.Random) -> bytes:
    position, bits = chance.choice(
        (
            (0, 64),
            (8, 32),
            (12, 32),
            (16, 8),
            (21, 16),
            (23, 32),
            (27, 64),
            (35, 64),
            (43, 64),
            (51, 16),
            (53, 32),
            (57, 32),
        )
    )
    number = extreme(chance, bits) & (1 << bits) - 1
    return data[:position] + number.to_bytes(bits // 8, "big") + data[position + bits // 8 :]


def _sealed(data: bytes) -> bytes:
    """Return the batch with a correct length and CRC."""
    batch = bytearray(data[:MAX_INPUT_BYTES])
    if len(batch) >= HEADER_BYTES:
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    return bytes(batch)
