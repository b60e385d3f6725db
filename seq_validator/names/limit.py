"""The limits on the number of remembered names: per topic, and over all partitions.

A record of a live application whose name was evicted could be stored a second time. So the limits never evict
a name that was active within `min_idle_ms`, nor a name with an open transaction: the new name is refused
instead, with a retriable error.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


class NameTable(Protocol):
    """What the limits need of the table of names of one partition."""

    def is_pending(self, name: bytes) -> bool:
        """Return True when an open transaction has records of the name."""

    def forget(self, name: bytes) -> None:
        """Drop a name from this partition's table. Tell the topic's limit that this partition no longer
        remembers the name.
        """


class NameBudget:
    """The budget of names that all partitions share. The bounds may be changed while the budget is in use.

    `in_all` and `max_in_all` count a name once per partition. The other numbers count since the budget was
    made: `evictions`, `expired` names, `refusals` of new names, and `dropped_records`, which were
    acknowledged and not stored.
    """

    __slots__ = ("dropped_records", "evictions", "expired", "in_all", "max_in_all", "min_idle_ms", "refusals")

    def __init__(self, *, max_in_all: int = sys.maxsize, min_idle_ms: int = 0) -> None:
        """Begin without names."""
        self.max_in_all = max_in_all
        self.min_idle_ms = min_idle_ms
        self.in_all = 0
        self.evictions = 0
        self.expired = 0
        self.refusals = 0
        self.dropped_records = 0


class _TopicName:
    """One name of a topic, with the tables of the partitions that remember the name."""

    __slots__ = ("last_active_ms", "tables")

    def __init__(self) -> None:
        self.last_active_ms = 0
        self.tables: dict[NameTable, None] = {}

    def idle_ms(self, now_ms: int) -> int:
        """Return the milliseconds since the name was active. A last activity in the future counts as now.

        The last activity lies in the future after the clock was set back.
        """
        self.last_active_ms = min(self.last_active_ms, now_ms)
        return now_ms - self.last_active_ms


class TopicNames:
    """The names that the partitions of one topic remember, the longest idle first."""

    __slots__ = ("__weakref__", "_is_sorted", "_names", "budget", "is_whole", "max_names")

    def __init__(self, budget: NameBudget, max_names: int = sys.maxsize) -> None:
        """Begin without names. `max_names` may be changed while the object is in use."""
        self.budget = budget
        self.max_names = max_names
        self.is_whole = True
        """True when all partitions of the topic that may remember names are loaded.

        Otherwise an eviction could hit a name that is active in a partition that is not loaded.
        """
        self._names: OrderedDict[bytes, _TopicName] = OrderedDict()
        self._is_sorted = True

    def __len__(self) -> int:
        """Return the number of different names."""
        return len(self._names)

    def make_room(self, names: Collection[bytes], newcomers: Collection[bytes], now_ms: int) -> None:
        """Count `names`, the names of a batch, as active, and evict the longest idle names when there are too
        many.

        `newcomers` are the names of the batch that the partition does not remember.
        """
        for name in names:
            if name in self._names:
                self.touch(name, now_ms)
        for name in self._to_evict(*self._surplus(newcomers), now_ms):
            self.budget.evictions += 1
            for table in list(self._names[name].tables):
                table.forget(name)

    def enter(self, table: NameTable, name: bytes, now_ms: int) -> None:
        """Count a name that the partition of `table` begins to remember now."""
        self._enter(table, name).last_active_ms = now_ms
        self._names.move_to_end(name)

    def enter_restored(self, table: NameTable, name: bytes, last_active_ms: int) -> None:
        """Count a name that is restored after a start, with the time of its last activity."""
        known = self._enter(table, name)
        known.last_active_ms = max(known.last_active_ms, last_active_ms)
        self._is_sorted = self.is_whole = False

    def _enter(self, table: NameTable, name: bytes) -> _TopicName:
        known = self._names.get(name)
        if known is None:
            known = self._names[name] = _TopicName()
        known.tables[table] = None
        self.budget.in_all += 1
        return known

    def touch(self, name: bytes, now_ms: int) -> None:
        """Count a name as active now."""
        self._names[name].last_active_ms = now_ms
        self._names.move_to_end(name)

    def idle_ms(self, name: bytes, now_ms: int) -> int:
        """Return the milliseconds since the name was active in any partition."""
        return self._names[name].idle_ms(now_ms)

    def leave(self, table: NameTable, name: bytes) -> None:
        """Stop counting a name that the partition of `table` forgot."""
        tables = self._names[name].tables
        del tables[table]
        if not tables:
            del self._names[name]
        self.budget.in_all -= 1

    def must_be_whole(self, newcomers: Collection[bytes]) -> bool:
        """Return True when `newcomers` would evict other names, and not all partitions of the topic are
        loaded.
        """
        return not self.is_whole and any(self._surplus(newcomers))

    def refusal(self, newcomers: Collection[bytes], now_ms: int) -> str | None:
        """Return why a partition may not begin to remember `newcomers`; None when there is room. Counts
        refusals.
        """
        budget = self.budget
        surplus, surplus_in_all = self._surplus(newcomers)
        idle = self._to_evict(surplus, surplus_in_all, now_ms)
        if len(idle) < surplus:
            counted = f"{len(self._names)} names of the topic are remembered (at most {self.max_names})"
        elif sum(len(self._names[name].tables) for name in idle) < surplus_in_all:
            counted = f"{budget.in_all} names are remembered in all partitions (at most {budget.max_in_all})"
        else:
            return None
        budget.refusals += 1
        return f"{counted}, and too few names of the topic have been idle for {budget.min_idle_ms} ms"

    def _surplus(self, newcomers: Collection[bytes]) -> tuple[int, int]:
        """Return how many names are too many with `newcomers`: in the topic, and in all partitions (counted
        per partition).
        """
        in_topic = sum(name not in self._names for name in newcomers)
        surplus = len(self._names) + in_topic - self.max_names if in_topic else 0
        return max(0, surplus), max(0, self.budget.in_all + len(newcomers) - self.budget.max_in_all)

    def _to_evict(self, surplus: int, surplus_in_all: int, now_ms: int) -> list[bytes]:
        """Return the longest idle names of the topic whose eviction covers both surpluses, or all evictable
        names.
        """
        found: list[bytes] = []
        if surplus or surplus_in_all:
            for name in self._evictable(now_ms):
                found.append(name)
                surplus -= 1
                surplus_in_all -= len(self._names[name].tables)
                if surplus <= 0 and surplus_in_all <= 0:
                    break
        return found

    def _evictable(self, now_ms: int) -> Iterator[bytes]:
        """Yield the names that may be evicted, the longest idle first."""
        if not self._is_sorted:
            order = sorted(self._names.items(), key=lambda item: item[1].last_active_ms)
            self._names = OrderedDict(order)
            self._is_sorted = True
        for name, known in self._names.items():
            if known.idle_ms(now_ms) < self.budget.min_idle_ms:
                return
            if not any(table.is_pending(name) for table in known.tables):
                yield name
