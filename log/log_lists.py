"""Lists the open partition logs of one process by the background work that each log needs."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, Generic, TypeVar

import msgspec

L = TypeVar("L")

_LEAST_ENTRIES: Final = 64
"""A heap of so few entries is never made anew."""


class RetentionTimes(Generic[L]):
    """When retention has to look at each log: at its next pass, or not before a time.

    So a pass costs nothing for a log in which nothing becomes due. A log that has changed is looked at again.
    """

    __slots__ = ("_entries", "_heap", "_next", "_numbers")

    def __init__(self) -> None:
        self._next: dict[L, None] = {}
        """The logs to look at in the next pass."""
        self._entries: dict[L, tuple[int, int, L]] = {}
        """The entries of the heap that count: those of quiet logs."""
        self._heap: list[tuple[int, int, L]] = []
        """(until_ms, number, log). The numbers order equal times."""
        self._numbers = count()

    def changed(self, log: L) -> None:
        """Look at the log in the next pass, and in all later ones until it is quiet."""
        self._next[log] = None

    def quiet(self, log: L, until_ms: int) -> None:
        """Do not look at the log before a time (ms), unless it changes."""
        self._next.pop(log, None)
        entry = self._entries[log] = until_ms, next(self._numbers), log
        heappush(self._heap, entry)
        self._drop_old_entries()

    def forget(self, log: L) -> None:
        """Never look at the log again, unless it changes: it is closed."""
        self._next.pop(log, None)
        self._entries.pop(log, None)
        self._drop_old_entries()

    def due(self, now_ms: int) -> list[L]:
        """Return the logs to look at in the pass of this time (ms)."""
        heap, entries = self._heap, self._entries
        while heap and heap[0][0] <= now_ms:
            entry = heappop(heap)
            log = entry[2]
            if entries.get(log) is entry:
                del entries[log]
                self._next[log] = None
        return list(self._next)

    def _drop_old_entries(self) -> None:
        """Make the heap anew where most of its entries count no more."""
        if len(self._heap) > 2 * len(self._entries) + _LEAST_ENTRIES:
            self._heap = list(self._entries.values())
            heapify(self._heap)


class LogLists(msgspec.Struct, Generic[L]):
    """Logs in the order in which they were added. A log adds and removes itself."""

    delaying: dict[L, None] = msgspec.field(default_factory=dict)
    """The logs whose topics delay records."""
    deduplicating: dict[L, None] = msgspec.field(default_factory=dict)
    """The logs whose topics deduplicate by producer names."""
    due_for_snapshot: dict[L, None] = msgspec.field(default_factory=dict)
    """The deduplicating logs that need a further replay, or whose changed names need a snapshot."""
    waiting_for_other_partitions: dict[L, None] = msgspec.field(default_factory=dict)
    """The deduplicating logs that refuse new names until their topic's other partitions are replayed."""
    recovering: dict[L, None] = msgspec.field(default_factory=dict)
    """The offline logs that a thread recovers. Until that ends, their names are taken."""
    short_of_room: dict[L, None] = msgspec.field(default_factory=dict)
    """The logs that are offline only because disk space, memory or file handles ran out."""
    retention: RetentionTimes[L] = msgspec.field(default_factory=RetentionTimes)
    """When retention has to look at each log."""
