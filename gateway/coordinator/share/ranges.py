"""Runs of neighbouring offsets in the same state of delivery."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from gateway.coordinator.deadlines import NEVER


class DeliveryState(enum.IntEnum):
    """The states of delivery; the numbers are those that Kafka stores."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4
    """Rejected, given up after too many deliveries, or missing in the log."""


DONE: Final = frozenset((DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED))


class StateBatch(NamedTuple):
    """A run as the log stores it; `last_offset` is inclusive."""

    first_offset: int
    last_offset: int
    state: int
    delivery_count: int


@dataclass(slots=True)
class Run:
    """The offsets `first_offset` to `last_offset`, both inclusive, with one state; deadline in ms."""

    first_offset: int
    last_offset: int
    state: DeliveryState
    delivery_count: int = 0
    member_id: str = ""
    deadline_ms: int = NEVER

    def __len__(self) -> int:
        return self.last_offset - self.first_offset + 1

    def stored(self) -> StateBatch:
        """Return the run as the log stores it. An acquired run is stored as available, because after a crash
        no member has acquired it.
        """
        if self.state is DeliveryState.ACQUIRED:
            available = DeliveryState.AVAILABLE
            return StateBatch(self.first_offset, self.last_offset, available, self.delivery_count - 1)
        return StateBatch(self.first_offset, self.last_offset, self.state, self.delivery_count)

    def is_like(self, other: Run) -> bool:
        """Return whether two neighbouring runs can be joined."""
        return (
            self.state is other.state
            and self.delivery_count == other.delivery_count
            and self.member_id == other.member_id
            and self.deadline_ms == other.deadline_ms
        )


class RunList:
    """Runs in ascending order without gaps between them."""

    def __init__(self) -> None:
        self._runs: list[Run] = []

    def __iter__(self) -> Iterator[Run]:
        return iter(list(self._runs))

    def __len__(self) -> int:
        return len(self._runs)

    def starting_at(self, offset: int) -> Iterator[Run]:
        """Return the runs from the one that holds `offset` on."""
        return islice(self._runs, self._index(offset), None)

    @property
    def end_offset(self) -> int | None:
        """The offset after the last run; None without any run."""
        return self._runs[-1].last_offset + 1 if self._runs else None

    def _index(self, offset: int) -> int:
        """Return the index of the run that holds the offset: the number of runs that end before it."""
        low, high = 0, len(self._runs)
        while low < high:
            middle = (low + high) // 2
            if self._runs[middle].last_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def within(self, first_offset: int, last_offset: int) -> list[Run]:
        """Return the runs inside these offsets; runs that reach beyond either end are cut there first."""
        self._cut(first_offset)
        self._cut(last_offset + 1)
        return self._runs[self._index(first_offset) : self._index(last_offset + 1)]

    def overlapping(self, first_offset: int, last_offset: int) -> list[Run]:
        """Return the runs that hold any of these offsets."""
        start = self._index(first_offset)
        end = self._index(last_offset)
        return self._runs[start : end + 1] if start < len(self._runs) else []

    def _cut(self, offset: int) -> None:
        """Cut the run that holds `offset`, so that a run begins there."""
        index = self._index(offset)
        if index == len(self._runs) or self._runs[index].first_offset >= offset:
            return
        run = self._runs[index]
        rest = Run(offset, run.last_offset, run.state, run.delivery_count, run.member_id, run.deadline_ms)
        run.last_offset = offset - 1
        self._runs.insert(index + 1, rest)

    def append(self, run: Run) -> None:
        """Add a run after the others."""
        self._runs.append(run)

    def drop_before(self, offset: int) -> None:
        """Drop everything before `offset`."""
        self._cut(offset)
        del self._runs[: self._index(offset)]

    def pop_done(self) -> int | None:
        """Remove the leading runs that are done; return the offset after them, None when there are none."""
        count = 0
        while count < len(self._runs) and self._runs[count].state in DONE:
            count += 1
        if not count:
            return None
        offset = self._runs[count - 1].last_offset + 1
        del self._runs[:count]
        return offset

    def join_alike(self) -> None:
        """Join neighbours in the same state to one run."""
        joined: list[Run] = []
        for run in self._runs:
            if joined and joined[-1].is_like(run):
                joined[-1].last_offset = run.last_offset
            else:
                joined.append(run)
        self._runs = joined
