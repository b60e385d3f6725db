"""Delayed records as a share partition sees them, and the number of offsets that may be handed out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from gateway.coordinator.share.ranges import Run


class Delays(Protocol):
    """The offsets of records that are not due yet; all other offsets may be handed out."""

    def first_due(self, offset: int) -> int:
        """Return the first offset from `offset` on that is due."""
        ...

    def released_since(self, mark: int) -> tuple[int, int]:
        """Return (lowest offset, mark): the lowest offset that has come due since `mark`, and the mark for the next call.

        The first call passes mark 0. The offset may be too low, never too high.
        """
        ...

    def waiting(self, first_offset: int, last_offset: int) -> list[tuple[int, int]]:
        """Return the ranges of offsets between the two that are not due, ascending and inclusive."""
        ...


def due_parts(delays: Delays | None, first_offset: int, last_offset: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of due offsets (inclusive) between two offsets."""
    position = first_offset
    for first, last in () if delays is None else delays.waiting(first_offset, last_offset):
        if position < first:
            yield position, first - 1
        position = last + 1
    if position <= last_offset:
        yield position, last_offset


class Room:
    """The number of offsets that may still be handed out for the first time.

    Without delays the limit is the distance from the first offset that is not done to the last one handed out. With
    delays that distance says little, so the limit is the number of offsets handed out and not done.
    """

    def __init__(
        self, max_record_locks: int, delays: Delays | None, read_from: int, *, given_out: int, is_full: bool
    ) -> None:
        """Start with `given_out` offsets; a share partition that `is_full` hands out nothing beyond its end."""
        self.delays = delays
        self.read_from = read_from
        """The log was read from this offset on; earlier offsets were not due when they were passed over."""
        self._locks = max_record_locks
        self._left = max(0, max_record_locks - given_out)
        self._is_full = is_full

    def for_known(self, run: Run) -> int:
        """Return how many offsets of an available run may be handed out."""
        if self.delays is None or run.delivery_count:
            return len(run)
        return min(len(run), self._left)

    def for_new(self, distance: int) -> int:
        """Return how many offsets members may acquire for the first time; the partition spans `distance` offsets."""
        if self.delays is None:
            return self._locks - distance
        return 0 if self._is_full else self._left

    def take(self, run: Run) -> None:
        """Count a run of offsets that a member acquires."""
        if not run.delivery_count:
            self._left -= len(run)
