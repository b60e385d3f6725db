"""The bytes of a partition's names. All numbers are big-endian.

    magic "SQNM" | version int16 | log_end_offset int64 | names int32 | entry … | CRC-32C of all before, uint32
    entry: name int16 bytes | sequence_id int64 | epoch int64 | offset int64 | last_active_ms int64
           | open transactions int32 | (producer_id int64, sequence_id int64) …

Entries stand longest idle first.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import crc32c

if TYPE_CHECKING:
    from collections.abc import Collection

    from seq_validator.names.table import WrittenName

VERSION: Final = 1
_MAGIC: Final = b"SQNM"
_PREFIX: Final = struct.Struct(">4sh")
_HEADER: Final = struct.Struct(">4shqi")
_NAME: Final = struct.Struct(">h")
_ENTRY: Final = struct.Struct(">qqqqi")
_HELD: Final = struct.Struct(">qq")
_CRC: Final = struct.Struct(">I")


class CorruptNames(Exception):
    """The bytes are no snapshot of names that this version can read; the message is a sentence that says why."""


def encode(names: Collection[WrittenName], log_end_offset: int) -> bytes:
    """The snapshot of names for a log that ends at `log_end_offset` (exclusive)."""
    parts = [_HEADER.pack(_MAGIC, VERSION, log_end_offset, len(names))]
    for name, sequence_id, epoch, offset, last_active_ms, held in names:
        parts.append(_NAME.pack(len(name)))
        parts.append(name)
        parts.append(_ENTRY.pack(sequence_id, epoch, offset, last_active_ms, len(held)))
        parts.extend(_HELD.pack(*pair) for pair in held)
    body = b"".join(parts)
    return body + _CRC.pack(crc32c.crc32c(body))


def decode(data: bytes) -> tuple[list[WrittenName], int]:
    """The names and the log_end_offset they belong to. Raises CorruptNames when the bytes are cut, damaged, or of a later version."""
    _check(data)
    _, _, log_end_offset, count = _HEADER.unpack_from(data)
    end = len(data) - _CRC.size
    position = _HEADER.size
    names: list[WrittenName] = []
    try:
        for _ in range(count):
            position = _decode_entry(data, position, names)
    except (struct.error, ValueError) as error:
        raise _miscounted() from error
    if count < 0 or position != end or len({entry[0] for entry in names}) != len(names):
        raise _miscounted()
    return names, log_end_offset


def newer_version(data: bytes) -> int | None:
    """The version of a snapshot that a later release wrote; None for any other, and for one that is damaged."""
    if len(data) < _PREFIX.size + _CRC.size:
        return None
    magic, version = _PREFIX.unpack_from(data)
    if magic != _MAGIC or version <= VERSION or not _is_whole(data):
        return None
    return int(version)


def _is_whole(data: bytes) -> bool:
    (expected,) = _CRC.unpack_from(data, len(data) - _CRC.size)
    return crc32c.crc32c(memoryview(data)[: -_CRC.size]) == int(expected)


def _check(data: bytes) -> None:
    if len(data) < _HEADER.size + _CRC.size:
        raise CorruptNames(f"The snapshot of names is cut short: {len(data)} bytes.")
    magic, version = _PREFIX.unpack_from(data)
    if magic != _MAGIC:
        raise CorruptNames(f"This is no snapshot of names: it begins with {magic!r}.")
    if version != VERSION:
        raise CorruptNames(
            f"The snapshot of names has version {version}; this program reads version {VERSION}."
        )
    if not _is_whole(data):
        raise CorruptNames("The snapshot of names is damaged: its CRC-32C does not fit.")


def _decode_entry(data: bytes, position: int, names: list[WrittenName]) -> int:
    (size,) = _NAME.unpack_from(data, position)
    position += _NAME.size
    name = data[position : position + size]
    if size < 0 or len(name) != size:
        raise _miscounted()
    sequence_id, epoch, offset, last_active_ms, held_count = _ENTRY.unpack_from(data, position + size)
    position += size + _ENTRY.size
    if held_count < 0:
        raise _miscounted()
    held = []
    for _ in range(held_count):
        held.append(_HELD.unpack_from(data, position))
        position += _HELD.size
    names.append((name, sequence_id, epoch, offset, last_active_ms, tuple(held)))
    return position


def _miscounted() -> CorruptNames:
    return CorruptNames("The snapshot of names is damaged: its counts do not fit its length.")
