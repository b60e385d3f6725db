"""The bytes of a snapshot of producer names. All numbers are big-endian.

    magic "SQNM" | version int16 | log_end_offset int64 | names int32 | entry … | CRC-32C of all before,
    uint32 entry: name int16 bytes | sequence_id int64 | epoch int64 | offset int64 | last_active_ms int64
           | open transactions int32 | (producer_id int64, sequence_id int64) …

Entries are ordered longest idle first.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from seqgate.seq_validator.envelope import CRC_BYTES, Envelope

if TYPE_CHECKING:
    from collections.abc import Collection

    from seqgate.seq_validator.names.table import WrittenName

VERSION: Final = 1
_MAGIC: Final = b"SQNM"
_HEADER: Final = struct.Struct(">4shqi")
_NAME: Final = struct.Struct(">h")
_ENTRY: Final = struct.Struct(">qqqqi")
_HELD: Final = struct.Struct(">qq")


class CorruptNames(Exception):
    """The bytes are no snapshot of names that this version can read; the message is a sentence that says why."""


_ENVELOPE: Final = Envelope(_MAGIC, VERSION, VERSION, _HEADER.size, "snapshot of names", CorruptNames)
newer_version = _ENVELOPE.newer_version


def encode(names: Collection[WrittenName], log_end_offset: int) -> bytes:
    """Return the snapshot of `names` for a log that ends at `log_end_offset` (exclusive)."""
    parts = [_HEADER.pack(_MAGIC, VERSION, log_end_offset, len(names))]
    for name, sequence_id, epoch, offset, last_active_ms, held in names:
        parts.append(_NAME.pack(len(name)))
        parts.append(name)
        parts.append(_ENTRY.pack(sequence_id, epoch, offset, last_active_ms, len(held)))
        parts.extend(_HELD.pack(*pair) for pair in held)
    return _ENVELOPE.seal(b"".join(parts))


def decode(data: bytes) -> tuple[list[WrittenName], int]:
    """Return the names in `data` and the snapshot's log end offset.

    Raises CorruptNames when the bytes are cut, damaged, or of a later version.
    """
    _ENVELOPE.check(data)
    _, _, log_end_offset, count = _HEADER.unpack_from(data)
    end = len(data) - CRC_BYTES
    position = _HEADER.size
    names: list[WrittenName] = []
    try:
        for _ in range(count):
            position = _decode_entry(data, position, names)
    except (struct.error, ValueError) as error:
        raise _ENVELOPE.miscounted() from error
    if count < 0 or position != end or len({entry[0] for entry in names}) != len(names):
        raise _ENVELOPE.miscounted()
    return names, log_end_offset


def _decode_entry(data: bytes, position: int, names: list[WrittenName]) -> int:
    (size,) = _NAME.unpack_from(data, position)
    position += _NAME.size
    name = data[position : position + size]
    if size < 0 or len(name) != size:
        raise _ENVELOPE.miscounted()
    sequence_id, epoch, offset, last_active_ms, held_count = _ENTRY.unpack_from(data, position + size)
    position += size + _ENTRY.size
    if held_count < 0:
        raise _ENVELOPE.miscounted()
    held = []
    for _ in range(held_count):
        held.append(_HELD.unpack_from(data, position))
        position += _HELD.size
    if len({producer_id for producer_id, _ in held}) != held_count:
        raise _ENVELOPE.miscounted()
    names.append((name, sequence_id, epoch, offset, last_active_ms, tuple(held)))
    return position
