"""Objects of a session's write-ahead log, as a bucket may return them: whole, cut, or changed.

An input is the content of one object. Whatever the decoder accepts must be encoded to the same bytes again,
and the index read from the object's end must agree with the whole object.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from uuid import UUID

from crc32c import crc32c

from seqgate.gateway.cluster.wal import wal_object
from seqgate.gateway.cluster.wal.wal_object import (
    FOOTER_BYTES,
    CorruptWalObject,
    DataRow,
    FileRow,
    Seal,
    WalObject,
)
from seqgate.log import IncompatibleFormat
from tests.fuzzing.changes import changed, extreme
from tests.fuzzing.target import Breach, Run

MAX_INPUT_BYTES = 4096
PEAK_BYTES = 16 << 20
BASE_WORK = 100.0
KEY = "wal/1/4/00000000000000000009"
HEAD_BYTES = 8
NONCE = bytes(range(16))
TOPIC = UUID(int=7)
ROWS = (
    DataRow(TOPIC, 3, 0, 100, 110, 50, 4_096, 5),
    FileRow(TOPIC, 3, "log-start-offset", 2),
    DataRow(UUID(int=8), 0, 2, 7, 8, 0, 70, 3),
)
_INDEX_BYTES_AT = FOOTER_BYTES - 16
_INDEX_CRC_AT = FOOTER_BYTES - 12


@contextmanager
def opened() -> Iterator[Run]:
    yield feed


def feed(data: bytes) -> None:
    with suppress(CorruptWalObject, IncompatibleFormat):
        _feed_end(data)
    try:
        read = wal_object.decode(data, KEY)
    except (CorruptWalObject, IncompatibleFormat) as error:
        if KEY not in str(error):
            raise Breach(f"the error does not name the object: {error}") from error
        return
    again = wal_object.encode_seal(read) if isinstance(read, Seal) else b"".join(wal_object.encode(read))
    if again != data:
        raise Breach(f"encoding {read} again gives other bytes")


def _feed_end(data: bytes) -> None:
    needed = wal_object.index_bytes(data[-FOOTER_BYTES:], KEY)
    index = wal_object.decode_index(data[-needed:], KEY)
    if isinstance(index, Seal):
        return
    position = HEAD_BYTES
    for placed in index.rows:
        if placed.start != position or not position <= position + placed.row.length <= index.size_bytes:
            raise Breach(f"{placed} lies outside its object of {index.size_bytes} bytes")
        position += placed.row.length


def seeds() -> Iterator[bytes]:
    yield b"".join(wal_object.encode(WalObject(1, 4, 9, NONCE, ROWS, [b"hello", b"60", b"you"])))
    yield b"".join(wal_object.encode(WalObject(1, 4, 0, NONCE, (), ())))
    yield wal_object.encode_seal(Seal(1, 4, 9, NONCE, 2, "node 2 takes over"))


def with_checksums(data: bytes, index_bytes: int | None = None) -> bytes:
    """Return the bytes with correct checksums of index and footer; `index_bytes` replaces the size in the
    footer.
    """
    footer = bytearray(data[-FOOTER_BYTES:])
    if len(footer) < FOOTER_BYTES:
        return data
    if index_bytes is None:
        (index_bytes,) = struct.unpack_from(">i", footer, _INDEX_BYTES_AT)
    index = data[max(0, len(data) - FOOTER_BYTES - index_bytes) : -FOOTER_BYTES] if index_bytes > 0 else b""
    struct.pack_into(">iI", footer, _INDEX_BYTES_AT, index_bytes, crc32c(index))
    struct.pack_into(">I", footer, 0, crc32c(footer[4:]))
    return data[:-FOOTER_BYTES] + footer


def mutated(data: bytes, chance: random.Random) -> bytes:
    if not data or chance.random() < 0.3:
        data = chance.choice(list(seeds()))
    front, footer = data[:-FOOTER_BYTES], data[-FOOTER_BYTES:]
    match chance.randrange(4):
        case 0:
            return changed(data, chance)
        case 1:  # the index is another, and the footer fits it
            front = changed(front, chance)
        case 2:
            footer = changed(footer, chance)
        case _:
            at = chance.randrange(max(1, len(front) - 3))
            front = front[:at] + struct.pack(">i", extreme(chance, 32)) + front[at + 4 :]
    size = extreme(chance, 32) if chance.random() < 0.1 else None
    return with_checksums(front + footer, size)
