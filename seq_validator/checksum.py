"""CRC-32C (Castagnoli), as Kafka has it in batches: the compiled function of the package crc32c.

The package itself imports a command line, archives and mail, which takes a tenth as long as a whole start of
a gateway. So its compiled module is loaded alone.
"""

from __future__ import annotations

import struct
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from crc32c import crc32c

_COMPILED: Final = "crc32c._crc32c"


def _load_alone() -> object:
    """Return the compiled module; the whole package where it has no such module."""
    package = PathFinder.find_spec("crc32c")
    found = PathFinder.find_spec(_COMPILED, None if package is None else package.submodule_search_locations)
    if found is None or found.loader is None:
        return import_module("crc32c")
    module = sys.modules.get(_COMPILED)
    if module is None:
        module = sys.modules[_COMPILED] = module_from_spec(found)
        found.loader.exec_module(module)
    return module


if not TYPE_CHECKING:
    crc32c = _load_alone().crc32c

__all__ = ["crc32c"]


_PREFIX: Final = struct.Struct(">4sh")
_HEAD: Final = struct.Struct(">4shqi")
HEAD_BYTES: Final = _HEAD.size
_CRC: Final = struct.Struct(">I")
CRC_BYTES: Final = _CRC.size


class Envelope(NamedTuple):
    """One kind of snapshot of this package. It begins with its magic, version (int16), the end offset of the
    log (int64) and the number of its entries (int32), and ends with the CRC-32C (uint32) of all bytes before.
    `what` names it in errors, `corrupt` is what damage raises.
    """

    magic: bytes
    first_version: int
    version: int
    what: str
    corrupt: type[Exception]

    def head(self, log_end_offset: int, entries: int) -> bytes:
        return _HEAD.pack(self.magic, self.version, log_end_offset, entries)

    def seal(self, body: bytes) -> bytes:
        """Return `body`, which begins with magic and version, with its checksum appended."""
        return body + _CRC.pack(crc32c(body))

    def check(self, data: bytes) -> tuple[int, int, int]:
        """Return version, log end offset and number of entries. Raises `corrupt` for bytes that are cut,
        damaged, of another kind, or of a version not read here.
        """
        if len(data) < HEAD_BYTES + CRC_BYTES:
            raise self.corrupt(
                f"The {self.what} is cut short: it has {len(data)} bytes, "
                f"and the shortest has {HEAD_BYTES + CRC_BYTES}."
            )
        magic, version, log_end_offset, entries = _HEAD.unpack_from(data)
        if magic != self.magic:
            raise self.corrupt(f"This is no {self.what}: it begins with {magic!r}, not {self.magic!r}.")
        # Another version may use another checksum. So the version is checked first.
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
        if entries < 0:
            raise self.miscounted()
        return version, log_end_offset, entries

    def newer_version(self, data: bytes) -> int | None:
        """Return the version of a later release's snapshot; None for any other or damaged one. Every version
        begins with magic and version number, and ends with the CRC-32C of all before.
        """
        if len(data) < _PREFIX.size + CRC_BYTES:
            return None
        magic, version = _PREFIX.unpack_from(data)
        expected, actual = _checksums(data)
        return int(version) if magic == self.magic and version > self.version and actual == expected else None

    def miscounted(self) -> Exception:
        """Return the error for a snapshot whose counts do not match its length."""
        return self.corrupt(f"The {self.what} is damaged: its counts do not match its length.")


def _checksums(data: bytes) -> tuple[int, int]:
    """Return the checksum that the snapshot states, and the checksum of its bytes."""
    (expected,) = _CRC.unpack_from(data, len(data) - CRC_BYTES)
    return int(expected), crc32c(memoryview(data)[:-CRC_BYTES])
