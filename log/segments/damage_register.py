"""The damaged ranges that are known of all partitions of a data directory, kept in one file of it.

`damaged-batches`: JSON with `version`, `ranges` per partition directory, and `checksum`, the CRC-32 of `ranges`. It says what a start
can't see for itself: a clean stop vouches for files that nobody reads again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final
from zlib import crc32

import msgspec

from log.errors import IncompatibleFormat
from log.files.file_names import TEMPORARY_SUFFIX
from log.segments.damage import DamagedRange

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from log.files.storage import Storage

_logger = logging.getLogger(__name__)

DAMAGED_BATCHES: Final = "damaged-batches"
DAMAGED_BATCHES_VERSION: Final = 1


class _Version(msgspec.Struct):
    version: int


class _Content(msgspec.Struct):
    version: int
    ranges: dict[str, list[DamagedRange]]
    checksum: int

    def is_whole(self) -> bool:
        return self.checksum == crc32(msgspec.json.encode(self.ranges))


class DamageRegister:
    """Damaged ranges by partition directory. Without a `root` they are in memory only."""

    def __init__(self) -> None:
        """Know of no damage."""
        self._ranges: dict[str, tuple[DamagedRange, ...]] = {}
        self._storage: Storage | None = None
        self._path = ""
        self.is_lost = False
        """Whether the file was damaged itself, so that every log must be checked whole."""

    def load(self, storage: Storage, root: str) -> None:
        """Read the file of the data directory `root`, and write there from now on. Raises OSError, IncompatibleFormat."""
        self._storage, self._path = storage, f"{root}/{DAMAGED_BATCHES}"
        if not storage.exists(self._path):
            return
        content = storage.read_file(self._path)
        try:
            version = msgspec.json.decode(content, type=_Version).version
            if version > DAMAGED_BATCHES_VERSION:
                raise IncompatibleFormat(
                    f"{self._path} has version {version}; this program reads version {DAMAGED_BATCHES_VERSION}."
                )
            decoded = msgspec.json.decode(content, type=_Content)
            if not decoded.is_whole():
                raise ValueError("its checksum is wrong")  # noqa: TRY301 - as any other damage
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
            _logger.error("%s can't be read, every log is checked whole: %s", self._path, error)  # noqa: TRY400
            self.is_lost = True
            return
        self._ranges = {f"{root}/{name}": tuple(ranges) for name, ranges in decoded.ranges.items()}

    def of(self, directory: str) -> tuple[DamagedRange, ...]:
        """What is damaged of a partition, in ascending order."""
        return self._ranges.get(directory, ())

    def all(self) -> Mapping[str, Sequence[DamagedRange]]:
        """What is damaged, by partition directory."""
        return self._ranges

    def note(self, directory: str, ranges: Sequence[DamagedRange], *, is_durable: bool) -> None:
        """Know these ranges of a partition and no others; the file follows, flushed if `is_durable`. Raises OSError."""
        if tuple(ranges) == self.of(directory):
            return
        if ranges:
            self._ranges[directory] = tuple(ranges)
        else:
            del self._ranges[directory]
        self._write(is_durable=is_durable)

    def forget(self, directory: str) -> None:
        """Drop what is known of a partition that goes. Raises OSError."""
        self.note(directory, (), is_durable=False)

    def found_again(self) -> None:
        """Every log was checked: write anew a file that was damaged itself. Raises OSError."""
        if self.is_lost:
            self._write(is_durable=True)
            self.is_lost = False

    def _write(self, *, is_durable: bool) -> None:
        if self._storage is None:
            return
        ranges = {path.rpartition("/")[2]: list(found) for path, found in sorted(self._ranges.items())}
        content = msgspec.json.encode(
            _Content(DAMAGED_BATCHES_VERSION, ranges, crc32(msgspec.json.encode(ranges)))
        )
        if is_durable:
            self._storage.replace_file(self._path, content)
        else:
            self._storage.write_file(self._path + TEMPORARY_SUFFIX, content)
            self._storage.rename(self._path + TEMPORARY_SUFFIX, self._path)
