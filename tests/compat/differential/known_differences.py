"""Where Seqgate answers otherwise than Apache Kafka on purpose, and why.

An entry speaks for the scenarios and paths that its patterns match (`*` for anything; a path is the number of the
exchange and the way to the field, by dots). In every scenario it speaks for, it must occur: a difference that has gone
away fails the test, so that this list stays true.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from tests.compat.differential.compare import Difference


@dataclass(frozen=True)
class KnownDifference:
    """`scenarios` and `path` are patterns; several scenarios may be named."""

    scenarios: tuple[str, ...]
    path: str
    reason: str

    def speaks_for(self, scenario: str) -> bool:
        return any(fnmatchcase(_plain(scenario), _plain(pattern)) for pattern in self.scenarios)

    def covers(self, scenario: str, difference: Difference) -> bool:
        return self.speaks_for(scenario) and fnmatchcase(difference.path, self.path)


def _plain(text: str) -> str:
    """Case names stand in square brackets, which patterns would read as a choice of characters."""
    return text.replace("[", "(").replace("]", ")")


KNOWN_DIFFERENCES: tuple[KnownDifference, ...] = ()
