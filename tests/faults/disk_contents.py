"""The contents of a disk: in the page cache, where every write is visible at once, and on the platter, which
only a sync reaches.

A change of a file is pending until the file is synced, a change of a directory's names until the directory
is. A power cut keeps any part of what is pending: some writes and not others, a write torn between sectors,
the size without the bytes, some names and not others. Changes of one name's node stay in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from tests.faults.holes import Holes

SECTOR_BYTES = 512
"""A sector is written whole or not at all."""


class Chance(Protocol):
    """The source of choices: a `random.Random`, or `Enumeration`, which tries all choices."""

    def randrange(self, stop: int, /) -> int:
        """Return a number from 0 up to `stop` (exclusive)."""


class Enumeration:
    """Tries all series of choices, one after the other: `while True: f(choices); if not choices.advance():
    break`.
    """

    def __init__(self) -> None:
        self._series: list[list[int]] = []
        """The choice and the number of alternatives of each question so far."""
        self._asked = 0

    def randrange(self, stop: int, /) -> int:
        if self._asked == len(self._series):
            self._series.append([0, stop])
        choice, known_stop = self._series[self._asked]
        assert known_stop == stop, "the questions depend on something else than the answers"
        self._asked += 1
        return choice

    def advance(self) -> bool:
        """Move on to the next series; return False after the last one."""
        self._asked = 0
        while self._series:
            last = self._series[-1]
            last[0] += 1
            if last[0] < last[1]:
                return True
            self._series.pop()
        return False


class Change(NamedTuple):
    """A pending change of a file: bytes at a position, or a new size without bytes."""

    position: int
    data: bytes | None


def apply(content: bytearray, change: Change) -> None:
    position, data = change
    end = position if data is None else position + len(data)
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    if data is None:
        del content[position:]
    else:
        content[position:end] = data


class File:
    """A simulated file: its bytes in the page cache and on the disk."""

    is_directory = False

    def __init__(self) -> None:
        self.cached = bytearray()
        self.platter = bytearray()
        self.pending: list[Change] = []
        self.modified_ms = 0
        self.descriptors = 0
        self.is_linked = False
        self.cold: set[int] = set()
        """The numbers of the blocks that are not in the page cache."""
        self.holes = Holes()
        self.platter_holes = Holes()

    def change(self, change: Change) -> None:
        apply(self.cached, change)
        self.pending.append(change)
        if change.data is None:
            self.holes.cut(change.position)
        else:
            self.holes.fill(change.position, len(change.data))

    def punch(self, position: int, size_bytes: int) -> None:
        self.change(Change(position, bytes(size_bytes)))
        self.holes.punch(position, size_bytes)

    def sync(self) -> None:
        """Make the file durable. Data that a failed sync dropped stays lost, although the size looks right."""
        for change in self.pending:
            apply(self.platter, change)
        self.pending.clear()
        apply(self.platter, Change(len(self.cached), None))
        self.platter_holes = self.holes.copy()

    def fail_sync(self, chance: Chance | None) -> None:
        """Mark all pages as clean, although only some of them have reached the platter."""
        for change in self.pending:
            if chance is not None and change.data is not None and chance.randrange(2):
                apply(self.platter, change)
        self.pending.clear()

    def forget_cached(self) -> None:
        """Drop the page cache; durable data is read from the platter from now on."""
        size_bytes = len(self.cached)
        self.cached = bytearray(self.platter)
        for change in self.pending:
            apply(self.cached, change)
        apply(self.cached, Change(size_bytes, None))

    def lose_power(self, chance: Chance | None, *, tears: bool) -> None:
        """Keep a part of the pending changes; none without `chance`. A range that was a hole before or after
        the changes may be a hole.
        """
        for first, end in self.platter_holes.ranges:
            self.holes.punch(first, end - first)
        if chance is not None and self.pending:
            for change in _surviving(self.pending, chance, tears=tears):
                apply(self.platter, change)
            if len(self.platter) < len(self.cached) and chance.randrange(2):
                apply(self.platter, Change(len(self.cached), None))
        self.pending.clear()
        self.cached = bytearray(self.platter)
        self.holes.cut(len(self.cached))
        self.platter_holes = self.holes.copy()


def _surviving(pending: list[Change], chance: Chance, *, tears: bool) -> Iterator[Change]:
    if not tears:
        yield from (change for change in pending if chance.randrange(2))
        return
    mode = chance.randrange(4)
    if mode == 0:
        return
    if mode == 1:
        yield from pending
    elif mode == 2:
        count = chance.randrange(len(pending) + 1)
        yield from pending[:count]
        if count < len(pending):
            yield from _torn(pending[count], chance)
    else:
        for change in pending:
            fate = chance.randrange(3)
            if fate == 1:
                yield change
            elif fate == 2:
                yield from _torn(change, chance)


def _torn(change: Change, chance: Chance) -> Iterator[Change]:
    """Return some sectors of a write: the first ones, or any ones."""
    position, data = change
    if data is None:
        return
    sectors = list(_sectors(position, data))
    if chance.randrange(2):
        yield from sectors[: chance.randrange(len(sectors) + 1)]
    else:
        yield from (sector for sector in sectors if chance.randrange(2))


def _sectors(position: int, data: bytes) -> Iterator[Change]:
    start = 0
    while start < len(data):
        end = min(len(data), start + SECTOR_BYTES - (position + start) % SECTOR_BYTES)
        yield Change(position + start, data[start:end])
        start = end


class Naming(NamedTuple):
    """A change of a directory's entry: a creation has no old name, a deletion no new name, and a rename has
    both.
    """

    node: Node
    old_name: str
    new_name: str


class Directory:
    """A simulated directory: its entries in the page cache (`cached`), on the disk (`platter`), and the
    changes between (`pending`).
    """

    is_directory = True

    def __init__(self) -> None:
        self.cached: dict[str, Node] = {}
        self.platter: dict[str, Node] = {}
        self.pending: list[Naming] = []
        self.modified_ms = 0
        self.descriptors = 0
        self.is_linked = False

    def change(self, naming: Naming) -> None:
        _rename(self.cached, naming)
        self.pending.append(naming)

    def sync(self) -> None:
        for naming in self.pending:
            _rename(self.platter, naming)
        self.pending.clear()

    def fail_sync(self, chance: Chance | None) -> None:
        """Fail to write the journal: the names stay pending."""

    def lose_power(self, chance: Chance | None, *, tears: bool) -> None:
        """Keep a part of the pending changes; none without `chance`."""
        if chance is not None and self.pending:
            for naming in _surviving_names(self.pending, chance, tears=tears):
                _rename(self.platter, naming)
        self.pending.clear()
        self.cached = dict(self.platter)


Node = File | Directory


def _rename(names: dict[str, Node], naming: Naming) -> None:
    if naming.old_name and names.get(naming.old_name) is naming.node:
        del names[naming.old_name]
    if naming.new_name:
        names[naming.new_name] = naming.node


def _surviving_names(pending: list[Naming], chance: Chance, *, tears: bool) -> list[Naming]:
    """Return the first changes of all names, or of each node, so that no node ends up with two names."""
    if tears and chance.randrange(2):
        return pending[: chance.randrange(len(pending) + 1)]
    counts: dict[int, int] = {}
    for naming in pending:
        counts[id(naming.node)] = counts.get(id(naming.node), 0) + 1
    left = {node: chance.randrange(count + 1) for node, count in counts.items()}
    kept = []
    for naming in pending:
        if left[id(naming.node)]:
            left[id(naming.node)] -= 1
            kept.append(naming)
    return kept
