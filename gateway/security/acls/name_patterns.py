"""A table of values by patterns of resource names. A look-up by a name does not compare every pattern."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from gateway.security.acls.codes import PatternType
from gateway.security.acls.entry import WILDCARD

V = TypeVar("V")


class NamePatterns(Generic[V]):
    """A table of values by literal names and by prefixes.

    A look-up tries each length that some prefix has: its cost depends on the number of lengths, not of patterns.
    """

    __slots__ = ("_lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, V] = {}
        self.prefixed: dict[str, V] = {}
        self._lengths: dict[int, int] = {}
        """The number of prefixes of each length."""

    def __bool__(self) -> bool:
        return bool(self.literal or self.prefixed)

    def matching(self, name: str) -> Iterator[V]:
        """Yield the values of all patterns that apply to a resource of this name."""
        found = self.literal.get(name)
        if found is not None:
            yield found
        found = self.literal.get(WILDCARD)
        if found is not None and name != WILDCARD:
            yield found
        for length in self._lengths:
            if length <= len(name):
                found = self.prefixed.get(name[:length])
                if found is not None:
                    yield found

    def get_or_add(self, pattern_type: PatternType, name: str, make: Callable[[], V]) -> V:
        """Return the value of a pattern, which gets a new value when it has none."""
        table = self._table(pattern_type)
        found = table.get(name)
        if found is None:
            found = table[name] = make()
            if table is self.prefixed:
                self._lengths[len(name)] = self._lengths.get(len(name), 0) + 1
        return found

    def remove(self, pattern_type: PatternType, name: str) -> None:
        """Remove a pattern, which must be in the table."""
        table = self._table(pattern_type)
        del table[name]
        if table is self.prefixed:
            self._lengths[len(name)] -= 1
            if not self._lengths[len(name)]:
                del self._lengths[len(name)]

    def _table(self, pattern_type: PatternType) -> dict[str, V]:
        return self.prefixed if pattern_type is PatternType.PREFIXED else self.literal
