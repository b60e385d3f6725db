"""What of a partition is not due yet, as a share partition asks for it, and how much it may give out beside that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from gateway.coordinator.share.ranges import Run


class Delays(Protocol):
    """Offsets that wait until they are due; others may be given out."""

    def first_due(self, offset: int) -> int:
        """The first offset from `offset` on that does not wait."""
        ...

    def released_since(self, mark: int) -> tuple[int, int]:
        """(lowest offset, mark): from where on offsets wait no longer that waited at `mark`, and the mark to ask with next time.

        Begins with mark 0. It may be an offset too low, never one too high.
        """
        ...

    def waiting(self, first_offset: int, last_offset: int) -> list[tuple[int, int]]:
        """The ranges of offsets that wait between two, ascending, all inclusive."""
        ...


def due_parts(delays: Delays | None, first_offset: int, last_offset: int) -> Iterator[tuple[int, int]]:
    """The ranges between two offsets that do not wait, all inclusive."""
    position = first_offset
    for first, last in () if delays is None else delays.waiting(first_offset, last_offset):
        if position < first:
            yield position, first - 1
        position = last + 1
    if position <= last_offset:
        yield position, last_offset


class Room:
    """How many offsets may be given out for the first time.

    Without delays as many as fit between the first that is not done and the last that was given out. With delays that
    distance says little: then those count that were given out and are not done.
    """

    def __init__(
        self, max_record_locks: int, delays: Delays | None, read_from: int, *, given_out: int, is_full: bool
    ) -> None:
        """Begin with `given_out` offsets; a share partition that `is_full` may not give out beyond its end."""
        self.delays = delays
        self.read_from = read_from
        """The log was read from here on; what comes before it waited when it was passed over."""
        self._locks = max_record_locks
        self._left = max(0, max_record_locks - given_out)
        self._is_full = is_full

    def for_known(self, run: Run) -> int:
        """How many offsets of a run that is available may be given out."""
        if self.delays is None or run.delivery_count:
            return len(run)
        return min(len(run), self._left)

    def for_new(self, distance: int) -> int:
        """How many offsets that were never given out may be; the partition is `distance` offsets long."""
        if self.delays is None:
            return self._locks - distance
        return 0 if self._is_full else self._left

    def take(self, run: Run) -> None:
        """A run is given out."""
        if not run.delivery_count:
            self._left -= len(run)
