"""The limit on the number of remembered producers, per partition and over all partitions.

All tables of a gateway share one `ProducerLimit`. It keeps every entry of every table in one ordered
dictionary, the longest idle first; an append moves its entry to the end. So finding the longest idle producer
of the gateway and keeping the order both cost O(1), whatever the number of tables. Restored entries arrive
table by table. The limit sorts all entries by activity once, when it next needs the order.

A retry of a live producer that was evicted could be accepted a second time. So the limit never evicts a
producer that was active within `min_idle_ms`: the new producer is refused instead, with a retriable error.
The limit never evicts a producer with an open transaction either. Otherwise its marker would find nothing to
end, and readers would wait for ever.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from seqgate.seq_validator.entry import ProducerEntry


class ProducerTable(Protocol):
    """What the limit needs of a table of producers."""

    def __len__(self) -> int:
        """Return the number of producers that the table remembers."""

    def longest_idle(self) -> ProducerEntry | None:
        """Return the producer of the table that has been idle longest, without those with an open
        transaction.
        """

    def forget(self, entry: ProducerEntry) -> None:
        """Drop a producer from the table; the limit does not count the producer any more."""


class ProducerLimit:
    """A budget of remembered producers. The three bounds may be changed while the limit is in use.

    `max_per_partition` and `max_in_all` are counts of producers. `min_idle_ms` is the time in milliseconds
    for which a producer must have been idle before it may be evicted for a new one. `evictions`,
    `expirations` and `refusals` count since the limit was made.
    """

    __slots__ = (
        "_sorted",
        "evictions",
        "expirations",
        "max_in_all",
        "max_per_partition",
        "min_idle_ms",
        "producers",
        "refusals",
        "touch",
    )

    def __init__(
        self, *, max_per_partition: int = sys.maxsize, max_in_all: int = sys.maxsize, min_idle_ms: int = 0
    ) -> None:
        """Begin without producers. Raises ValueError when a maximum is below 1 or the idle time below 0."""
        if max_per_partition < 1:
            raise ValueError(f"max_per_partition must be at least 1, not {max_per_partition}")
        if max_in_all < 1:
            raise ValueError(f"max_in_all must be at least 1, not {max_in_all}")
        if min_idle_ms < 0:
            raise ValueError(f"min_idle_ms must be at least 0, not {min_idle_ms}")
        self.max_per_partition = max_per_partition
        self.max_in_all = max_in_all
        self.min_idle_ms = min_idle_ms
        self.evictions = self.expirations = 0
        self.refusals = 0
        self.producers: OrderedDict[ProducerEntry, ProducerTable] = OrderedDict()
        """The remembered producers, the longest idle first. The owner may rebuild the table in place."""
        self._sorted = True
        # The bound method is kept, because the table calls it for every appended batch.
        self.touch = self.producers.move_to_end

    def __len__(self) -> int:
        """Return the number of remembered producers, over all tables."""
        return len(self.producers)

    def enter(self, table: ProducerTable, entry: ProducerEntry) -> None:
        """Count a new entry of `table` that is active now."""
        self.producers[entry] = table

    def enter_restored(self, table: ProducerTable, entry: ProducerEntry) -> None:
        """Count a new entry of `table` that was last active in the past."""
        self.producers[entry] = table
        self._sorted = False

    def leave(self, entry: ProducerEntry) -> None:
        """Stop counting an entry that its table forgot."""
        del self.producers[entry]

    def refuses(self, table: ProducerTable, now_ms: int) -> bool:
        """Return True, and count a refusal, when `table` has no room for one more producer, and no producer
        can be evicted.
        """
        if len(table) >= self.max_per_partition:
            longest_idle = table.longest_idle()
        elif len(self.producers) >= self.max_in_all:
            longest_idle = self._longest_idle()
        else:
            return False
        if longest_idle is not None and self._is_idle(longest_idle, now_ms):
            return False
        self.refusals += 1
        return True

    def make_room(self, table: ProducerTable, now_ms: int) -> None:
        """Evict the longest idle producers until `table` has room for one more, or until no producer is idle."""
        while len(table) >= self.max_per_partition:
            longest_idle = table.longest_idle()
            if longest_idle is None or not self._is_idle(longest_idle, now_ms):
                break
            self._evict(table, longest_idle)
        while len(self.producers) >= self.max_in_all:
            longest_idle = self._longest_idle()
            if longest_idle is None or not self._is_idle(longest_idle, now_ms):
                break
            self._evict(self.producers[longest_idle], longest_idle)

    def _evict(self, table: ProducerTable, entry: ProducerEntry) -> None:
        table.forget(entry)
        self.evictions += 1

    def _is_idle(self, entry: ProducerEntry, now_ms: int) -> bool:
        return now_ms - entry.last_active_ms >= self.min_idle_ms

    def _longest_idle(self) -> ProducerEntry | None:
        if not self._sorted:
            order = sorted(self.producers.items(), key=lambda item: item[0].last_active_ms)
            self.producers.clear()
            self.producers.update(order)
            self._sorted = True
        return next((entry for entry in self.producers if not entry.has_open_transaction), None)
