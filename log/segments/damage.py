"""Damaged ranges: parts of a segment file that were durable once and are no sound batches any more.

A damaged range is never cut off, and its offsets are never given to other records. A replay skips the range
to the next sound batch. A Fetch of an offset in the range returns the damaged bytes if a client can recognize
the damage (`is_framed`), otherwise the error CORRUPT_MESSAGE.

Persists the known damaged ranges of all partitions of a data directory in one file.

`damaged-batches`: JSON with `version`, `ranges` and `cut` per partition directory, and `checksum`, the CRC-32
of `ranges`. A start after a clean stop reads no segments, so only this file tells it about damage.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from seqgate.log.errors import IncompatibleFormat
from seqgate.log.files.storage import DurableFiles, Storage

_logger = logging.getLogger(__name__)


NO_TRANSACTION: Final = -1


class DamagedRange(NamedTuple):
    """Consecutive damaged bytes of one segment file, and the offsets that they must have held."""

    segment_base_offset: int
    position: int
    size_bytes: int
    """The bytes up to the next sound batch or the file's end; 0 where bytes are missing at the file's end."""
    first_offset: int
    end_offset: int
    """The offset after the last damaged offset."""
    is_framed: bool
    """Whether size and offsets are sound, so that a client that checks the CRC stops here alone."""
    reason: str
    is_state_unknown: bool = False
    """Whether a replay of producers passed this range, so that its batches' producers are unknown."""
    undecided_from: int = NO_TRANSACTION
    """The first offset of the earliest transaction whose marker may be in this range; -1 without one."""

    @property
    def offsets(self) -> int:
        """The number of offsets in the range, which is the largest possible number of lost records."""
        return self.end_offset - self.first_offset

    def __str__(self) -> str:
        """Return the offsets, the bytes' position in their segment, and the reason as text."""
        return (
            f"offsets {self.first_offset} to {self.end_offset - 1}, {self.size_bytes} bytes at position "
            f"{self.position}: {self.reason}"
        )


class CutBytes(NamedTuple):
    """Bytes, sound batches among them, that a start cut off a log's end, and the file that keeps them."""

    file_name: str
    """The file in the partition's directory."""
    size_bytes: int
    records: int
    """The records of the sound batches."""
    first_offset: int
    last_offset: int


def range_holding(ranges: Iterable[DamagedRange], offset: int) -> DamagedRange | None:
    """Return the damaged range that covers the offset; None without one."""
    return next((found for found in ranges if found.first_offset <= offset < found.end_offset), None)


def range_at(ranges: Iterable[DamagedRange], position: int) -> DamagedRange | None:
    """Return the damaged range that holds the byte at `position`; None without one."""
    return next(
        (found for found in ranges if found.position <= position < found.position + found.size_bytes), None
    )


def next_range(ranges: Iterable[DamagedRange], position: int) -> DamagedRange | None:
    """Return the first damaged range that begins after `position`; None without one. `ranges` ascend."""
    return next((found for found in ranges if found.position > position), None)


DAMAGED_BATCHES: Final = "damaged-batches"
DAMAGED_BATCHES_VERSION: Final = 1


class _Version(msgspec.Struct):
    version: int


class _Content(msgspec.Struct):
    version: int
    ranges: dict[str, list[DamagedRange]]
    checksum: int
    cut: dict[str, list[CutBytes]] = {}


class DamageRegister:
    """The damaged ranges by partition directory, before `load` in memory only. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Held while the ranges change and the file is written."""
        self._ranges: dict[str, tuple[DamagedRange, ...]] = {}
        self._cut: dict[str, tuple[CutBytes, ...]] = {}
        self._cut_of_other: Mapping[str, tuple[CutBytes, ...]] = {}
        self._storage: Storage | None = None
        self._durable: DurableFiles | None = None
        self._path = ""
        self.is_lost = False
        """Whether the file itself was damaged. Then every log must be checked from its start."""

    def load(
        self,
        storage: Storage,
        durable: DurableFiles,
        root: str,
        files: str | None = None,
        tells_of: str | None = None,
    ) -> None:
        """Read the file of `root`, and write changes to it from now on. Raises OSError, IncompatibleFormat.

        `files` is the directory of the file, by default `root`. The cut bytes in the file of `tells_of` are
        another process's, and are only listed.
        """
        if tells_of is not None:
            other = DamageRegister()
            other.load(storage, durable, root, tells_of)
            self._cut_of_other = other._cut
        self._storage, self._durable = storage, durable
        self._path = f"{root if files is None else files}/{DAMAGED_BATCHES}"
        if not storage.exists(self._path):
            return
        content = storage.read_file(self._path)
        try:
            version = msgspec.json.decode(content, type=_Version).version
            if version > DAMAGED_BATCHES_VERSION:
                raise IncompatibleFormat(
                    f"{self._path} has version {version}; this program reads version "
                    f"{DAMAGED_BATCHES_VERSION}."
                )
            decoded = msgspec.json.decode(content, type=_Content)
            if decoded.checksum != crc32(msgspec.json.encode(decoded.ranges)):
                raise ValueError("its checksum is wrong")  # noqa: TRY301 - handled as other damage
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
            _logger.error(  # noqa: TRY400
                "%s can't be read, every log is checked from its start: %s", self._path, error
            )
            self.is_lost = True
            return
        self._ranges = {f"{root}/{name}": tuple(ranges) for name, ranges in decoded.ranges.items()}
        self._cut = {f"{root}/{name}": tuple(cut) for name, cut in decoded.cut.items()}

    def fill(
        self, ranges: Mapping[str, Sequence[DamagedRange]], cut: Mapping[str, Sequence[CutBytes]]
    ) -> None:
        """Replace everything, and make the file durable. Raises OSError."""
        with self._lock:
            self._ranges = {directory: tuple(found) for directory, found in ranges.items()}
            self._cut = {directory: tuple(found) for directory, found in cut.items()}
            self._write(is_durable=True)

    def of(self, directory: str) -> tuple[DamagedRange, ...]:
        """Return the damaged ranges of a partition, in ascending order."""
        return self._ranges.get(directory, ())

    def all(self) -> Mapping[str, Sequence[DamagedRange]]:
        return self._ranges

    def cut(self) -> Mapping[str, Sequence[CutBytes]]:
        """Return all files of cut bytes by partition directory; a person may have deleted some."""
        return {**self._cut_of_other, **self._cut}

    def note_cut(self, directory: str, found: CutBytes) -> None:
        """Add a file of cut bytes of a partition, and make the file of all damage durable. Raises OSError."""
        with self._lock:
            self._cut[directory] = (*self._cut.get(directory, ()), found)
            self._write(is_durable=True)

    def note(self, directory: str, ranges: Sequence[DamagedRange], *, is_durable: bool) -> None:
        """Replace a partition's ranges and write the file, with a flush if `is_durable`. Raises OSError."""
        if tuple(ranges) == self.of(directory):
            return
        with self._lock:
            if ranges:
                self._ranges[directory] = tuple(ranges)
            else:
                self._ranges.pop(directory, None)
            self._write(is_durable=is_durable)

    def forget(self, directory: str) -> None:
        """Drop the damage of a partition that is deleted. Raises OSError."""
        if directory not in self._ranges and directory not in self._cut:
            return
        with self._lock:
            self._ranges.pop(directory, None)
            self._cut.pop(directory, None)
            self._write(is_durable=False)

    def found_again(self) -> None:
        """Rewrite a damaged file, after every log was checked. Raises OSError."""
        if self.is_lost:
            self._write(is_durable=True)
            self.is_lost = False

    def _write(self, *, is_durable: bool) -> None:
        if self._storage is None or self._durable is None:
            return
        ranges = {path.rpartition("/")[2]: list(found) for path, found in sorted(self._ranges.items())}
        cut = {path.rpartition("/")[2]: list(found) for path, found in sorted(self._cut.items())}
        content = msgspec.json.encode(
            _Content(DAMAGED_BATCHES_VERSION, ranges, crc32(msgspec.json.encode(ranges)), cut)
        )
        if is_durable:
            self._durable.replace(self._path, content)
        else:
            self._storage.replace(self._path, content)
