"""Compressed payloads: an input is a codec's id and bytes that pretend to be compressed with the codec.

No payload decompresses to more than the limit; a bad payload is refused and has no other effect. What is
decompressed quickly is what is decompressed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from seqgate.log.errors import InvalidRecord, UnsupportedCompressionType
from seqgate.log.format.compression import compress, decompress, decompress_quickly
from tests.fuzzing.changes import changed
from tests.fuzzing.target import Breach, Run

MAX_INPUT_BYTES = 4096
PEAK_BYTES = 24 << 20
BASE_WORK = 60.0
LIMIT_BYTES = 1 << 20
CODECS = 8
_XERIAL = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"


@contextmanager
def opened() -> Iterator[Run]:
    yield feed


def feed(data: bytes) -> None:
    codec, packed = data[0] % CODECS if data else 0, memoryview(data)[1:]
    try:
        plain = decompress(codec, packed, LIMIT_BYTES)
    except (InvalidRecord, UnsupportedCompressionType):
        plain = None
    if plain is not None and len(plain) > LIMIT_BYTES:
        raise Breach(f"{len(data)} bytes became {len(plain)}, with a limit of {LIMIT_BYTES}")
    try:
        quickly = decompress_quickly(codec, packed, LIMIT_BYTES)
    except (InvalidRecord, UnsupportedCompressionType):
        if plain is not None:
            raise Breach(f"{len(data)} bytes became {len(plain)}, and are refused quickly") from None
    else:
        if quickly is not None and quickly != plain:
            raise Breach(f"{len(data)} bytes became others quickly")


def seeds() -> Iterator[bytes]:
    for codec in range(5):
        for plain in (b"", b"record" * 10, bytes(2 * LIMIT_BYTES)):
            yield bytes([codec]) + (compress(codec, plain)[:MAX_INPUT_BYTES])
    yield b"\x02" + compress(2, b"record" * 10)[len(_XERIAL) + 4 :]


def mutated(data: bytes, chance: random.Random) -> bytes:
    if chance.random() < 0.2:
        plain = chance.randbytes(chance.randint(1, 8)) * chance.choice((1, 100, 10_000, 1_000_000))
        codec = chance.randrange(5)
        data = bytes([codec]) + compress(codec, plain)[:MAX_INPUT_BYTES]
    return data[:1] + changed(data[1:], chance)
