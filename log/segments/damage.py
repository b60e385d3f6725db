"""Damaged ranges: parts of a segment file that were durable once and are no sound batches any more.

A damaged range is never cut off, and its offsets are never given to other records. A replay skips the range to the next sound
batch. A Fetch of an offset in the range returns the damaged bytes if a client can recognize the damage (`is_framed`), otherwise
the error CORRUPT_MESSAGE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_TRANSACTION: Final = -1


class DamagedRange(NamedTuple):
    """Consecutive damaged bytes of one segment file, and the offsets that they must have held."""

    segment_base_offset: int
    position: int
    """The first damaged byte of the file."""
    size_bytes: int
    """The bytes up to the next sound batch or the end of the file; 0 where bytes are missing at the end of the file."""
    first_offset: int
    end_offset: int
    """The offset after the last damaged offset."""
    is_framed: bool
    """Whether the header's size and offsets are sound. Then a client that checks the CRC stops at this batch alone."""
    reason: str
    is_state_unknown: bool = False
    """Whether a replay of the producers had to pass this range. Then the producers of the lost batches are unknown."""
    undecided_from: int = NO_TRANSACTION
    """The first offset of the earliest transaction whose marker may be in this range; -1 without such a transaction."""

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
    """Bytes that a start cut off the end of a log, with sound batches among them, and the file that keeps them."""

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
