"""A set of offsets, stored as ranges of consecutive offsets."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

_NEVER: Final = 2**63 - 1


class OffsetRanges:
    """A set of offsets, added in ascending order and removed in any order. A lookup costs a binary search."""

    __slots__ = ("_firsts", "_lasts", "count")

    def __init__(self) -> None:
        """Begin with no offsets."""
        self._firsts = array("q")
        self._lasts = array("q")
        self.count = 0
        """The number of offsets in the set."""

    def __contains__(self, offset: int) -> bool:
        return self.first_outside(offset) != offset

    @property
    def first(self) -> int | None:
        """The lowest offset; None for an empty set."""
        return self._firsts[0] if self._firsts else None

    def append(self, offset: int) -> None:
        """Add an offset above all others. Raises ValueError for a lower one."""
        last = self._lasts[-1] if self._lasts else -1
        if offset <= last:
            raise ValueError(f"offset {offset} must be above the last offset {last}")
        if self._lasts and offset == last + 1:
            self._lasts[-1] = offset
        else:
            self._firsts.append(offset)
            self._lasts.append(offset)
        self.count += 1

    def discard(self, offset: int) -> bool:
        """Remove an offset. Return whether the set had it."""
        index = bisect_right(self._firsts, offset) - 1
        if index < 0 or self._lasts[index] < offset:
            return False
        first, last = self._firsts[index], self._lasts[index]
        if first == last:
            del self._firsts[index], self._lasts[index]
        elif offset == first:
            self._firsts[index] = offset + 1
        elif offset == last:
            self._lasts[index] = offset - 1
        else:
            self._lasts[index] = offset - 1
            self._firsts.insert(index + 1, offset + 1)
            self._lasts.insert(index + 1, last)
        self.count -= 1
        return True

    def discard_all(self, offsets: Sequence[int]) -> int:
        """Remove ascending offsets in one pass over all ranges. Return how many of them the set had."""
        firsts, lasts = array("q"), array("q")
        before, self.count = self.count, 0
        taken = iter([*offsets, _NEVER])
        offset = next(taken)
        for range_first, last in zip(self._firsts, self._lasts, strict=True):
            first = range_first
            while offset < first:
                offset = next(taken)
            while offset <= last:
                if first < offset:
                    firsts.append(first)
                    lasts.append(offset - 1)
                    self.count += offset - first
                first = offset + 1
                offset = next(taken)
            if first <= last:
                firsts.append(first)
                lasts.append(last)
                self.count += last - first + 1
        self._firsts, self._lasts = firsts, lasts
        return before - self.count

    def discard_below(self, offset: int) -> int:
        """Remove all offsets below `offset`. Return the number of offsets removed."""
        end = bisect_left(self._lasts, offset)
        gone = sum(self._lasts[:end]) - sum(self._firsts[:end]) + end
        del self._firsts[:end], self._lasts[:end]
        if self._firsts and self._firsts[0] < offset:
            gone += offset - self._firsts[0]
            self._firsts[0] = offset
        self.count -= gone
        return gone

    def first_outside(self, offset: int) -> int:
        """Return the first offset from `offset` on that is not in the set."""
        index = bisect_right(self._firsts, offset) - 1
        return offset if index < 0 or self._lasts[index] < offset else self._lasts[index] + 1

    def within(self, first_offset: int, last_offset: int) -> list[tuple[int, int]]:
        """Return the ranges of the set between two offsets, cut at both; all inclusive."""
        index = bisect_left(self._lasts, first_offset)
        end = bisect_right(self._firsts, last_offset)
        return [
            (max(first, first_offset), min(last, last_offset))
            for first, last in zip(self._firsts[index:end], self._lasts[index:end], strict=True)
        ]
