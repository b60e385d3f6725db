"""Conversations with a secured endpoint that are not rows of the table of rights: logins, and APIs of
security.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.compat.differential.peer import Peer
from tests.compat.differential.scenario import Scenario


@dataclass
class Scenes:
    """The scenarios of one listener, by name."""

    found: dict[str, Scenario]

    def add(self, function: Callable[[Peer], None]) -> Callable[[Peer], None]:
        """Add a function under its theme (its module) and its name."""
        self._add(function, "")
        return function

    def add_for_each(
        self, cases: Mapping[str, Any] | Iterable[Any]
    ) -> Callable[[Callable[[Peer, Any], None]], Callable[[Peer, Any], None]]:
        """Add a function once per case. Cases are versions or named values."""
        named = cases if isinstance(cases, Mapping) else {f"v{version}": version for version in cases}

        def enter(function: Callable[[Peer, Any], None]) -> Callable[[Peer, Any], None]:
            for case, value in named.items():
                self._add(function, f"[{case}]", value)
            return function

        return enter

    def _add(self, function: Callable[..., None], case: str, *arguments: Any) -> None:
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}{case}"
        assert name not in self.found, f"two scenarios named {name}"
        self.found[name] = Scenario(name, lambda peer: function(peer, *arguments))


BEFORE_LOGIN = Scenes({})
"""Scenarios on the listener where users log in; their connections begin without a login."""
AS_SUPER_USER = Scenes({})
"""Scenarios on the listener where everybody is a super user."""
