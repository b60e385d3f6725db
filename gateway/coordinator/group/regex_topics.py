"""The topics that the regular expressions of a consumer group match.

The member whose request resolves an expression decides by its rights which topics it matches: a topic that the member may
not describe does not match. A new expression is resolved by the member that brings it. The group forgets an
expression with its last member. All expressions are resolved again when topics change and when rights change.
Source: Kafka's `GroupMetadataManager.maybeUpdateRegularExpressions`, `refreshRegularExpressions`,
`maybeDeleteResolvedRegularExpressions`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

REFRESH_INTERVAL_MS: Final = 10_000
"""The shortest time (ms) between two resolutions of a group's expressions because of changed rights; further
changes wait until it has passed.
"""


class Sight(NamedTuple):
    """The topics that the sender of a request may describe."""

    generation: int
    """A number that changes with every change of rights."""
    may_describe: Callable[[str], bool] | None
    """Returns whether the sender may describe the topic of this name; None if it may describe every topic."""

    def visible(self, names: Collection[str]) -> Collection[str]:
        """Return the names of topics that the sender may describe."""
        may_describe = self.may_describe
        return names if may_describe is None else [name for name in names if may_describe(name)]


EVERYTHING: Final = Sight(0, None)
"""The sight of every client where there is no authorizer."""


@dataclass(slots=True)
class RegexTopics:
    """The expressions of one group, and the names that each matched when they were last resolved."""

    _matching: dict[str, Collection[str]] = field(default_factory=dict)
    _generation: int = 0
    _resolved_at_ms: int = 0

    def is_outdated(self, sight: Sight, now_ms: int) -> bool:
        """Return whether rights have changed since the expressions were resolved, and the interval is over."""
        return (
            sight.generation != self._generation
            and bool(self._matching)
            and not 0 <= now_ms - self._resolved_at_ms < REFRESH_INTERVAL_MS
        )

    def keep(self, regexes: Container[str | None]) -> None:
        """Forget all expressions except these. A member that brings a forgotten one again resolves it."""
        self._matching = {regex: names for regex, names in self._matching.items() if regex in regexes}

    def resolve(
        self,
        regexes: Collection[str],
        match: Callable[[str], Collection[str]],
        sight: Sight,
        now_ms: int,
        *,
        afresh: bool,
    ) -> Mapping[str, Collection[str]]:
        """Return the names that each expression matches; resolve all of them `afresh`, otherwise the new ones.

        `match` returns the names of the existing topics that match an expression.
        """
        known = {} if afresh else self._matching
        if not known:
            self._generation, self._resolved_at_ms = sight.generation, now_ms
        if afresh or known.keys() != set(regexes):
            self._matching = {
                regex: known[regex] if regex in known else sight.visible(match(regex)) for regex in regexes
            }
        return self._matching
