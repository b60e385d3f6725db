"""Damaged ranges: parts of a segment file that were durable once and are no sound batches any more.

A damaged range is never cut off and its offsets are never given to other records. Readers step over it to the sound batch
behind it; who asks for one of its offsets gets the damaged bytes where a client can tell that they are damaged (`is_framed`),
or the error CORRUPT_MESSAGE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_TRANSACTION: Final = -1


class DamagedRange(NamedTuple):
    """A run of damaged bytes of one segment file, and the offsets that must have been in it."""

    segment_base_offset: int
    position: int
    """The first damaged byte of the file."""
    size_bytes: int
    """Up to the next sound batch or the end of the file; 0 where bytes are missing at the end of the file."""
    first_offset: int
    end_offset: int
    """The offset after the last damaged one."""
    is_framed: bool
    """Whether the header still tells size and offsets, so that a client that checks the CRC stops at this batch alone."""
    reason: str
    is_state_unknown: bool = False
    """Whether producers had to be read from the log past this range, so that what it held of them is not known."""
    undecided_from: int = NO_TRANSACTION
    """The first offset of the earliest transaction that may have ended in this range; -1 without one."""

    @property
    def offsets(self) -> int:
        """How many offsets the range covers: at most so many records were in it."""
        return self.end_offset - self.first_offset

    def __str__(self) -> str:
        """Tell the offsets, where the bytes are in their segment, and the reason."""
        return (
            f"offsets {self.first_offset} to {self.end_offset - 1}, {self.size_bytes} bytes at position "
            f"{self.position}: {self.reason}"
        )


def range_holding(ranges: Iterable[DamagedRange], offset: int) -> DamagedRange | None:
    """The damaged range that covers the offset; None when none does."""
    return next((found for found in ranges if found.first_offset <= offset < found.end_offset), None)


def range_at(ranges: Iterable[DamagedRange], position: int) -> DamagedRange | None:
    """The damaged range in which the byte at `position` lies; None when none does."""
    return next(
        (found for found in ranges if found.position <= position < found.position + found.size_bytes), None
    )


def next_range(ranges: Iterable[DamagedRange], position: int) -> DamagedRange | None:
    """The first damaged range that begins behind `position`; None when none does. `ranges` ascend."""
    return next((found for found in ranges if found.position > position), None)
