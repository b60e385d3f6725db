"""Batches of records with producer names, well-formed, odd and damaged, which a plain reader judges, too."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace

from crc32c import crc32c

from seqgate.log.format.record_batch import HEADER_BYTES, TRANSACTIONAL_FLAG, parse_header
from tests.fuzzing.changes import changed, extreme
from tests.support.batches import Batch, Record, compress

NOW_MS = 1_700_000_000_000
MOST_BATCHES = 4
MAX_NAMES = 6
NAME, SEQUENCE, EPOCH = b"dedup.name", b"dedup.sequence", b"dedup.epoch"


def batches_of(data: bytes) -> Iterator[bytes]:
    """Return the batches of an input, each with a right CRC."""
    for _ in range(MOST_BATCHES):
        if len(data) < HEADER_BYTES:
            return
        size_bytes = parse_header(data).size_bytes
        if not HEADER_BYTES <= size_bytes <= len(data):
            size_bytes = len(data)
        yield sealed(data[:size_bytes])
        data = data[size_bytes:]


def sealed(data: bytes) -> bytes:
    batch = bytearray(data)
    struct.pack_into(">qi", batch, 0, 0, len(batch) - 12)
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    return bytes(batch)


def seeds() -> Iterator[bytes]:
    for choices in range(4):
        for codec in range(5):
            run = _batch([_named(b"app", number) for number in range(95, 120)], codec)
            later = _batch([_named(b"app", number) for number in range(110, 130)], codec)
            yield bytes([choices]) + run.encode() + later.encode()
            both = [_named(b"app", 200), _named(b"b", 1, 3), _named(b"app", 200), _named(b"b", 2, 4)]
            held = replace(run, attributes=0x10).of(7, 0, 0)
            yield bytes([choices]) + held.encode() + _batch(both, codec).of(8, 0, 0).encode()
    epochs = [_named(b"app", 10 + number, 1 + number // 15) for number in range(30)]
    yield b"\0" + _batch(epochs).encode()
    yield b"".join([b"\0", *(_batch([_named(b"app", *said)]).encode() for said in ((1, 1), (1, 2), (2, 1)))])
    looks_like_one = b"\x0atrace\x00"
    traced = [
        Record(headers=((SEQUENCE, b"%d" % (10 + number)), (b"trace", trace), (NAME, b"app")))
        for number, trace in enumerate((b"", looks_like_one))
    ]
    yield b"\0" + _batch(traced).encode()
    yield b"\0" + _batch([_named(b"%d" % number, 1) for number in range(MAX_NAMES + 1)]).encode()
    yield b"\0" + _batch([Record(), Record(headers=((NAME, b"app"),))]).encode()


def _batch(records: Sequence[Record], codec: int = 0) -> Batch:
    return Batch(records, codec=codec, base_timestamp=NOW_MS)


def _named(name: bytes | None, number: int, epoch: int | None = None) -> Record:
    headers: list[tuple[bytes, bytes | None]] = [(NAME, name), (SEQUENCE, b"%d" % number)]
    if epoch is not None:
        headers.append((EPOCH, b"%d" % epoch))
    return Record(b"v", None, headers)


def mutated(data: bytes, chance: random.Random) -> bytes:
    batches = list(batches_of(data[1:]))
    match chance.randrange(5):
        case 0 | 1 if batches:
            index = chance.randrange(len(batches))
            batches[index] = _changed_within(batches[index], chance)
        case 2 if batches:
            batches.append(chance.choice(batches))
        case 3 if batches:
            chance.shuffle(batches)
            batches.pop()
        case _:
            batches.append(_composed(chance))
    return bytes([chance.randrange(4)]) + b"".join(batches[-MOST_BATCHES:])


def _changed_within(batch: bytes, chance: random.Random) -> bytes:
    if chance.random() < 0.3:
        fields = bytearray(batch)
        position, size = chance.choice(((22, 1), (23, 4), (43, 8), (51, 2), (53, 4), (57, 4)))
        number = chance.choice((0, 1, 7, 0x10, extreme(chance, 8 * size))) & (1 << 8 * size) - 1
        fields[position : position + size] = number.to_bytes(size, "big")
        return sealed(bytes(fields))
    return sealed(batch[:HEADER_BYTES] + changed(batch[HEADER_BYTES:], chance))


def _composed(chance: random.Random) -> bytes:
    """Return a batch with a few runs of records of the same layout, some of them odd."""
    records: list[Record] = []
    for _ in range(chance.choice((1, 1, 2, 4))):
        records += _run(chance)
    codec = chance.choice((0, 0, 0, chance.randrange(5)))
    plain = b"".join(record.encode(index) for index, record in enumerate(records))
    if chance.random() < 0.3:
        plain = changed(plain, chance)
    attributes = chance.choice((0, 0, 0, TRANSACTIONAL_FLAG))
    batch = replace(_batch(records, codec), payload=compress(codec, plain), attributes=attributes)
    if attributes or chance.random() < 0.3:
        batch = batch.of(chance.choice((7, 8)), chance.choice((0, 0, 1)), chance.choice((0, 0, 1, 25)))
    return batch.encode()


def _run(chance: random.Random) -> Iterator[Record]:
    headers: list[tuple[bytes, bytes | None]] = [
        (NAME, chance.choice((b"app", b"app", b"b", b"\xff", b"n" * 20)))
    ]
    if chance.random() < 0.4:
        headers.append((EPOCH, chance.choice((b"1", b"2", b"07", b"%d" % (2**63 - 1)))))
    if chance.random() < 0.3:
        odd = (chance.choice((NAME, SEQUENCE, EPOCH, b"trace")), chance.choice((None, b"", b"5", b"x" * 21)))
        headers.insert(chance.randrange(len(headers) + 1), odd)
    place = chance.randrange(len(headers) + 1)
    first = chance.choice((0, 5, 95, 100, 990, 2**63 - 12, 10**18))
    step, time_step = chance.choice((1, 1, 1, 0, 7, -1)), chance.choice((0, 0, 1, 30))
    value = chance.choice((None, b"", b"value", b"v" * 64))
    for number in range(chance.choice((1, 2, 12, 30, 70))):
        text = b"%d" % max(0, first + step * number)
        yield Record(value, b"k", [*headers[:place], (SEQUENCE, text), *headers[place:]], number * time_step)
