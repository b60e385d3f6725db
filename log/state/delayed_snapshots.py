"""Encodes the file `delayed-records` of a partition: the records below `covered_offset` that are not due yet.

    magic "SQDR" | version int16 | covered_offset int64 | header_name int16 bytes, UTF-8
          | holds int32 | (offset int64, until_ms int64) … | records int32 | (due_ms int64, offset int64) …
          | CRC-32C of all before, uint32

All records below `covered_offset` are durable and decided, so no crash makes the file wrong. A start replays the log after that
offset, or the whole log without a readable file.
"""

from __future__ import annotations

import contextlib
import struct
from itertools import chain
from typing import Final, NamedTuple

from log.errors import IncompatibleFormat
from log.state.delayed_records import Hold
from seq_validator.checksum import crc32c

_MAGIC: Final = b"SQDR"
_VERSION: Final = 1
_HEAD: Final = struct.Struct(">4shqh")
_COUNT: Final = struct.Struct(">i")
_PAIR: Final = struct.Struct(">qq")
_CRC: Final = struct.Struct(">I")


class CorruptDelayedSnapshot(Exception):
    """The file is damaged, so its content can't be trusted."""


class DelayedSnapshot(NamedTuple):
    """The records that wait below `covered_offset`, by the record header `header_name`."""

    covered_offset: int
    header_name: str
    holds: list[Hold]
    entries: list[tuple[int, int]]
    """(due_ms, offset) of the waiting records, unordered."""


def encode(snapshot: DelayedSnapshot) -> bytes:
    """Return the content of the file."""
    name = snapshot.header_name.encode()
    content = bytearray(_HEAD.pack(_MAGIC, _VERSION, snapshot.covered_offset, len(name)))
    content += name
    for pairs in (snapshot.holds, snapshot.entries):
        flat = list(chain.from_iterable(pairs))
        content += struct.pack(f">i{len(flat)}q", len(pairs), *flat)
    return bytes(content + _CRC.pack(crc32c(content)))


def decode(content: bytes, path: str) -> DelayedSnapshot:
    """Return the decoded file. Raises CorruptDelayedSnapshot, IncompatibleFormat; `path` is for the messages."""
    covered_offset, name_bytes = _head(content, path)
    try:
        position = _HEAD.size + name_bytes
        name = content[_HEAD.size : position].decode()
        holds, position = _pairs(content, position)
        entries, _ = _pairs(content, position)
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptDelayedSnapshot(f"{path} is damaged: {error}") from error
    return DelayedSnapshot(covered_offset, name, [Hold(*pair) for pair in holds], entries)


def check_delayed_snapshot(content: bytes, path: str) -> None:
    """Check that this release reads the version of the file. A damaged file passes. Raises IncompatibleFormat."""
    with contextlib.suppress(CorruptDelayedSnapshot):
        _head(content, path)


def _head(content: bytes, path: str) -> tuple[int, int]:
    if len(content) < _HEAD.size + _CRC.size or content[:4] != _MAGIC:
        raise CorruptDelayedSnapshot(f"{path} is cut short.")
    if _CRC.unpack_from(content, len(content) - _CRC.size)[0] != crc32c(content[: -_CRC.size]):
        raise CorruptDelayedSnapshot(f"{path} is damaged: its CRC-32C does not fit.")
    _, version, covered_offset, name_bytes = _HEAD.unpack_from(content)
    if version > _VERSION:
        raise IncompatibleFormat(f"{path} has version {version}; this program reads version {_VERSION}.")
    return covered_offset, name_bytes


def _pairs(content: bytes, position: int) -> tuple[list[tuple[int, int]], int]:
    (count,) = _COUNT.unpack_from(content, position)
    position += _COUNT.size
    end = position + max(0, count) * _PAIR.size
    return [_PAIR.unpack_from(content, start) for start in range(position, end, _PAIR.size)], end
