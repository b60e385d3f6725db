"""What a scenario's differences amount to, given those that are known."""

from __future__ import annotations

from collections.abc import Sequence

from tests.compat.differential.compare import Difference
from tests.compat.differential.known_differences import KnownDifference


def complaints(scenario: str, found: Sequence[Difference], known: Sequence[KnownDifference]) -> list[str]:
    """A sentence for every difference that is not listed and for every listed one that no longer occurs."""
    new = [item for item in found if not any(entry.covers(scenario, item) for entry in known)]
    gone = [
        entry
        for entry in known
        if entry.must_occur_in(scenario) and not any(entry.covers(scenario, item) for item in found)
    ]
    return [f"differs at {item}" for item in new] + [
        f"is listed as a known difference and no longer differs at {entry.path}: {entry.reason}"
        for entry in gone
    ]
