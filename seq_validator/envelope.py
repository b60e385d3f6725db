"""What the snapshots of this room have in common: magic and version int16 in front, the CRC-32C of all before, uint32, at the end."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import crc32c

_PREFIX: Final = struct.Struct(">4sh")
_CRC: Final = struct.Struct(">I")
CRC_BYTES: Final = _CRC.size


class Envelope(NamedTuple):
    """One kind of snapshot. `what` is what sentences call it, `corrupt` the error of bytes that are none."""

    magic: bytes
    first_version: int
    version: int
    head_bytes: int
    """How long magic, version and the fixed fields behind them are."""
    what: str
    corrupt: type[Exception]

    def seal(self, body: bytes) -> bytes:
        """The bytes with their checksum; `body` begins with magic and version."""
        return body + _CRC.pack(crc32c.crc32c(body))

    def check(self, data: bytes) -> None:
        """Raises `corrupt` when the bytes are cut, damaged, of something else or of a version that is not read."""
        if len(data) < self.head_bytes + CRC_BYTES:
            raise self.corrupt(f"The {self.what} is cut short: {len(data)} bytes.")
        magic, version = _PREFIX.unpack_from(data)
        if magic != self.magic:
            raise self.corrupt(f"This is no {self.what}: it begins with {magic!r}.")
        # Another version may protect itself otherwise, so it is named before its checksum is tried.
        if not self.first_version <= version <= self.version:
            raise self.corrupt(
                f"The {self.what} has version {version}; "
                f"this program reads versions {self.first_version} to {self.version}."
            )
        expected, actual = _checksums(data)
        if actual != expected:
            raise self.corrupt(
                f"The {self.what} is damaged: its CRC-32C is {actual:#010x}, not {expected:#010x}."
            )

    def newer_version(self, data: bytes) -> int | None:
        """The version of a snapshot that a later release wrote; None for any other, and for one that is damaged.

        Every version begins with the magic and its number, and ends with the CRC-32C of all before.
        """
        if len(data) < _PREFIX.size + CRC_BYTES:
            return None
        magic, version = _PREFIX.unpack_from(data)
        expected, actual = _checksums(data)
        return int(version) if magic == self.magic and version > self.version and actual == expected else None

    def miscounted(self) -> Exception:
        """The error of counts that do not fit the length."""
        return self.corrupt(f"The {self.what} is damaged: its counts do not fit its length.")


def _checksums(data: bytes) -> tuple[int, int]:
    """(the one that is told, the one that is right)."""
    (expected,) = _CRC.unpack_from(data, len(data) - CRC_BYTES)
    return int(expected), crc32c.crc32c(memoryview(data)[:-CRC_BYTES])
