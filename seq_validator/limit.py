"""The bound on how many producers are remembered, per partition and over all partitions.

All tables of a gateway share one `ProducerLimit`. It keeps every entry of every table in one ordered dictionary, the
longest idle first; an append moves its entry to the end. So both finding the longest idle producer of the gateway and
keeping the order cost O(1), independent of the number of tables. Restored entries arrive table by table; they are
sorted by their activity once, when the order is next needed.

A forgotten producer that is still alive could have a retry accepted a second time. So nobody active within
`min_idle_ms` is ever forgotten for another one: the newcomer is refused instead, with a retriable error. Nor is
a producer with an open transaction: its marker would find nothing to end, and readers would wait for ever.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seq_validator.entry import ProducerEntry
    from seq_validator.table import ProducerTable


class ProducerLimit:
    """A budget of remembered producers. The three bounds may be changed while it is in use.

    `max_per_partition` and `max_in_all` are counts of producers; `min_idle_ms` is how long a producer must have been
    silent, in milliseconds, before it may be forgotten for a new one. `evictions` and `refusals` count what the
    limit has done since it was made.
    """

    __slots__ = (
        "_order",
        "_sorted",
        "evictions",
        "max_in_all",
        "max_per_partition",
        "min_idle_ms",
        "refusals",
        "touch",
    )

    def __init__(
        self, *, max_per_partition: int = sys.maxsize, max_in_all: int = sys.maxsize, min_idle_ms: int = 0
    ) -> None:
        """Begin with no producers. Raises ValueError when a maximum is below 1 or the idle time below 0."""
        if max_per_partition < 1 or max_in_all < 1:
            message = f"a producer limit is at least 1, not {min(max_per_partition, max_in_all)}"
            raise ValueError(message)
        if min_idle_ms < 0:
            message = f"min_idle_ms is at least 0, not {min_idle_ms}"
            raise ValueError(message)
        self.max_per_partition = max_per_partition
        self.max_in_all = max_in_all
        self.min_idle_ms = min_idle_ms
        self.evictions = 0
        self.refusals = 0
        self._order: OrderedDict[ProducerEntry, ProducerTable] = OrderedDict()
        self._sorted = True
        # Bound once: the table calls it for every appended batch.
        self.touch = self._order.move_to_end

    def __len__(self) -> int:
        """Return the number of producers remembered in all tables."""
        return len(self._order)

    def enter(self, table: ProducerTable, entry: ProducerEntry) -> None:
        """Count an entry that `table` begins to remember now."""
        self._order[entry] = table

    def enter_restored(self, table: ProducerTable, entry: ProducerEntry) -> None:
        """Count an entry whose last activity lies in the past."""
        self._order[entry] = table
        self._sorted = False

    def leave(self, entry: ProducerEntry) -> None:
        """Stop counting an entry that its table forgot."""
        del self._order[entry]

    def refuses(self, table: ProducerTable, now_ms: int) -> bool:
        """Tell whether there is no room in `table` for one more producer, and none can be made; counts refusals."""
        if len(table) >= self.max_per_partition:
            longest_idle = table.longest_idle()
        elif len(self._order) >= self.max_in_all:
            longest_idle = self._longest_idle()
        else:
            return False
        if longest_idle is not None and self._is_idle(longest_idle, now_ms):
            return False
        self.refusals += 1
        return True

    def make_room(self, table: ProducerTable, now_ms: int) -> None:
        """Forget the longest idle producers until one more fits into `table`, or until none of them is idle."""
        while len(table) >= self.max_per_partition:
            longest_idle = table.longest_idle()
            if longest_idle is None or not self._is_idle(longest_idle, now_ms):
                break
            self._evict(table, longest_idle)
        while len(self._order) >= self.max_in_all:
            longest_idle = self._longest_idle()
            if longest_idle is None or not self._is_idle(longest_idle, now_ms):
                break
            self._evict(self._order[longest_idle], longest_idle)

    def _evict(self, table: ProducerTable, entry: ProducerEntry) -> None:
        table.forget(entry)
        self.evictions += 1

    def _is_idle(self, entry: ProducerEntry, now_ms: int) -> bool:
        return now_ms - entry.last_active_ms >= self.min_idle_ms

    def _longest_idle(self) -> ProducerEntry | None:
        if not self._sorted:
            order = sorted(self._order.items(), key=lambda item: item[0].last_active_ms)
            self._order.clear()
            self._order.update(order)
            self._sorted = True
        return next((entry for entry in self._order if not entry.has_open_transaction), None)
