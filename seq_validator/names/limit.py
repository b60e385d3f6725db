"""The bounds on how many names are remembered: of one topic, and in all partitions together.

A name that is forgotten while its application lives could have a record stored a second time. So no name that was active
within `min_idle_ms`, and none with an open transaction, is forgotten for another one: the newcomer is refused instead,
with a retriable error.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from seq_validator.names.table import NameTable


class NameBudget:
    """What all partitions share. The bounds may be changed while it is in use.

    `max_in_all` counts a name once per partition. The other numbers count what happened since it was made: `evictions`,
    `expired` names, `refusals` of new ones, `dropped_records`, which were acknowledged and not stored.
    """

    __slots__ = ("dropped_records", "evictions", "expired", "in_all", "max_in_all", "min_idle_ms", "refusals")

    def __init__(self, *, max_in_all: int = sys.maxsize, min_idle_ms: int = 0) -> None:
        """Begin with no names."""
        self.max_in_all = max_in_all
        self.min_idle_ms = min_idle_ms
        self.in_all = 0
        self.evictions = 0
        self.expired = 0
        self.refusals = 0
        self.dropped_records = 0


class _TopicName:
    """One name of a topic: the partitions' tables that know it."""

    __slots__ = ("last_active_ms", "tables")

    def __init__(self) -> None:
        self.last_active_ms = 0
        self.tables: dict[NameTable, None] = {}

    def idle_ms(self, now_ms: int) -> int:
        """Since it was last active; one of a time to come, as the clock was set back, counts as active now."""
        self.last_active_ms = min(self.last_active_ms, now_ms)
        return now_ms - self.last_active_ms


class TopicNames:
    """The names that the partitions of one topic know, the longest idle first."""

    __slots__ = ("__weakref__", "_is_sorted", "_names", "budget", "is_whole", "max_names")

    def __init__(self, budget: NameBudget, max_names: int = sys.maxsize) -> None:
        """Begin with none; `max_names` may be changed."""
        self.budget = budget
        self.max_names = max_names
        self.is_whole = True
        """Whether all partitions that may know names are at hand: else one that is active in another could be forgotten."""
        self._names: OrderedDict[bytes, _TopicName] = OrderedDict()
        self._is_sorted = True

    def __len__(self) -> int:
        """How many different names there are."""
        return len(self._names)

    def make_room(self, names: Collection[bytes], newcomers: Collection[bytes], now_ms: int) -> None:
        """The names of a batch are active; where there are too many with them, the longest idle ones are forgotten.

        `newcomers` are those of them that the partition does not know.
        """
        for name in names:
            if name in self._names:
                self.touch(name, now_ms)
        for name in self._to_forget(*self._surplus(newcomers), now_ms):
            self.budget.evictions += 1
            for table in list(self._names[name].tables):
                table.forget(name)

    def enter(self, table: NameTable, name: bytes, now_ms: int) -> None:
        """A partition begins to remember a name."""
        self._enter(table, name).last_active_ms = now_ms
        self._names.move_to_end(name)

    def enter_restored(self, table: NameTable, name: bytes, last_active_ms: int) -> None:
        """A partition remembers a name whose last activity lies in the past."""
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
        """A name is active."""
        self._names[name].last_active_ms = now_ms
        self._names.move_to_end(name)

    def idle_ms(self, name: bytes, now_ms: int) -> int:
        """For how long no partition has heard of a name."""
        return self._names[name].idle_ms(now_ms)

    def leave(self, table: NameTable, name: bytes) -> None:
        """A partition remembers a name no longer."""
        tables = self._names[name].tables
        del tables[table]
        if not tables:
            del self._names[name]
        self.budget.in_all -= 1

    def must_be_whole(self, newcomers: Collection[bytes]) -> bool:
        """Whether others would be forgotten for these names, and not all partitions are at hand."""
        return not self.is_whole and any(self._surplus(newcomers))

    def refusal(self, newcomers: Collection[bytes], now_ms: int) -> str | None:
        """Why a partition may not begin to remember these names, each once; None when it may. Counts refusals."""
        budget = self.budget
        surplus, surplus_in_all = self._surplus(newcomers)
        idle = self._to_forget(surplus, surplus_in_all, now_ms)
        if len(idle) < surplus:
            counted = f"{len(self._names)} names of the topic are remembered (at most {self.max_names})"
        elif sum(len(self._names[name].tables) for name in idle) < surplus_in_all:
            counted = f"{budget.in_all} names are remembered in all partitions (at most {budget.max_in_all})"
        else:
            return None
        budget.refusals += 1
        return f"{counted}, and too few of the topic have been idle for {budget.min_idle_ms} ms"

    def _surplus(self, newcomers: Collection[bytes]) -> tuple[int, int]:
        """How many names too many there are in the topic with these, and in all partitions, each counted once per partition."""
        in_topic = sum(name not in self._names for name in newcomers)
        surplus = len(self._names) + in_topic - self.max_names if in_topic else 0
        return max(0, surplus), max(0, self.budget.in_all + len(newcomers) - self.budget.max_in_all)

    def _to_forget(self, surplus: int, surplus_in_all: int, now_ms: int) -> list[bytes]:
        """The longest idle names of the topic that are to go for others, or fewer where there are not enough."""
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
        """The names that may be forgotten for others, the longest idle first."""
        if not self._is_sorted:
            order = sorted(self._names.items(), key=lambda item: item[1].last_active_ms)
            self._names = OrderedDict(order)
            self._is_sorted = True
        for name, known in self._names.items():
            if known.idle_ms(now_ms) < self.budget.min_idle_ms:
                return
            if not any(table.is_pending(name) for table in known.tables):
                yield name
