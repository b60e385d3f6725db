"""The table of scenarios: each is a name and a function that holds one conversation with one endpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.compat.differential.peer import Peer, Refused, Transcript, Unsettled

SCENARIOS: dict[str, Scenario] = {}


@dataclass(frozen=True)
class Scenario:
    name: str
    converse: Callable[[Peer], None]

    def run(self, bootstrap: str, token: str) -> Transcript:
        """Run the conversation with one endpoint; its topic names begin with `token`."""
        legal = "".join(character if character.isalnum() else "-" for character in self.name)
        peer = Peer(bootstrap, f"{token}-{legal}-")
        try:
            self.converse(peer)
        except (Refused, Unsettled) as error:
            peer.stopped(str(error))
        finally:
            peer.close()
        return peer.transcript


def _add(function: Callable[..., None], case: str, *arguments: Any) -> None:
    theme = function.__module__.rpartition(".")[2]
    name = f"{theme}.{function.__name__}{case}"
    assert name not in SCENARIOS, f"two scenarios named {name}"
    SCENARIOS[name] = Scenario(name, lambda peer: function(peer, *arguments))


def scenario(function: Callable[[Peer], None]) -> Callable[[Peer], None]:
    """Add a function to the table under its theme (its module) and its name."""
    _add(function, "")
    return function


def scenario_for_each(
    cases: Mapping[str, Any] | Iterable[Any],
) -> Callable[[Callable[[Peer, Any], None]], Callable[[Peer, Any], None]]:
    """Add a function to the table once per case. Cases are versions or named values."""
    named = cases if isinstance(cases, Mapping) else {f"v{version}": version for version in cases}

    def enter(function: Callable[[Peer, Any], None]) -> Callable[[Peer, Any], None]:
        for case, value in named.items():
            _add(function, f"[{case}]", value)
        return function

    return enter
